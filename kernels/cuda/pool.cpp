#include "kernels/cuda/pool.h"

#include <fmt/format.h>

namespace sluice::cuda {
namespace {

size_t checked_bytes(int layers, int kv_heads, int pages, const PageLayout& layout) {
  if (layers < 1 || kv_heads < 1 || pages < 1) {
    throw InputError(fmt::format("a page pool of {} layers, {} KV heads and {} pages cannot be made", layers, kv_heads, pages));
  }
  if (layout.kv != DataType::kBF16) {
    throw InputError(fmt::format("device \"cuda\" keeps KV as bf16, not as {}", name_of(layout.kv)),
                     "use bf16 for KV, or --device cpu");
  }
  if (layout.head_dim != 64 && layout.head_dim != 128 && layout.head_dim != 256) {
    throw InputError(fmt::format("device \"cuda\" attends heads of 64, 128 or 256 channels, not {}", layout.head_dim),
                     "use --device cpu for this model");
  }
  if (layout.page < 8 || layout.page > 128 || (layout.page & (layout.page - 1)) != 0) {
    throw InputError(fmt::format("a page holds 8, 16, 32, 64 or 128 tokens, not {}", layout.page));
  }
  size_t bytes = layout.bytes;
  for (const int count : {layers, kv_heads, pages}) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(count), &bytes)) {
      throw InputError(
          fmt::format("a page pool of {} layers, {} KV heads and "
                      "{} pages is beyond any memory",
                      layers, kv_heads, pages));
    }
  }
  return bytes;
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
          .head_dim = layout_.head_dim};
}

void CudaPool::check_page(int32_t page) const {
  if (page < 0 || page >= pages_) throw InternalError(fmt::format("page {} is outside a pool of {} pages", page, pages_));
}

void CudaPool::check_tokens(std::span<const int32_t> pages, int tokens) const {
  if (tokens < 0 || static_cast<size_t>(tokens) > pages.size() * layout_.page) {
    throw InternalError(fmt::format("{} tokens do not fit {} pages of {}", tokens, pages.size(), layout_.page));
  }
  for (const int32_t page : pages) check_page(page);
}

void CudaPool::copy_page(int source, int target) {
  check_page(source);
  check_page(target);
  if (source == target) return;
  // A copy a layer: the pitch between layers may exceed what copies of two
  // dimensions take.
  for (int index = 0; index < layers_; ++index) {
    std::byte* base = layer(index).base;
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(base + target * page_stride(), base + source * page_stride(), page_stride(),
                                      cudaMemcpyDeviceToDevice, stream_));
  }
}

void CudaPool::read(std::span<const int32_t> pages, int tokens, float* keys, float* values) const {
  check_tokens(pages, tokens);
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
  check_tokens(pages, tokens);
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
