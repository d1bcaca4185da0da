#pragma once

#include <string>
#include <string_view>

#include "kernels/cuda/codegen/held_row_writer.h"
#include "kernels/cuda/codegen/kernels.h"

namespace sluice::cuda::codegen {

/// Writes what kernels share in which the blocks of a cluster score, select and attend (cluster_attending.cuh).
class ClusterWriter : public HeldRowWriter {
 protected:
  static constexpr int64_t kNumberBytes = 4;

  ClusterWriter(const FlowLayout& layout, Writer& writer) : HeldRowWriter(layout, writer, kRowBlocks) { most_groups_ = 4; }
  ~ClusterWriter() = default;

  /// Opens the kernel, whose blocks have scores and places in the pool of the whole row; these end where `row_ids` +
  /// `a.held_pages` is. `most_blocks`: that are to find registers on a multiprocessor.
  ClusterAttendingKernel open_kernel(const char* name, int most_blocks = 1);
  /// Rings of tiles of values, one a warp, behind `end` of what is held, and what merges where they are.
  void place_rings(std::string_view end);
  /// And the ring of what is scored; asks for the map of K and V.
  void begin_barriers();
  /// Behind `declare_share` and `write_asking`: waits until earlier kernels have written the row's sequence. `ask` is called as
  /// soon as may be.
  void wait_for_row(std::string_view ask);
  /// What a warp attends to, from then on: it asks for its query once more.
  void declare_attended();
  /// `what`, a Selecting, of the selection by score.
  void declare_selecting(NodeId scored);
  /// By the last `threads` threads of the block, `crew`: selects. `take` is the text of what is done with (rank, page); `chosen`
  /// is how many.
  void select_whole_row(std::string_view threads, std::string_view crew, const std::string& take);
  /// Lets the copy engine write where something was, which the generated text names, behind the next barrier of the block.
  void release_memory(std::string_view where);
  /// The same, and that barrier.
  void publish_memory(std::string_view where);
  /// Merges what the warps have in `attended`, then the blocks, and closes the kernel.
  void merge_attended(std::string_view attended);
};

}  // namespace sluice::cuda::codegen
