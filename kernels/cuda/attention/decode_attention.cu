#include "kernels/cuda/attention/decode_attention.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/attention/decode_kernel.cuh"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

/// Tokens that a tensor copy brings.
int box_tokens(int page) { return page % decode::kTileTokens == 0 ? decode::kTileTokens : 8; }

}  // namespace

DecodeAttention::DecodeAttention(const PagedKv& kv)
    : kv_(kv),
      blocks_(std::min(multiprocessors(), decode::kMostBlocks)),
      map_(map_blocks(kv, box_tokens(kv.layout.page), true)) {}

size_t DecodeAttention::counter_bytes(const DecodeShape& shape) const {
  return (static_cast<size_t>(shape.sequences) * kv_.kv_heads * sizeof(int) + 255) / 256 * 256;
}

size_t DecodeAttention::workspace_bytes(const DecodeShape& shape) const {
  const size_t partials = static_cast<size_t>(blocks_) * 2 * decode::part_floats(shape.group, kv_.layout.head_dim);
  return counter_bytes(shape) + partials * sizeof(float);
}

float* DecodeAttention::partials_in(void* workspace, const DecodeShape& shape) const {
  return reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + counter_bytes(shape));
}

void DecodeAttention::run(const DecodeShape& shape, const PageLists& lists, const void* q, void* out, float* log_sums,
                          void* workspace, Stream stream, const TokenLogits& logits) const {
  if (shape.group < 1 || shape.group > 16) throw InternalError("a group of " + std::to_string(shape.group) + " query heads");
  const size_t rows = static_cast<size_t>(shape.sequences) * kv_.kv_heads;
  const decode::Arguments a{
      .pages = lists.pages,
      .starts = lists.starts,
      .tokens = lists.tokens,
      .q = static_cast<const uint16_t*>(q),
      .query_stride = shape.query_stride > 0 ? shape.query_stride : int64_t{kv_.kv_heads} * shape.group * kv_.layout.head_dim,
      .out = static_cast<uint16_t*>(out),
      .log_sums = log_sums,
      .partials = partials_in(workspace, shape),
      .arrived = static_cast<int*>(workspace),
      .sequences = shape.sequences,
      .kv_heads = kv_.kv_heads,
      .group = shape.group,
      .per_head = lists.per_head,
      .list_stride = lists.stride,
      .ready = lists.are_ready,
      .scale = shape.scale * kLog2E,
      .by_kv_heads = Divisor(kv_.kv_heads),
      .by_blocks = Divisor(blocks_),
      .most_parts = blocks_ / static_cast<int>(std::max<size_t>(rows, 1)),
      .paired = blocks_ % 2 == 0 && blocks_ / 2 >= static_cast<int>(rows) && blocks_ / 3 < static_cast<int>(rows),
      .by_page_boxes = Divisor(kv_.layout.page / box_tokens(kv_.layout.page)),
      .mask_indptr = lists.mask_indptr,
      .masks = lists.masks,
      .mask_heads = lists.mask_heads,
      .logits = logits.numbers,
      .logit_stride = logits.stride};
  const CUtensorMap map = to_cuda(map_);
  if (logits.numbers != nullptr) return decode::launch_layout<decode::Lists::kLogits>(kv_.layout, map, a, blocks_, stream);
  if (lists.mask_indptr == nullptr) return decode::launch_layout<decode::Lists::kWhole>(kv_.layout, map, a, blocks_, stream);
  decode::launch_layout<decode::Lists::kMasked>(kv_.layout, map, a, blocks_, stream);
}

}  // namespace sluice::cuda
