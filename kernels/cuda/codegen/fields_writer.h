#pragma once

#include <vector>

#include "kernels/cuda/codegen/node_writer.h"

namespace sluice::cuda::codegen {

/// Writes what computes the fields of a page, `block`, in memory by the name of `tile`. Where fields have pages of their own,
/// that of this page is `field_block`.
class FieldsWriter final : public NodeWriter {
 public:
  FieldsWriter(const FlowLayout& layout, Writer& writer, const Crew& crew);

  /// That `tile` is to have.
  int64_t numbers() const { return tile_numbers_; }
  void write();

 private:
  std::vector<NodeId> order_;  // of nodes in the tile
};

}  // namespace sluice::cuda::codegen
