#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/codegen/lanes.h"
#include "kernels/cuda/codegen/products.h"
#include "kernels/cuda/codegen/values.h"

namespace sluice::cuda::codegen {

/// Where the script wrote it, without anything that could end a comment.
std::string place_in_script(const SourceLocation& where);

/// Writes one kernel of a flow.
class KernelWriter {
 public:
  KernelWriter(const FlowLayout& layout, Stage stage, Writer& writer);

  /// Recomputes the fields of pages: a block for each page and KV head.
  GeneratedKernel refresh();
  /// A launch by pieces of rows: blocks take tiles of pages through all of its nodes.
  GeneratedKernel tiles(const Launch& launch, int number);
  /// A launch by row.
  GeneratedKernel rows(const Launch& launch, int number);
  /// The whole index stage and the selection (row_kernel.cpp), as a function hold_row<threads>. `selected`: the leaves of the
  /// flow's selection.
  RowKernel whole_row(const std::vector<NodeId>& selected);
  /// The same and attention to what is selected (attending_kernel.cpp).
  AttendingKernel attending(const std::vector<NodeId>& selected);
  /// The same by a cluster of blocks for each row (cluster_attending_kernel.cpp).
  ClusterAttendingKernel cluster_attending(const std::vector<NodeId>& selected);

 private:
  using Kind = KernelSlot::Kind;

  /// Those who compute a value together.
  struct Crew {
    const char* thread;  // number of this one
    const char* threads;
    const char* barrier;
    const char* combine;  // over all of them
    const char* first;    // page
    const char* count;    // of pages
    const char* element;  // type that counts their elements
    const char* type;     // of crew.cuh
  };
  static constexpr Crew kBlock{"threadIdx.x", "blockDim.x", "__syncthreads();", "combine_block",
                               "first",       "count",      "long long",        "WholeBlock"};
  static constexpr Crew kRowBlocks{"threadIdx.x", "blockDim.x", "__syncthreads();", "blocks.combine", "first",
                                   "count",       "int",        "WholeBlock"};
  static constexpr Crew kSelectors{"threadIdx.x", "kSelectorThreads", "Selectors::sync();", "", "first", "count",
                                   "int",         "Selectors"};
  static constexpr Crew kFieldWarps{"threadIdx.x", "kFieldThreads", "sync_field_threads();", "", "first", "count", "int", ""};
  static constexpr Crew kWarp{"lane", "32", "__syncwarp();", "", "tile_first", "tile_count", "int", ""};

  const Node& node(NodeId id) const { return layout_.node(id); }
  bool kept(NodeId id) const { return layout_.kept[static_cast<size_t>(id)]; }
  bool stored(NodeId id) const { return layout_.slots[static_cast<size_t>(id)].stored; }
  KernelSlot& slot(NodeId id) { return scope_.slots[static_cast<size_t>(id)]; }

  /// Gives query-only values that `ids` need places in `fixed`.
  void place_fixed(const std::vector<NodeId>& ids);
  /// Gives values that stay in a tile places in it.
  void place_in_tile(const std::vector<NodeId>& ids);
  /// Statements that fill `fixed`.
  void write_fixed();
  /// The memory of a block.
  GeneratedKernel described(const std::string& name, int64_t numbers, int threads);
  void open_kernel(const GeneratedKernel& kernel, int blocks);
  void declare_memory(const GeneratedKernel& kernel);
  void declare_row(const std::string& index);

  void comment(NodeId id);
  /// A loop of the crew over `per` elements, of each page if `paged`; inside, `p` is the page and `r` the element in it.
  void open_elements(int64_t per, bool paged);
  /// Computes a node for all pages of the tile (or the page, or once) into its place.
  void compute(NodeId id, bool paged);
  /// `only`: a condition on the place, or all.
  void compute_elements(NodeId id, bool paged, const std::string& only = "");
  void compute_lines(NodeId id, bool paged);
  /// `taps`, the kernel of a convolution; returns how many there are.
  int declare_taps(const Node& convolution);
  void convolve(NodeId id, const Index& index, const std::string& target);
  void reduce(NodeId id, const Index& index, const std::string& target);
  /// Combines the entries `j` of the tokens that a page holds, `add_to` each with a sum, in `sum`.
  void reduce_tokens(const std::function<void(const std::string&)>& add_to);
  /// A value with or without page axis along the page axis: by all threads of the block.
  void compute_along_pages(NodeId id);
  void convolve_pages(NodeId id);
  /// The steps of a launch by row.
  void compute_rows(const Launch& launch);
  /// `const int middle`, the pages that are not kept anyway, and `const int budget`, how many of them a selection takes.
  void write_budget(NodeId id);
  void plan_selection(NodeId id);
  void write_saves();
  std::vector<NodeId> nodes_of(const Launch& launch) const;

  /// Finds the reductions of a launch that lanes share; returns the bytes of the ring that they take turns to use.
  int64_t find_lane_reductions(const std::vector<NodeId>& ids);
  void open_pieces();
  /// `ids`, the places in the pool of the pages of a tile.
  void read_ids();
  /// Copies of the next tile begin early where only one reduction makes any.
  void begin_only_reduction();
  void compute_tile(const Launch& launch);

  /// Gives what the cache stage computes places in the tile.
  std::vector<NodeId> place_cache();
  /// Computes and stores the fields of `block`.
  void write_fields(const std::vector<NodeId>& order);

  /// Finds the products of a launch and what to copy for them.
  void find_products(const Launch& launch);
  void open_row(RowKernel& kernel, int64_t field_numbers);
  int64_t place_fixed_memory(int64_t field_numbers, int warps);
  void place_row(RowKernel& kernel, int64_t field_numbers);
  void declare_share(const char* shared, int step);
  /// Rings of all warps begin at `rings`.
  void declare_ring(int64_t stage_bytes, const char* rings);
  /// What a tile has of a run in a stage of the ring.
  int64_t bytes_in_stage(const CopiedRun& run) const { return int64_t{scope_.tile_pages} * run.lines * run.stride(); }
  void write_asking(int64_t stage_bytes);
  void write_prefetch();
  /// `is_scored`: the newest page may have a tile that waits for its fields.
  void write_refresh(KernelWriter& fields, const std::vector<NodeId>& cache, bool is_scored);
  void write_queries();
  void write_product(const Product& product);
  void write_product_results(const Product& product);
  void open_queue();
  void write_stage();
  void write_row_tiles(const Launch& launch);
  /// The first and the last pages that are kept whatever their scores.
  std::pair<int, int> kept_by(const std::vector<NodeId>& selected) const;
  void begin_selection(const std::vector<NodeId>& selected);
  void fetch_kept_pages(const std::vector<NodeId>& selected);
  void select_from_row(const std::vector<NodeId>& selected, const char* share);
  void write_selection(const std::vector<NodeId>& selected);

  /// Finds the products of kernels that attend and gives values places; returns whether any reads channels of pages.
  bool place_scoring(const std::vector<NodeId>& selected);
  /// Opens a kernel that attends, and says what its tiles are.
  void open_attending(const std::string& name, const char* threads);
  void place_attending(AttendingKernel& kernel, int64_t field_numbers);
  /// A warp's shared memory: stages for tiles of fields, in whose place there are tiles of K and V later.
  struct AttendingRing {
    int64_t stages = 0;
    int64_t stage_bytes = 0;
    int64_t bytes = 0;
  };
  AttendingRing attending_ring() const;
  void begin_attending();
  void declare_asking();
  int64_t query_numbers() const;
  void declare_own_row();
  void place_own_row();
  void copy_queries();
  void write_selectors(const std::vector<NodeId>& selected, KernelWriter& fields, const std::vector<NodeId>& cache);
  void write_scoring();
  void write_own_tiles(const Launch& launch);
  void write_attention();

  void place_cluster_attending(ClusterAttendingKernel& kernel, int64_t field_numbers);
  void write_cluster_selection(const std::vector<NodeId>& selected, KernelWriter& fields, const std::vector<NodeId>& cache);
  void draw_from_row(const std::vector<NodeId>& selected);
  void write_cluster_attention();

  const FlowLayout& layout_;
  const FlowGraph& graph_;
  Writer& writer_;
  KernelScope scope_;
  Crew crew_ = kBlock;
  int unrolled_ = 8;                // entries of a reduction
  bool queries_are_there_ = false;  // in `fixed`
  bool leaves_newest_ = false;      // the newest page is not scored
  bool compact_queries_ = false;    // as products have them (QueryShape in row.cuh)
  std::vector<NodeId> fixed_order_;
  int64_t fixed_numbers_ = 0;
  int64_t tile_numbers_ = 0;  // a page
  std::map<NodeId, LaneReduction> lane_reductions_;
  std::vector<Product> products_;
  std::vector<CopiedRun> runs_;
};

}  // namespace sluice::cuda::codegen
