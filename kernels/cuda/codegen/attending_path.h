#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/kernels.h"

namespace sluice::cuda::codegen {

/// How one kernel scores, selects and attends.
struct AttendingPath {
  int blocks = 0;    // 0: there is no such kernel, or it would not be worth it
  int own_rows = 0;  // of a block
  int held_pages = 0;
  int list_room = 0;  // pages that a row may select
  size_t shared_bytes = 0;
};

/// The blocks of a step, whatever its kernel and the length of its rows.
struct AttendingBlocks {
  int blocks = 0;
  int own_rows = 0;  // KV heads of a sequence that each has
  int least = 0;     // that are worth it
  int most = 0;

  bool have_rows_enough() const;
  /// Whether they have rows enough, and fill the GPU without waiting for each other. Measured on an H200 with 128 blocks of four
  /// rows; fewer than three quarters of its multiprocessors, or blocks that wait, were not.
  bool are_worth_it() const;
};
AttendingBlocks attending_blocks(int sequences, int kv_heads, int multiprocessors);

/// Whether there is a path for some number of sequences of some length.
bool may_attend(const AttendingKernel& kernel, int kv_heads, size_t most_shared);

/// The path of sequences of at most `pages` pages each, where a block can have `most_shared` bytes of dynamic shared memory.
/// `leaves`: leaf_selections of the flow. Allocates nothing.
AttendingPath attending_path(const FlowLayout& layout, const AttendingKernel& kernel, std::span<const NodeId> leaves,
                             const AttendingBlocks& blocks, int pages, size_t most_shared);

/// How the blocks of a cluster score, select and attend: one cluster for each row.
struct ClusterAttendingPath {
  int cluster = 0;  // blocks; 0: there is no such kernel, or it would not be worth it
  int held_pages = 0;
  ClusterRings rings = {};
  int list_room = 0;
  size_t shared_bytes = 0;
};

/// By their blocks, the clusters that the GPU runs at once, each block with a multiprocessor to itself.
using ClustersAtOnce = std::array<int, kMostRowBlocks + 1>;

/// What a GPU has room for.
struct ClusterLimits {
  ClustersAtOnce at_once{};
  size_t most_shared = 0;  // bytes of dynamic shared memory of a block
  /// The same where two blocks may share a multiprocessor; none if registers do not let them.
  ClustersAtOnce in_pairs{};
  size_t most_shared_in_pairs = 0;
};

/// Whether there is a path for some number of rows of some length.
bool may_attend(const ClusterAttendingKernel& kernel, size_t most_shared);

/// The path of `rows` rows of at most `pages` pages each, where a GPU has room for so much; the rest as above. Allocates nothing.
ClusterAttendingPath cluster_attending_path(const FlowLayout& layout, const ClusterAttendingKernel& kernel,
                                            std::span<const NodeId> leaves, const ClusterLimits& limits, int rows, int pages);

}  // namespace sluice::cuda::codegen
