#include "kernels/cpu/runtime/pool.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/cpu/simd/bfloat16.h"
#include "kernels/device/checks.h"

namespace sluice::cpu {
namespace {

const PoolMap& checked(const PoolMap& map) {
  for (int group = 0; group < map.groups(); ++group) require_kept(map.layout(group));
  return map;
}

/// Of a token's keys, or values, in a page of one KV head.
size_t row_bytes(const PageLayout& layout) { return layout.head_dim * size_of(layout.kv); }

}  // namespace

void require_kept(const PageLayout& layout) {
  if (layout.kv != DataType::kF32 && layout.kv != DataType::kBF16) {
    throw InputError(fmt::format("the CPU keeps KV as bf16 or f32, not as {}", name_of(layout.kv)),
                     "use bf16 (kv = \"bf16\" in a flow, or --kv bf16), or --device cuda");
  }
  if (layout.head_dim < 8 || layout.head_dim % 8 != 0) {
    throw InputError(fmt::format("the CPU needs a head dimension that is a multiple of 8, not {}", layout.head_dim));
  }
}

void copy_token(const PageLayout& layout, const std::byte* from, int from_token, std::byte* to, int to_token) {
  const size_t row = row_bytes(layout);
  for (const size_t part : {layout.key_offset, layout.value_offset})
    std::memcpy(to + part + to_token * row, from + part + from_token * row, row);
}

void store_as(DataType type, const float* source, int count, std::byte* target) {
  if (type == DataType::kF32) {
    std::memcpy(target, source, count * sizeof(float));
    return;
  }
  auto* narrow = reinterpret_cast<uint16_t*>(target);
  for (int i = 0; i < count; ++i) narrow[i] = round_to_bf16(source[i]);
}

void load_from(DataType type, const std::byte* source, int count, float* target) {
  if (type == DataType::kF32) {
    std::memcpy(target, source, count * sizeof(float));
    return;
  }
  const auto* narrow = reinterpret_cast<const uint16_t*>(source);
  for (int i = 0; i < count; ++i) target[i] = widen(narrow[i]);
}

CpuPool::CpuPool(const PoolMap& map) : Pool(checked(map)), memory_(map.bytes()) {
  for (int layer = 0; layer < map.layers(); ++layer) {
    const PoolMap::Place place = map.place_of(layer);
    layers_.push_back({blocks_at(place), layout(place.group), place.group});
  }
}

LayerBlocks CpuPool::blocks_at(const PoolMap::Place& place) const {
  return {memory_.at(map().layer_offset(place)), map().page_bytes(place.group), layout(place.group).bytes};
}

void CpuPool::copy_pages(int group, std::span<const int32_t> sources, std::span<const int32_t> targets) {
  require_copies(*this, group, sources, targets);
  for (int rank = 0; rank < static_cast<int>(map().group(group).layers.size()); ++rank) {
    const LayerBlocks pages = blocks_at({group, rank});
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i] == targets[i]) continue;
      std::memcpy(pages.page(targets[i], 0), pages.page(sources[i], 0), map().page_bytes(group));
    }
  }
}

void CpuPool::clear_pages(int group, std::span<const int32_t> pages) {
  require_pages(*this, group, pages);
  for (int rank = 0; rank < static_cast<int>(map().group(group).layers.size()); ++rank) {
    const LayerBlocks blocks = blocks_at({group, rank});
    for (const int32_t page : pages) std::memset(blocks.page(page, 0), 0, map().page_bytes(group));
  }
}

void CpuPool::move_tokens(int group, std::span<const TokenMove> moves) {
  require_moves(*this, group, moves);
  const PageLayout& layout = this->layout(group);
  for (const int index : map().group(group).layers) {
    for (const TokenMove& move : moves) {
      for (int head = move.head; head < kv_heads(); head += move.heads) {
        copy_token(layout, layer(index).page(move.from_page, head), move.from_token, layer(index).page(move.to_page, head),
                   move.to_token);
      }
    }
  }
}

void CpuPool::read_layer(int index, std::span<const int32_t> pages, int tokens, float* keys, float* values) const {
  const LayerPages& from = layer(index);
  require_tokens(*this, from.group, pages, tokens);
  const PageLayout& layout = from.layout;
  for (int token = 0; token < tokens; ++token) {
    for (int head = 0; head < kv_heads(); ++head, keys += layout.head_dim, values += layout.head_dim) {
      const std::byte* row = from.page(pages[token / layout.page], head) + token % layout.page * row_bytes(layout);
      load_from(layout.kv, row + layout.key_offset, layout.head_dim, keys);
      load_from(layout.kv, row + layout.value_offset, layout.head_dim, values);
    }
  }
}

void CpuPool::write_layer(int index, std::span<const int32_t> pages, int tokens, std::span<const int32_t> slots,
                          const float* keys, const float* values) {
  const LayerPages& to = layer(index);
  require_slots(*this, to.group, pages, tokens, slots);
  const PageLayout& layout = to.layout;
  const int heads = slots.empty() || tokens == 0 ? 1 : static_cast<int>(slots.size()) / tokens;
  for (int token = 0; token < tokens; ++token) {
    for (int head = 0; head < kv_heads(); ++head, keys += layout.head_dim, values += layout.head_dim) {
      const int slot = slots.empty() ? token : slots[token * heads + head % heads];
      if (slot < 0) continue;
      std::byte* row = to.page(pages[slot / layout.page], head) + slot % layout.page * row_bytes(layout);
      store_as(layout.kv, keys, layout.head_dim, row + layout.key_offset);
      store_as(layout.kv, values, layout.head_dim, row + layout.value_offset);
    }
  }
}

}  // namespace sluice::cpu
