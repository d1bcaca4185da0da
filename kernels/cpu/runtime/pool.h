#pragma once

#include "kernels/cpu/runtime/memory.h"
#include "kernels/device.h"

namespace sluice::cpu {

/// Throws InputError for a KV type other than f32 and bf16, and for heads that are no multiple of 8 channels.
void require_kept(const PageLayout& layout);

/// Pages in host memory, [layer, page, kv_head]: the heads of one page lie together, so that copying a page is one copy a layer.
class CpuPool final : public Pool {
 public:
  /// Throws InputError for what `require_kept` refuses, or without memory.
  CpuPool(int layers, int kv_heads, int pages, const PageLayout& layout);

  const PageLayout& layout() const override { return layout_; }
  int layers() const override { return layers_; }
  int pages() const override { return pages_; }
  int kv_heads() const override { return kv_heads_; }
  size_t bytes() const override { return memory_.bytes(); }
  void copy_pages(std::span<const int32_t> sources, std::span<const int32_t> targets) override;
  void read(std::span<const int32_t> pages, int tokens, float* keys, float* values) const override;
  void write(std::span<const int32_t> pages, int tokens, const float* keys, const float* values) override;

  /// Page `p` of a layer and KV head starts at base(layer, head) + p * page_stride().
  std::byte* base(int layer, int kv_head) const {
    return memory_.at((static_cast<size_t>(layer) * pages_ * kv_heads_ + kv_head) * layout_.bytes);
  }
  size_t page_stride() const { return kv_heads_ * layout_.bytes; }

 private:
  /// Calls `visit(token, at)` for every layer, token and KV head: K lies at token + key_offset in the pool, and its numbers from
  /// `at` on in float32 [layers, tokens, kv_heads, dim].
  template <typename Visit>
  void for_each_token(std::span<const int32_t> pages, int tokens, Visit&& visit) const;

  PageLayout layout_;
  int layers_;
  int kv_heads_;
  int pages_;
  MappedMemory memory_;
};

/// Stores `count` float32 numbers in `type` (f32 or bf16).
void store_as(DataType type, const float* source, int count, std::byte* target);
/// Widens `count` numbers of `type` (f32 or bf16).
void load_from(DataType type, const std::byte* source, int count, float* target);

}  // namespace sluice::cpu
