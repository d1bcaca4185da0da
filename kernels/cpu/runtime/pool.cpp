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

template <typename Visit>
void CpuPool::for_each_token(int group, std::span<const int32_t> pages, int tokens, int kept, Visit&& visit) const {
  require_tokens(*this, group, pages, tokens);
  require_first(tokens, kept);
  const PageLayout& layout = this->layout(group);
  const size_t row = layout.head_dim * size_of(layout.kv);
  const size_t left_out = static_cast<size_t>(kept - tokens) * static_cast<size_t>(kv_heads()) * layout.head_dim;
  size_t at = 0;
  for (const int index : map().group(group).layers) {
    if (at > 0) at += left_out;
    for (int token = 0; token < tokens; ++token) {
      for (int head = 0; head < kv_heads(); ++head, at += layout.head_dim) {
        visit(layer(index).page(pages[token / layout.page], head) + token % layout.page * row, at);
      }
    }
  }
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

void CpuPool::read(int group, std::span<const int32_t> pages, int tokens, float* keys, float* values) const {
  const PageLayout& layout = this->layout(group);
  for_each_token(group, pages, tokens, tokens, [&](const std::byte* token, size_t at) {
    load_from(layout.kv, token + layout.key_offset, layout.head_dim, keys + at);
    load_from(layout.kv, token + layout.value_offset, layout.head_dim, values + at);
  });
}

void CpuPool::write(int group, std::span<const int32_t> pages, int tokens, const float* keys, const float* values, int kept) {
  const PageLayout& layout = this->layout(group);
  for_each_token(group, pages, tokens, kept, [&](std::byte* token, size_t at) {
    store_as(layout.kv, keys + at, layout.head_dim, token + layout.key_offset);
    store_as(layout.kv, values + at, layout.head_dim, token + layout.value_offset);
  });
}

}  // namespace sluice::cpu
