#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/cuda/codegen/values.h"

namespace sluice::cuda::codegen {

class LaneWriter;

/// A reduction over channels whose paged operands lie in blocks: each page is read by dim / 8 neighbouring lanes, eight channels
/// (16 bytes of bf16) each, and their sums are combined by shuffles. Pieces are on their way through a ring in shared memory,
/// `uint32_t ring`, long before they are used.
class LaneReduction {
 public:
  explicit LaneReduction(std::unique_ptr<LaneWriter> writer);
  LaneReduction(LaneReduction&& other) noexcept;
  ~LaneReduction();

  /// Shared memory of a block; 0: none.
  int64_t ring_bytes() const;
  /// Statements that send for the first pages of a tile: as early as its `ids` are known.
  void begin_tile(Writer& writer) const;
  /// Statements that compute the tile, after those of `begin_tile`.
  void write(Writer& writer) const;

 private:
  std::unique_ptr<LaneWriter> writer_;
};

/// If node `id` can be computed so: all that it reads are elementwise functions of blocks' channels, of the query, and of numbers
/// without channels.
std::optional<LaneReduction> find_lane_reduction(const KernelScope& scope, NodeId id);

}  // namespace sluice::cuda::codegen
