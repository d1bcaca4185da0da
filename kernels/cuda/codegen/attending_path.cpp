#include "kernels/cuda/codegen/attending_path.h"

#include <algorithm>
#include <optional>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/selection_plan.h"
#include "kernels/cuda/primitives/round_up.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kLeastOwnRows = 3;  // with fewer, blocks that fill the GPU do not have many rows

constexpr int kLeastPages = 32;  // of a row

/// Pages that a row of `pages` may select.
int most_selected(const FlowLayout& layout, std::span<const NodeId> leaves, int pages) {
  int64_t room = 0;
  for (const NodeId id : leaves) {
    const Node& node = layout.node(id);
    room += node.attributes.first + node.attributes.last + (node.op == Op::kWindow ? 0 : most_budget(node, pages));
  }
  return static_cast<int>(std::min<int64_t>(pages, room));
}

/// As much as fits of what rings may have. Where not all summaries do they come in turn, unless pages are heavy: more warps than
/// these score them in less time than is saved.
std::optional<ClusterRings> rings_of(const ClusterAttendingKernel& kernel, int pages, int blocks, int room, size_t most_shared) {
  const auto fits = [&](const ClusterRings& rings) {
    return static_cast<size_t>(kernel.shared_bytes(pages, blocks, rings, room)) <= most_shared;
  };
  const int turns = kernel.most_summary_turns(pages, blocks);
  ClusterRings rings{.value_stages = kernel.most_value_stages(), .summary_turns = turns};
  if (!fits(rings)) {
    if (turns < 2 || kernel.scored_bytes >= kHeavyPage) return {};
    // While one tile of fields is scored the next is on its way. Summaries come while pages are scored and selected, K and V
    // behind them: two of each keep memory busy.
    rings = {.stages = 2, .value_stages = 1, .summary_turns = 1};
    if (!fits(rings)) return {};
    const auto grow = [&](int ClusterRings::*number, int most) {
      ClusterRings larger = rings;
      while (++(larger.*number) <= most && fits(larger)) rings = larger;
    };
    grow(&ClusterRings::summary_turns, 2);
    grow(&ClusterRings::value_stages, kernel.most_value_stages());
    grow(&ClusterRings::summary_turns, turns - 1);
  }
  for (ClusterRings deeper = rings; ++deeper.stages <= kMostStages && fits(deeper);) rings = deeper;
  return rings;
}

/// Rings in which all that a block reads has its place from the start. A row attends to `opened` pages, of `tiles` tiles each.
ClusterRings rings_of_all(const ClusterAttendingKernel& kernel, int pages, int blocks, int opened, int tiles) {
  const int warps = blocks * kAttenderThreads / 32;
  return {.stages = std::max(1, kernel.most_scored_tiles(pages, blocks)),
          .value_stages = std::max(1, (opened + warps - 1) / warps) * tiles,
          .summary_turns = kernel.most_summary_turns(pages, blocks)};
}

int page_tiles(const FlowLayout& layout) {
  constexpr int kTileTokens = 16;
  return (layout.plan.layout.page + kTileTokens - 1) / kTileTokens;
}

/// The blocks of a cluster if two of them may share a multiprocessor, though there is one for each: where clusters that are alone
/// do not find their places, since a cluster needs as many that are near each other. 0: there are none.
int cluster_in_pairs(const ClusterLimits& limits, int rows) {
  int found = 0;
  for (int cluster = 1; cluster <= kMostRowBlocks; ++cluster) {
    if (rows * cluster <= limits.at_once[1] && rows <= limits.in_pairs.at(static_cast<size_t>(cluster))) found = cluster;
  }
  return found;
}

}  // namespace

bool AttendingBlocks::have_rows_enough() const { return own_rows >= kLeastOwnRows; }

bool AttendingBlocks::are_worth_it() const { return have_rows_enough() && blocks >= least && blocks <= most; }

AttendingBlocks attending_blocks(int sequences, int kv_heads, int multiprocessors) {
  int own = kMostOwnRows;
  while (kv_heads % own != 0) --own;
  return {.blocks = sequences * kv_heads / own, .own_rows = own, .least = multiprocessors * 3 / 4, .most = multiprocessors};
}

bool may_attend(const AttendingKernel& kernel, int kv_heads, size_t most_shared) {
  const int own = attending_blocks(1, kv_heads, 1).own_rows;
  return !kernel.name.empty() && own >= kLeastOwnRows &&
         static_cast<size_t>(kernel.shared_bytes(kLeastPages, own, 1)) < most_shared;
}

AttendingPath attending_path(const FlowLayout& layout, const AttendingKernel& kernel, std::span<const NodeId> leaves,
                             const AttendingBlocks& blocks, int pages, size_t most_shared) {
  if (kernel.name.empty() || !blocks.are_worth_it()) return {};
  AttendingPath path{.blocks = blocks.blocks,
                     .own_rows = blocks.own_rows,
                     .held_pages = round_up(pages, 32),
                     .list_room = most_selected(layout, leaves, pages)};
  path.shared_bytes = static_cast<size_t>(kernel.shared_bytes(path.held_pages, path.own_rows, path.list_room));
  return path.shared_bytes <= most_shared ? path : AttendingPath{};
}

bool may_attend(const ClusterAttendingKernel& kernel, size_t most_shared) {
  return !kernel.name.empty() && rings_of(kernel, kLeastPages, 1, 1, most_shared).has_value();
}

ClusterAttendingPath cluster_attending_path(const FlowLayout& layout, const ClusterAttendingKernel& kernel,
                                            std::span<const NodeId> leaves, const ClusterLimits& limits, int rows, int pages) {
  if (kernel.name.empty() || pages > kMostHeldPages) return {};
  // Measured on an H200: a block scores 2048 pages, and attends, in the time of several kernels; with fewer pages it takes less.
  constexpr int kMostScored = 2048;
  ClusterAttendingPath path{.held_pages = round_up(pages, 32), .list_room = most_selected(layout, leaves, pages)};
  // How many blocks share an output decides in which order it is summed up, and `pages` is but a bound, the same one for steps
  // that are replayed.
  for (int cluster = 1; cluster <= kMostRowBlocks; ++cluster) {
    if (rows <= limits.at_once.at(static_cast<size_t>(cluster))) path.cluster = cluster;
  }
  if (path.cluster == 0 || pages > path.cluster * kMostScored) return {};
  if (const int more = cluster_in_pairs(limits, rows); more > path.cluster) {
    const ClusterRings all = rings_of_all(kernel, path.held_pages, more, path.list_room, page_tiles(layout));
    const auto shared = static_cast<size_t>(kernel.shared_bytes(path.held_pages, more, all, path.list_room));
    if (all.stages <= kMostStages && all.value_stages <= kernel.most_value_stages() && shared <= limits.most_shared_in_pairs) {
      path.cluster = more;
      path.rings = all;
      path.shared_bytes = shared;
      return path;
    }
  }
  const std::optional<ClusterRings> rings = rings_of(kernel, path.held_pages, path.cluster, path.list_room, limits.most_shared);
  if (!rings) return {};
  path.rings = *rings;
  path.shared_bytes = static_cast<size_t>(kernel.shared_bytes(path.held_pages, path.cluster, path.rings, path.list_room));
  return path;
}

}  // namespace sluice::cuda::codegen
