#pragma once

#include <vector>

#include "kernels/cuda/codegen/node_writer.h"

namespace sluice::cuda::codegen {

/// Writes what kernels of the index stage share: values of the query, steps over all pages of a row, budgets, and states.
class IndexWriter : public NodeWriter {
 protected:
  IndexWriter(const FlowLayout& layout, Writer& writer, const Crew& crew) : NodeWriter(layout, Stage::kIndex, writer, crew) {}
  ~IndexWriter() = default;

  std::vector<NodeId> nodes_of(const Launch& launch) const;
  /// Gives query-only values that `ids` need places in `fixed`.
  void place_fixed(const std::vector<NodeId>& ids);
  /// Gives values that stay in a tile places in it.
  void place_in_tile(const std::vector<NodeId>& ids);
  /// Statements that fill `fixed`.
  void write_fixed();
  void declare_row(const std::string& index);
  /// The steps of a launch by row.
  void compute_rows(const Launch& launch);
  /// `const int middle`, the pages that are not kept anyway, and `const int budget`, how many of them a selection takes.
  void write_budget(NodeId id);
  void plan_selection(NodeId id);
  /// What leaves a tail is saved once, and is told apart by a number of its page.
  void write_saves(const std::vector<NodeId>& saves);
  /// The states of the row, and its first number of those that say which pages a save with a tail has had.
  std::string saved_pages(NodeId save) const;

  bool queries_are_there_ = false;  // in `fixed`
  std::vector<NodeId> fixed_order_;
  int64_t fixed_numbers_ = 0;

 private:
  /// A value with or without page axis along the page axis: by all threads of the block.
  void compute_along_pages(NodeId id);
  void convolve_pages(NodeId id);
};

}  // namespace sluice::cuda::codegen
