#pragma once

#include <vector>

#include "kernels/cuda/attention/decode_attention.h"
#include "kernels/cuda/attention/prefill_attention.h"
#include "kernels/cuda/pages/shifted_copy.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/runtime/side_stream.h"
#include "kernels/device.h"

namespace sluice::cuda {

/// Pages in device memory, zeros at first. K and V are bf16, e4m3 or e5m2. Its copies are in order with what else runs on the
/// stream, and whoever asks for a layer has it as work on `beside` leaves it.
class CudaPool final : public Pool {
 public:
  /// Throws InputError for pages that the kernels do not take, or without memory.
  CudaPool(const PoolMap& map, Stream stream, LayerStream& beside);

  void clear_pages(int group, std::span<const int32_t> pages) override;
  void move_tokens(int group, std::span<const TokenMove> moves) override;
  void copy_pages(int group, std::span<const int32_t> sources, std::span<const int32_t> targets) override;
  /// Where K and V lie in memory of the host, these two go through memory on the device that lives as long as the call.
  void read_layer(int index, std::span<const int32_t> pages, int tokens, float* keys, float* values) const override;
  void write_layer(int index, std::span<const int32_t> pages, int tokens, std::span<const int32_t> slots, const float* keys,
                   const float* values) override;

  /// Of a group that has K and V; `frequencies` as ShiftedRows has them.
  ShiftedRows shifted_rows(GroupLayers of, const float* frequencies) const;
  /// K and V.
  LayerPages layer(int index) const;
  /// Fields of a layer, in a group that has them alone: block (page, KV head) at this + (page * kv_heads + head) *
  /// layout(group).bytes.
  std::byte* fields(int group, int layer) const {
    beside_.join(stream_);  // its pages may have been those of layers
    return at(map().field_place_of(group, layer));
  }
  int group_of(int layer) const { return map().place_of(layer).group; }
  const PageLayout& layout_of(int layer) const { return layout(group_of(layer)); }
  const DecodeAttention& decode_attention(int layer) const {
    beside_.join(group_of(layer), layer, stream_);
    return decode_[layer];
  }
  const PrefillAttention& prefill_attention(int layer) const {
    beside_.join(group_of(layer), layer, stream_);
    return prefill_[layer];
  }

 private:
  PageBlocks blocks_of(int group) const;
  TokenRows rows_of(int group) const;
  std::byte* at(const PoolMap::Place& place) const { return memory_.as<std::byte>() + map().layer_offset(place); }
  /// Numbers of K of `tokens` tokens in one layer.
  size_t numbers(int tokens) const { return static_cast<size_t>(tokens) * kv_heads() * layout().head_dim; }

  Stream stream_;
  LayerStream& beside_;
  DeviceMemory memory_;                    // to free it waits for whatever runs
  std::vector<DecodeAttention> decode_;    // [layers]
  std::vector<PrefillAttention> prefill_;  // [layers]
};

}  // namespace sluice::cuda
