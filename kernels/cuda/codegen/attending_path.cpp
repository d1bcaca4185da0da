#include "kernels/cuda/codegen/attending_path.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/round_up.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kLeastOwnRows = 3;  // with fewer, blocks that fill the GPU do not have many rows

}  // namespace

bool AttendingBlocks::have_rows_enough() const { return own_rows >= kLeastOwnRows; }

bool AttendingBlocks::are_worth_it() const { return have_rows_enough() && blocks >= least && blocks <= most; }

AttendingBlocks attending_blocks(int sequences, int kv_heads, int multiprocessors) {
  int own = kMostOwnRows;
  while (kv_heads % own != 0) --own;
  return {.blocks = sequences * kv_heads / own, .own_rows = own, .least = multiprocessors * 3 / 4, .most = multiprocessors};
}

int most_budget(const Node& selection, int pages) {
  const Attributes& a = selection.attributes;
  const int64_t middle = std::max<int64_t>(0, int64_t{pages} - a.first - a.last);
  if (selection.op == Op::kThreshold) return static_cast<int>(a.max_pages > 0 ? std::min<int64_t>(middle, a.max_pages) : middle);
  const auto share = static_cast<int64_t>(std::ceil(a.ratio * pages));
  const int64_t wanted = std::max(int64_t{a.k} + a.first + a.last, share) - a.first - a.last;
  return static_cast<int>(std::clamp<int64_t>(wanted, 0, middle));
}

bool may_attend(const AttendingKernel& kernel, int kv_heads, size_t most_shared) {
  constexpr int kLeastPages = 32;
  const int own = attending_blocks(1, kv_heads, 1).own_rows;
  return !kernel.name.empty() && own >= kLeastOwnRows &&
         static_cast<size_t>(kernel.shared_bytes(kLeastPages, own, 1)) < most_shared;
}

AttendingPath attending_path(const FlowLayout& layout, const AttendingKernel& kernel, std::span<const NodeId> leaves,
                             const AttendingBlocks& blocks, int pages, size_t most_shared) {
  if (kernel.name.empty() || !blocks.are_worth_it()) return {};
  int64_t room = 0;
  for (const NodeId id : leaves) {
    const Node& node = layout.node(id);
    room += node.attributes.first + node.attributes.last + (node.op == Op::kWindow ? 0 : most_budget(node, pages));
  }
  AttendingPath path{.blocks = blocks.blocks,
                     .own_rows = blocks.own_rows,
                     .held_pages = round_up(pages, 32),
                     .list_room = static_cast<int>(std::min<int64_t>(pages, room))};
  path.shared_bytes = static_cast<size_t>(kernel.shared_bytes(path.held_pages, path.own_rows, path.list_room));
  return path.shared_bytes <= most_shared ? path : AttendingPath{};
}

}  // namespace sluice::cuda::codegen
