#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/attention/cover_attention.h"
#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/attending_path.h"
#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/flow/eviction.h"
#include "kernels/cuda/flow/loaded_kernels.h"
#include "kernels/cuda/runtime/kernel_library.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/selection/selection.h"
#include "kernels/cuda/selection/topk.h"
#include "kernels/device.h"

namespace sluice::cuda {

/// The blocks of one layer: those of page `p` and KV head `h` at base + p * page_stride + h * block_bytes.
struct FlowBlocks {
  std::byte* base = nullptr;
  size_t page_stride = 0;
  size_t block_bytes = 0;
  int kv_heads = 1;
  int layer = 0;
  // The same of the fields, where they have pages of their own.
  std::byte* fields = nullptr;
  size_t field_page_stride = 0;
  size_t field_block_bytes = 0;
};

/// Pages whose fields are to be recomputed, in device memory.
struct StaleBlocks {
  int count = 0;
  const int32_t* pages = nullptr;   // [count]
  const int32_t* fields = nullptr;  // [count] the pages that have their fields, where these are others
  const int32_t* tokens = nullptr;  // [count] in each; null: all are full but the last
  int last_tokens = 0;              // in the last, if `tokens` is null
  bool by_head = false;             // all of these are [count, kv_heads], and -1 stands for none
};

/// Sequences that decode, in device memory.
struct FlowSequences {
  int count = 0;
  int most_pages = 0;                     // a bound on those of any
  bool even = false;                      // they are about as long as each other
  const int32_t* lengths = nullptr;       // [count] tokens
  const int32_t* page_indptr = nullptr;   // [count]
  const int32_t* page_indices = nullptr;  // oldest first
  const int32_t* field_indptr = nullptr;  // the same of the pages with the fields, where these are others
  const int32_t* field_indices = nullptr;
  const uint64_t* seeds = nullptr;     // [count]; null: 0
  const int32_t* steps = nullptr;      // [count] what chance counts their steps by, less 1; null: `lengths`
  const StateBlock* states = nullptr;  // [count]; null for flows that keep none
  const HintBlock* hints = nullptr;    // [count] what each selected last (CudaFlowState); null: nobody keeps that
  // For flows that see parts of pages (JoinedSelection).
  const int32_t* visible_indptr = nullptr;  // [count + 1]
  const uint32_t* visible = nullptr;
  int visible_heads = 1;
  const int32_t* beside_indptr = nullptr;  // [count + 1]
  const int32_t* beside = nullptr;
  const void* query = nullptr;            // [count, kv_heads * group, dim]
  int64_t query_stride = 0;               // elements from sequence to sequence
  DataType query_type = DataType::kBF16;  // or f32
  /// If the fields of every sequence's newest page are yet to be recomputed: [count] those pages; else none. No other page of
  /// these sequences may have been written to since the last time that the stream waited for all before it, as it does for a
  /// copy: they are read before earlier kernels have ended.
  StaleBlocks stale = {};
  /// If `refresh` was queued for these sequences in this pass, once q was, and nothing for the flow since: q and the flow's
  /// scratch are ready before earlier kernels have ended, and of the sequences' pages only the newest are not.
  bool behind_refresh = false;
  bool wants_scores = false;  // in the result
};

/// What a flow selected, and what is attended to, in device memory until its next selection. A row is sequence * kv_heads + head.
struct FlowResult {
  const int32_t* positions = nullptr;  // [rows, stride] of the selected pages, ascending
  const int32_t* counts = nullptr;     // [rows] of them
  const int32_t* pages = nullptr;      // [rows, stride] pool pages that are attended to: the same, and those with tokens beside
  const int32_t* starts = nullptr;     // [rows] row * stride
  const int32_t* tokens = nullptr;     // [rows] tokens in them
  int64_t stride = 0;
  const int32_t* mask_indptr = nullptr;  // [rows + 1] in `masks`, as PageLists has them; null: all tokens of the pages count
  const uint32_t* masks = nullptr;
  const uint32_t* selected_masks = nullptr;  // [rows, mask_stride] of `positions`, where tokens are selected; null: all are
  int64_t mask_stride = 0;                   // words
  const int32_t* attended = nullptr;         // [rows, stride] positions of `pages`
  const int32_t* attended_counts = nullptr;  // [rows]
  std::optional<Cover> cover = {};           // where summaries stand for other pages
  std::vector<const float*> scores;          // of scored_selections(graph), each [rows, score_stride]; empty: nobody asked
  int64_t score_stride = 0;
};

/// Pages attended to and pages there were, summed by the GPU.
struct PageCounters {
  unsigned long long* attended = nullptr;
  unsigned long long* available = nullptr;
};

/// How the index stage of so many rows of so many pages runs.
struct FlowPath {
  int cluster = 0;  // blocks that hold a row in one kernel; 0: several kernels, which hand scores on in device memory
  int threads = kRowThreads;
  int held_pages = 0;  // of a block
  int stages = 1;      // of copies that a warp waits for
  size_t shared_bytes = 0;
};

/// What attention gave the tokens of rows (sequence, KV head), in device memory.
struct TokenMasses {
  const float* numbers = nullptr;   // [rows, group, stride] by the token's place among those attended to
  int64_t stride = 0;               // of whole pages
  const float* log_sums = nullptr;  // [rows, group]: weights are 2^(numbers - log_sums); null: as they are
  const int32_t* pages = nullptr;   // [rows, page_stride] positions of the pages attended to, ascending; null: all
  const int32_t* counts = nullptr;  // [rows] of them
  int64_t page_stride = 0;
};

/// Decode attention to what a flow selects.
struct FlowAttention {
  const DecodeAttention& attention;
  const void* query = nullptr;  // bf16 [count, kv_heads * group, dim]
  int64_t query_stride = 0;     // numbers from sequence to sequence
  void* out = nullptr;          // bf16 [count, kv_heads * group, dim]
  float scale = 1;              // of q . k
};

/// A plan compiled to kernels of its own. It has scratch memory, so one stream at a time may use it.
class CudaFlow final {
 public:
  CudaFlow(Plan plan, int layers, int kv_heads);

  const Plan& plan() const { return plan_; }
  /// State for one request of at most `max_pages` pages, and room for what its selections took last where that makes the next
  /// ones faster; null if it needs neither.
  std::unique_ptr<RequestState> create_state(int max_pages) const;
  const std::string& source() const { return source_.text; }

  /// Makes room for so many sequences of so many pages.
  void reserve(int sequences, int pages);

  /// Differs after its scratch has moved.
  uintptr_t ground() const {
    return static_cast<uintptr_t>(reserved_) + scratch_.bytes() + eviction_scratch_.bytes() + last_readers_.bytes();
  }
  /// The path that `select` takes; one kernel if the flow is of that kind and rows fit on chip.
  FlowPath path(int sequences, int pages) const;
  /// The same in words, with the reason.
  std::string describe_path(int sequences, int pages) const;
  /// Makes `select` take the path of several kernels, to compare the two.
  void use_several_kernels() { whole_rows_ = false; }

  /// Whether what `attend` does to so many sequences of so many pages depends on whether they are even.
  bool minds_evenness(int sequences, int pages) const { return attending_path(sequences, pages).blocks > 0; }

  /// The number of a layer among those that run the flow.
  int state_layer(int layer) const { return state_layers_.at(static_cast<size_t>(layer)); }
  const codegen::FlowLayout& layout() const { return layout_; }
  /// Whether rows attend to all pages, whatever they score.
  bool attends_to_all() const;
  /// Whether the after stage reads no more of a layer than attention leaves: it may run beside the layers that follow, up to the
  /// next that attends by this flow, or, with `keeps_layers_apart`, to the end of the step.
  bool runs_after_beside() const { return after_beside_; }
  /// Whether what attention leaves of a layer stays while the flow is at others.
  bool keeps_layers_apart() const { return layers_apart_; }
  /// Where attention leaves what the tokens of a step score in a layer, with room for the sequences that were reserved.
  TokenLogits token_logits(int layer) const;
  float* log_sums(int layer) const;
  /// Scratch of which `ground` knows.
  DeviceMemory& eviction_scratch() { return eviction_scratch_; }
  /// States with the axes page and token, in device memory.
  const TokenState* token_states() const { return token_states_.as<TokenState>(); }
  int token_state_count() const { return token_state_count_; }
  /// The same of what GroupPages::last_readers says, whose contents are told by their number.
  const int32_t* last_readers(std::span<const int32_t> readers);

  /// Recomputes the fields of pages, of all KV heads. Returns whether there was anything to do: whether a kernel was queued,
  /// which lets others start once it has waited itself.
  bool refresh(const FlowBlocks& blocks, const StaleBlocks& stale, Stream stream);

  /// Runs the index stage of one layer for all sequences and KV heads. Exact top-k keeps the order of
  /// kernels/cpu/selection/topk.h.
  FlowResult select(const FlowBlocks& blocks, const FlowSequences& sequences, const PageCounters& counters, Stream stream);
  /// Does what `select` and attention to its result would, in one kernel, if there is one and it is worth it: for few rows, or
  /// for so many of about the same length that each block has several; returns whether it did. What was selected nobody sees.
  bool attend(const FlowBlocks& blocks, const FlowSequences& sequences, const PageCounters& counters,
              const FlowAttention& attention, Stream stream);
  /// Runs the after stage of a plan that has one, and saves what both stages save; at the end of a prompt, of which `sequences`
  /// have the last queries, what this stage does.
  void run_after(const FlowBlocks& blocks, const FlowSequences& sequences, const TokenMasses& masses, bool ends_prompt,
                 bool overlaps, Stream stream);

 private:
  void load_row_kernel();
  void load_small_row_kernel();
  void load_attending_kernel();
  void load_cluster_attending_kernel();
  /// Blocks that hold a row; 0: it does not fit.
  int row_blocks(int rows, int pages) const;
  /// Pages of a row that each of its blocks holds.
  static int held_pages(int cluster, int pages);
  bool row_fits(int cluster, int pages) const;
  /// Whether so many rows, each of a block of kRowThreads, do not all run at once.
  static bool are_many(int rows);
  /// Throws InternalError unless the flow was compiled for such blocks and has its states.
  void require(const FlowBlocks& blocks, const FlowSequences& sequences) const;
  codegen::AttendingPath attending_path(int sequences, int pages) const;
  codegen::ClusterAttendingPath cluster_attending_path(int sequences, int pages) const;
  /// `overlaps`: it starts while the kernel before it ends.
  void launch(const LoadedKernel& loaded, int64_t blocks, const FlowArguments& arguments, bool overlaps, Stream stream) const;
  FlowArguments arguments_of(const FlowBlocks& blocks) const;
  FlowArguments index_arguments(const FlowBlocks& blocks, const FlowSequences& sequences) const;
  int32_t* numbers_at(int which, int selection) const;
  void launch_whole_rows(const FlowPath& path, const Selection& selection, const FlowSequences& sequences,
                         FlowArguments arguments, Stream stream);
  /// By blocks that have several rows each, where that is worth it.
  bool attend_several_rows(const FlowSequences& sequences, AttentionArguments given, FlowArguments arguments,
                           Stream stream) const;
  /// What stands for the pages that are not selected; `held`: rows were on chip.
  Cover cover_of(const FlowBlocks& blocks, const FlowSequences& sequences, const Selection& selection, bool held) const;
  /// The groups that its summaries make.
  PageGroups groups_of(const AttendedSource& source) const;
  /// The pages whose groups are open, beside those of `selected`, whose leaves are `leaves_`.
  void open_groups(const Selection& selected, int layer, const FlowSequences& sequences, Stream stream);
  /// Adds the pages with tokens beside what was selected.
  FlowResult join(const FlowResult& selected, const Selection& selection, const FlowSequences& sequences, Stream stream);
  /// Launches of either stage, one after the other.
  void launch_all(const std::vector<LoadedKernel>& kernels, FlowArguments arguments, bool overlaps, Stream stream) const;
  void place_token_states();
  bool finds_after_beside() const;
  /// Of a row of logits.
  int64_t logit_stride() const;
  /// Log sums that a layer has room for: one for each row and head.
  int64_t log_sums_of_layer() const { return most_rows_ * int64_t{plan_.graph.geometry.group}; }
  int logit_layer(int layer) const { return layers_apart_ ? state_layer(layer) : 0; }
  void launch_steps(const Selection& selection, const FlowSequences& sequences, FlowArguments arguments, Stream stream);
  /// Selects by the scores that launches have left in a layer.
  SelectionLeaf select_leaf(NodeId id, int layer, int rows, const FlowSequences& sequences, Stream stream);
  /// Most pages that a selection of a request of so many pages takes whose next step is faster if they are kept; 0: none is.
  int hint_room(int max_pages) const;
  /// Whether any selection of so many sequences begins with what it took last, where that is kept.
  bool takes_hints(int sequences, int pages) const;
  int64_t row_stride() const;
  /// Entries of a selection's list: pages, or tokens where some selection has these.
  int64_t list_stride() const { return int64_t{capacity_} * (plan_.graph.selects_tokens() ? plan_.layout.page : 1); }
  /// The lists of a flow that selects tokens.
  void finish_tokens(const Selection& joined, Stream stream);
  /// Words of a row's mask, where there is one.
  int64_t mask_stride() const;
  void grow_memory();
  const float* values_of(NodeId id) const;

  Plan plan_;
  codegen::FlowLayout layout_;
  codegen::GeneratedSource source_;
  int kv_heads_;
  std::vector<int> state_layers_;  // by layer: its number among sparse ones, or -1
  int sparse_layers_ = 0;
  KernelLibrary library_;
  std::optional<KernelLibrary> small_library_;      // once there are many rows
  std::optional<KernelLibrary> attending_library_;  // as that
  std::optional<KernelLibrary> cluster_attending_library_;
  LoadedKernel refresh_;
  std::vector<LoadedKernel> index_;
  std::vector<LoadedKernel> after_;
  std::vector<NodeId> leaves_;         // the union of these is what the flow selects
  std::vector<NodeId> opened_leaves_;  // and of these what opens groups of pages
  LoadedRow row_kernel_;
  LoadedRow small_row_kernel_;  // of small_library_
  LoadedRow attending_kernel_;  // of attending_library_
  LoadedRow cluster_attending_kernel_;
  bool whole_rows_ = false;
  codegen::ClustersAtOnce clusters_at_once_{};
  codegen::ClusterLimits attending_limits_{};

  int reserved_ = 0;  // times
  int capacity_ = 0;  // pages of a row
  int most_rows_ = 0;
  DeviceMemory rows_;       // [rows, row_stride()] float32
  DeviceMemory lists_;      // [selections, rows, list_stride()]
  DeviceMemory numbers_;    // [selections, rows] counts, lengths, budgets; then of the result [rows] starts, tokens, counts
  DeviceMemory positions_;  // [rows, capacity]
  DeviceMemory pages_;      // [rows, capacity]
  // Of flows that see parts of pages: pages [rows, capacity]; [rows] starts, tokens, counts, [rows + 1] of masks; the masks.
  DeviceMemory joined_positions_;
  DeviceMemory joined_pages_;
  DeviceMemory joined_numbers_;
  DeviceMemory joined_masks_;
  DeviceMemory selected_masks_;  // of flows that select tokens: as `joined_masks_`, of the selected pages
  // Of flows whose pages have summaries together: [rows, capacity * heads]; pages that open groups, their positions and their
  // pool pages, [rows, capacity] each; and [rows] starts, tokens, counts of them.
  DeviceMemory group_logits_;
  DeviceMemory opened_positions_;
  DeviceMemory opened_numbers_;
  // Of flows that read what attention gives tokens.
  bool after_beside_ = false;
  bool layers_apart_ = false;
  DeviceMemory logits_;    // [layers, if they are kept apart][rows, group, logit_stride()]
  DeviceMemory log_sums_;  // the same of [rows, group]
  // Of flows whose tokens leave.
  DeviceMemory token_states_;
  int token_state_count_ = 0;
  DeviceMemory last_readers_;
  DeviceMemory eviction_scratch_;
  mutable DeviceMemory scratch_;
};

}  // namespace sluice::cuda
