#pragma once

#include "kernels/cuda/codegen/held_row_writer.h"
#include "kernels/cuda/codegen/kernels.h"

namespace sluice::cuda::codegen {

/// Writes where blocks that have several rows each keep what they hold of them (attending.cuh), for all of a block's crews.
class OwnRowsWriter : public HeldRowWriter {
 protected:
  OwnRowsWriter(const FlowLayout& layout, Writer& writer, const Crew& crew) : HeldRowWriter(layout, writer, crew) {
    compact_queries_ = true;  // there are those of several rows
  }
  ~OwnRowsWriter() = default;

  /// A warp's shared memory: stages for tiles of fields, in whose place there are tiles of K and V later.
  struct RingShape {
    int64_t stages = 0;
    int64_t stage_bytes = 0;
    int64_t bytes = 0;
  };
  RingShape ring_shape() const;
  /// Where everything lies in the memory of a block.
  AttendingKernel place_memory();
  /// The queries of a row: what products read, and what they were made of.
  int64_t query_numbers() const;
  void declare_own_row();
  /// Names of the queries and scores of row `own`.
  void place_own_row();
};

}  // namespace sluice::cuda::codegen
