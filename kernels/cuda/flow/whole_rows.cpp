#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numbers>

#include "kernels/cuda/flow/flow.h"

// The index stage in one kernel that holds rows, and in one that attends to what it selects.

namespace sluice::cuda {

void CudaFlow::launch_whole_rows(const FlowPath& path, const Selection& selection, const FlowSequences& sequences,
                                 FlowArguments arguments, Stream stream) {
  if (arguments.row_count - 1 > std::numeric_limits<int32_t>::max() / std::max<int64_t>(selection.stride, 1)) {
    throw InternalError(
        fmt::format("the pages of {} rows of {} pages do not fit 32 bits", arguments.row_count, selection.stride));
  }
  arguments.refreshes = sequences.stale.count > 0 ? 1 : 0;
  arguments.behind_refresh |= arguments.refreshes;
  arguments.held_pages = path.held_pages;
  arguments.stages = path.stages;
  if (sequences.wants_scores || !layout_.attended.empty()) arguments.scores = rows_.as<float>();
  arguments.score_stride = row_stride();
  arguments.list_positions = selection.positions;
  arguments.list_pages = selection.pages;
  arguments.list_stride = selection.stride;
  arguments.list_starts = selection.starts;
  arguments.list_tokens = selection.tokens;
  arguments.list_counts = selection.counts;
  arguments.attended = selection.attended;
  arguments.available = selection.available;

  void* parameters[] = {&arguments};
  const LoadedRow& loaded = path.threads == kRowThreads ? row_kernel_ : small_row_kernel_;
  loaded.launch_clusters(path.cluster, arguments.row_count, path.threads, path.shared_bytes, parameters, stream);
}

bool CudaFlow::attend(const FlowBlocks& blocks, const FlowSequences& sequences, const PageCounters& counters,
                      const FlowAttention& attention, Stream stream) {
  require(blocks, sequences);
  reserve(sequences.count, sequences.most_pages);
  FlowArguments arguments = index_arguments(blocks, sequences);
  arguments.refreshes = sequences.stale.count > 0 ? 1 : 0;
  arguments.behind_refresh |= arguments.refreshes;
  arguments.attended = counters.attended;
  arguments.available = counters.available;
  AttentionArguments given{.map = {},
                           .query = static_cast<const uint16_t*>(attention.query),
                           .query_stride = attention.query_stride,
                           .out = static_cast<uint16_t*>(attention.out),
                           .scale = attention.scale * std::numbers::log2e_v<float>,
                           .own_rows = 1,
                           .list_room = 0,
                           .ring_bytes = 0,
                           .value_stages = 0,
                           .summary_turns = 0};
  const TensorMap& map = attention.attention.map();
  static_assert(sizeof(map.bytes) == sizeof(given.map));
  std::memcpy(given.map, map.bytes, sizeof(given.map));
  if (attend_several_rows(sequences, given, arguments, stream)) return true;
  const codegen::ClusterAttendingPath path = cluster_attending_path(sequences.count, sequences.most_pages);
  if (path.cluster == 0) return false;
  arguments.held_pages = path.held_pages;
  arguments.stages = path.rings.stages;
  given.list_room = path.list_room;
  given.ring_bytes = static_cast<int>(source_.cluster_attending.ring_bytes(path.rings));
  given.value_stages = path.rings.value_stages;
  given.summary_turns = path.rings.summary_turns;
  void* parameters[] = {&given, &arguments};
  cluster_attending_kernel_.launch_clusters(path.cluster, arguments.row_count, kAttenderThreads, path.shared_bytes, parameters,
                                            stream);
  return true;
}

bool CudaFlow::attend_several_rows(const FlowSequences& sequences, AttentionArguments given, FlowArguments arguments,
                                   Stream stream) const {
  if (!sequences.even) return false;  // a block has all of its rows to itself, so they are to be about as long as those of others
  const codegen::AttendingPath path = attending_path(sequences.count, sequences.most_pages);
  if (path.blocks == 0) return false;
  arguments.held_pages = path.held_pages;
  given.own_rows = path.own_rows;
  given.list_room = path.list_room;
  void* parameters[] = {&given, &arguments};
  cudaLaunchAttribute overlap = overlap_attribute();
  const dim3 grid(static_cast<unsigned>(arguments.kv_heads / path.own_rows), static_cast<unsigned>(sequences.count));
  const cudaLaunchConfig_t config = configure(grid, kAttendingThreads, path.shared_bytes, {&overlap, 1}, stream);
  SLUICE_CHECK_CUDA(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(attending_kernel_.kernel), parameters));
  return true;
}

}  // namespace sluice::cuda
