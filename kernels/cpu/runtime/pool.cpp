#include "kernels/cpu/runtime/pool.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/cpu/simd/bfloat16.h"
#include "kernels/device/checks.h"

namespace sluice::cpu {
namespace {

size_t checked_bytes(int layers, int kv_heads, int pages, const PageLayout& layout) {
  require_kept(layout);
  return pool_bytes(layers, kv_heads, pages, layout);
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

CpuPool::CpuPool(int layers, int kv_heads, int pages, const PageLayout& layout)
    : layout_(layout),
      layers_(layers),
      kv_heads_(kv_heads),
      pages_(pages),
      memory_(checked_bytes(layers, kv_heads, pages, layout)) {}

template <typename Visit>
void CpuPool::for_each_token(std::span<const int32_t> pages, int tokens, Visit&& visit) const {
  require_tokens(*this, pages, tokens);
  const int dim = layout_.head_dim;
  const size_t row = dim * size_of(layout_.kv);
  size_t at = 0;
  for (int layer = 0; layer < layers_; ++layer) {
    for (int token = 0; token < tokens; ++token) {
      for (int head = 0; head < kv_heads_; ++head, at += dim) {
        visit(base(layer, head) + pages[token / layout_.page] * page_stride() + token % layout_.page * row, at);
      }
    }
  }
}

void CpuPool::copy_pages(std::span<const int32_t> sources, std::span<const int32_t> targets) {
  require_copies(*this, sources, targets);
  for (int layer = 0; layer < layers_; ++layer) {
    std::byte* const pages = base(layer, 0);
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i] == targets[i]) continue;
      std::memcpy(pages + targets[i] * page_stride(), pages + sources[i] * page_stride(), page_stride());
    }
  }
}

void CpuPool::read(std::span<const int32_t> pages, int tokens, float* keys, float* values) const {
  for_each_token(pages, tokens, [&](const std::byte* token, size_t at) {
    load_from(layout_.kv, token + layout_.key_offset, layout_.head_dim, keys + at);
    load_from(layout_.kv, token + layout_.value_offset, layout_.head_dim, values + at);
  });
}

void CpuPool::write(std::span<const int32_t> pages, int tokens, const float* keys, const float* values) {
  for_each_token(pages, tokens, [&](std::byte* token, size_t at) {
    store_as(layout_.kv, keys + at, layout_.head_dim, token + layout_.key_offset);
    store_as(layout_.kv, values + at, layout_.head_dim, token + layout_.value_offset);
  });
}

}  // namespace sluice::cpu
