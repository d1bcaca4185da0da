#include "kernels/cuda/pages/pool.h"

#include <fmt/format.h>

#include "kernels/cuda/codegen/refusal.h"
#include "kernels/cuda/pages/page_copy.h"
#include "kernels/device/checks.h"

namespace sluice::cuda {
namespace {

size_t checked_bytes(int layers, int kv_heads, int pages, const PageLayout& layout) {
  if (const auto refusal = codegen::refusal_of(layout)) throw InputError(refusal->what, refusal->hint);
  return pool_bytes(layers, kv_heads, pages, layout);
}

}  // namespace

CudaPool::CudaPool(int layers, int kv_heads, int pages, const PageLayout& layout, Stream stream)
    : layout_(layout),
      layers_(layers),
      kv_heads_(kv_heads),
      pages_(pages),
      stream_(stream),
      memory_(checked_bytes(layers, kv_heads, pages, layout)) {
  memory_.clear();
  decode_.reserve(layers);
  prefill_.reserve(layers);
  for (int index = 0; index < layers; ++index) {
    const PagedKv kv{.base = layer(index).base, .layout = layout, .pages = pages, .kv_heads = kv_heads};
    decode_.emplace_back(kv);
    prefill_.emplace_back(kv);
  }
}

LayerPages CudaPool::layer(int index) const {
  return {.base = memory_.as<std::byte>() + index * layer_stride(),
          .block_bytes = layout_.bytes,
          .key_offset = layout_.key_offset,
          .value_offset = layout_.value_offset,
          .page = layout_.page,
          .kv_heads = kv_heads_,
          .head_dim = layout_.head_dim,
          .kv = layout_.kv};
}

void CudaPool::copy_pages(std::span<const int32_t> sources, std::span<const int32_t> targets) {
  require_copies(*this, sources, targets);
  const PageBlocks blocks{
      .base = memory_.as<std::byte>(), .bytes = page_stride(), .layer_stride = layer_stride(), .layers = layers_};
  cuda::copy_pages(blocks, sources, targets, stream_);
}

void CudaPool::read(std::span<const int32_t> pages, int tokens, float* keys, float* values) const {
  require_tokens(*this, pages, tokens);
  if (tokens == 0) return;
  const size_t count = numbers(tokens);
  DeviceMemory list(pages.size_bytes());
  list.upload(pages.data(), pages.size_bytes());
  const DeviceMemory staging(2 * count * sizeof(float));
  auto* staged = staging.as<float>();
  for (int index = 0; index < layers_; ++index) {
    read_tokens(layer(index), list.as<int32_t>(), tokens, staged, staged + count, stream_);
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(keys + index * count, staged, count * sizeof(float), cudaMemcpyDeviceToHost, stream_));
    SLUICE_CHECK_CUDA(
        cudaMemcpyAsync(values + index * count, staged + count, count * sizeof(float), cudaMemcpyDeviceToHost, stream_));
  }
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_));
}

void CudaPool::write(std::span<const int32_t> pages, int tokens, const float* keys, const float* values) {
  require_tokens(*this, pages, tokens);
  if (tokens == 0) return;
  const size_t count = numbers(tokens);
  DeviceMemory list(pages.size_bytes());
  list.upload(pages.data(), pages.size_bytes());
  const DeviceMemory staging(2 * count * sizeof(float));
  auto* staged = staging.as<float>();
  for (int index = 0; index < layers_; ++index) {
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(staged, keys + index * count, count * sizeof(float), cudaMemcpyHostToDevice, stream_));
    SLUICE_CHECK_CUDA(
        cudaMemcpyAsync(staged + count, values + index * count, count * sizeof(float), cudaMemcpyHostToDevice, stream_));
    write_tokens(layer(index), list.as<int32_t>(), tokens, staged, staged + count, stream_);
  }
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_));
}

}  // namespace sluice::cuda
