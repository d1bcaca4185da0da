#pragma once

#include <vector>

#include "kernels/cpu/runtime/memory.h"
#include "kernels/device.h"

namespace sluice::cpu {

/// Throws InputError for a KV type other than f32 and bf16, and for heads that are no multiple of 8 channels.
void require_kept(const PageLayout& layout);

/// Blocks of one layer of a pool: that of page `p` and KV head `h` begins at base + p * page_stride + h * block_bytes.
struct LayerBlocks {
  std::byte* base = nullptr;
  size_t page_stride = 0;
  size_t block_bytes = 0;

  std::byte* page(int32_t id, int kv_head) const { return base + id * page_stride + kv_head * block_bytes; }
};

/// Those with K and V.
struct LayerPages : LayerBlocks {
  PageLayout layout;
  int group = 0;  // that the layer is in
};

/// Pages in host memory. The heads of one page lie together, so that copying a page is one copy a layer.
class CpuPool final : public Pool {
 public:
  /// Throws InputError for what `require_kept` refuses, or without memory.
  explicit CpuPool(const PoolMap& map);

  void clear_pages(int group, std::span<const int32_t> pages) override;
  void move_tokens(int group, std::span<const TokenMove> moves) override;
  void copy_pages(int group, std::span<const int32_t> sources, std::span<const int32_t> targets) override;
  void read_layer(int index, std::span<const int32_t> pages, int tokens, float* keys, float* values) const override;
  void write_layer(int index, std::span<const int32_t> pages, int tokens, std::span<const int32_t> slots, const float* keys,
                   const float* values) override;

  /// K and V.
  const LayerPages& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  /// Fields of a layer, in a group that has them alone.
  LayerBlocks fields(int group, int layer) const { return blocks_at(map().field_place_of(group, layer)); }

 private:
  LayerBlocks blocks_at(const PoolMap::Place& place) const;
  MappedMemory memory_;
  std::vector<LayerPages> layers_;
};

/// Copies K and V of a token from one page of a KV head to another.
void copy_token(const PageLayout& layout, const std::byte* from, int from_token, std::byte* to, int to_token);
/// Stores `count` float32 numbers in `type` (f32 or bf16).
void store_as(DataType type, const float* source, int count, std::byte* target);
/// Widens `count` numbers of `type` (f32 or bf16).
void load_from(DataType type, const std::byte* source, int count, float* target);

}  // namespace sluice::cpu
