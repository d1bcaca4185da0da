#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/codegen/index_writer.h"
#include "kernels/cuda/codegen/products.h"

namespace sluice::cuda::codegen {

/// Writes how a kernel that holds rows reads their pages: tile by tile through rings in shared memory, multiplied on tensor
/// cores.
class RowTilesWriter : public IndexWriter {
 protected:
  RowTilesWriter(const FlowLayout& layout, Writer& writer, const Crew& crew) : IndexWriter(layout, writer, crew) {
    scope_.holds_row = true;
  }
  ~RowTilesWriter() = default;

  /// Finds the products of all launches, and gives places to what they and `selected` read.
  void place_values(const std::vector<NodeId>& selected);
  /// What a tile has of a run in a stage of the ring.
  int64_t bytes_in_stage(const CopiedRun& run) const { return int64_t{scope_.tile_pages} * run.lines * run.stride(); }
  /// And of all; 0: nothing is copied.
  int64_t bytes_in_stage() const;
  /// Rings of all warps begin at `rings`.
  void declare_ring(const char* rings);
  /// ask(tile, id, stage): sends for what products read of a tile; lane i has the id of page i.
  void write_asking();
  /// Sends for the tile with the newest page, if ask_first() leaves it out.
  void write_newest_asking();
  /// Where the line of the newest page has that field in the ring, if whoever computes it may write it there; else "".
  std::string newest_line(size_t field) const;
  void write_queries();
  void write_product(const Product& product);
  /// What a tile has beside its products, from them.
  void compute_beside_products(const Launch& launch);
  void write_row_tiles(const Launch& launch);

  bool leaves_newest_ = false;    // the newest page is not scored
  bool compact_queries_ = false;  // as products have them (QueryShape in row_products.cuh)
  int most_groups_ = 2;           // of sixteen lines that are multiplied together: what a thread has registers for
  std::vector<Product> products_;
  std::vector<CopiedRun> runs_;
  bool in_pieces_ = false;  // all lanes ask for 16 bytes each, rather than some for whole lines

 private:
  void find_products(const Launch& launch);
  /// Whether all that is copied of a page is one line of fields, so that the newest one's need not come from memory.
  bool may_hold_newest() const;
  void ask_in_pieces(const CopiedRun& run, int64_t begin);
  void write_product_results(const Product& product, int groups);
  void write_fold(const Product& product);
  void open_queue();
  void write_stage();
};

}  // namespace sluice::cuda::codegen
