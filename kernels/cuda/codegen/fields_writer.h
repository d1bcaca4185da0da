#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/codegen/node_writer.h"

namespace sluice::cuda::codegen {

/// Writes what computes the fields of a page, `block`, in memory by the name of `tile`. Where fields have pages of their own,
/// that of this page is `field_block`.
class FieldsWriter final : public NodeWriter {
 public:
  /// `threads`: of the crew, so that values that do not read each other are computed by different ones. 0: they are not.
  FieldsWriter(const FlowLayout& layout, Writer& writer, const Crew& crew, int threads = 0);

  /// That `tile` is to have.
  int64_t numbers() const { return tile_numbers_; }
  void write();
  /// The same; if `condition`, fields are stored as well where `place` says (a pointer; "": nowhere).
  void write(std::string_view condition, const std::function<std::string(size_t field)>& place);

 private:
  /// Whether the value reads one that was computed since the last barrier.
  bool reads_unpublished(NodeId id) const;
  /// Lets other threads than the last ones do what comes next: `count` elements.
  void take_threads(int64_t count);
  /// A barrier, if something was computed since the last one.
  void publish();

  std::vector<NodeId> order_;      // of nodes in the tile
  const int threads_;              // of the crew; 0: that is known to the kernel alone
  std::vector<bool> unpublished_;  // by node: computed since the last barrier
  int64_t busy_threads_ = 0;       // since then
  std::string thread_;             // the text of crew_.thread
};

}  // namespace sluice::cuda::codegen
