#pragma once

#include <vector>

#include "kernels/cuda/attention/decode_attention.h"
#include "kernels/cuda/attention/prefill_attention.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device.h"

namespace sluice::cuda {

/// Pages in device memory, [layer, page, kv_head], zeros at first. K and V are
/// bf16, e4m3 or e5m2. Its copies are in order with what else runs on the stream.
class CudaPool final : public Pool {
 public:
  /// Throws InputError for pages that the kernels do not take, or without
  /// memory.
  CudaPool(int layers, int kv_heads, int pages, const PageLayout& layout, Stream stream);

  const PageLayout& layout() const override { return layout_; }
  int layers() const override { return layers_; }
  int pages() const override { return pages_; }
  int kv_heads() const override { return kv_heads_; }
  size_t bytes() const override { return memory_.bytes(); }
  void copy_pages(std::span<const int32_t> sources, std::span<const int32_t> targets) override;
  /// These two go through memory on the device that lives as long as the call.
  void read(std::span<const int32_t> pages, int tokens, float* keys, float* values) const override;
  void write(std::span<const int32_t> pages, int tokens, const float* keys, const float* values) override;

  LayerPages layer(int index) const;
  const DecodeAttention& decode_attention(int layer) const { return decode_[layer]; }
  const PrefillAttention& prefill_attention(int layer) const { return prefill_[layer]; }

 private:
  size_t page_stride() const { return kv_heads_ * layout_.bytes; }
  size_t layer_stride() const { return pages_ * page_stride(); }
  /// Numbers of K of `tokens` tokens in one layer.
  size_t numbers(int tokens) const { return static_cast<size_t>(tokens) * kv_heads_ * layout_.head_dim; }

  PageLayout layout_;
  int layers_;
  int kv_heads_;
  int pages_;
  Stream stream_;
  DeviceMemory memory_;
  std::vector<DecodeAttention> decode_;    // [layers]
  std::vector<PrefillAttention> prefill_;  // [layers]
};

}  // namespace sluice::cuda
