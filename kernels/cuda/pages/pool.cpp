#include "kernels/cuda/pages/pool.h"

#include "kernels/cuda/codegen/refusal.h"
#include "kernels/cuda/pages/page_copy.h"
#include "kernels/device/checks.h"

namespace sluice::cuda {
namespace {

const PoolMap& checked(const PoolMap& map) {
  for (int group = 0; group < map.groups(); ++group) {
    if (const auto refusal = codegen::refusal_of(map.layout(group))) throw InputError(refusal->what, refusal->hint);
  }
  return map;
}

}  // namespace

CudaPool::CudaPool(const PoolMap& map, Stream stream) : Pool(checked(map)), stream_(stream), memory_(map.bytes()) {
  memory_.clear();
  decode_.reserve(map.layers());
  prefill_.reserve(map.layers());
  for (int index = 0; index < map.layers(); ++index) {
    const PagedKv kv{
        .base = layer(index).base, .layout = layout_of(index), .pages = pages(group_of(index)), .kv_heads = kv_heads()};
    decode_.emplace_back(kv);
    prefill_.emplace_back(kv);
  }
}

LayerPages CudaPool::layer(int index) const {
  const PoolMap::Place place = map().place_of(index);
  const PageLayout& kept = layout(place.group);
  return {.base = at(place),
          .block_bytes = kept.bytes,
          .key_offset = kept.key_offset,
          .value_offset = kept.value_offset,
          .page = kept.page,
          .kv_heads = kv_heads(),
          .head_dim = kept.head_dim,
          .kv = kept.kv};
}

void CudaPool::copy_pages(int group, std::span<const int32_t> sources, std::span<const int32_t> targets) {
  require_copies(*this, group, sources, targets);
  const std::vector<int>& layers = map().group(group).layers;
  const PageBlocks blocks{.base = memory_.as<std::byte>(),
                          .bytes = map().page_bytes(group),
                          .layer_stride = map().slab_pages(group) * map().page_bytes(group),
                          .layers = static_cast<int>(layers.size())};
  cuda::copy_pages(blocks, sources, targets, stream_);
}

void CudaPool::read(int group, std::span<const int32_t> pages, int tokens, float* keys, float* values) const {
  require_tokens(*this, group, pages, tokens);
  if (tokens == 0) return;
  const size_t count = numbers(group, tokens);
  DeviceMemory list(pages.size_bytes());
  list.upload(pages.data(), pages.size_bytes());
  const DeviceMemory staging(2 * count * sizeof(float));
  auto* staged = staging.as<float>();
  size_t at = 0;
  for (const int index : map().group(group).layers) {
    read_tokens(layer(index), list.as<int32_t>(), tokens, staged, staged + count, stream_);
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(keys + at, staged, count * sizeof(float), cudaMemcpyDeviceToHost, stream_));
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(values + at, staged + count, count * sizeof(float), cudaMemcpyDeviceToHost, stream_));
    at += count;
  }
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_));
}

void CudaPool::write(int group, std::span<const int32_t> pages, int tokens, const float* keys, const float* values) {
  require_tokens(*this, group, pages, tokens);
  if (tokens == 0) return;
  const size_t count = numbers(group, tokens);
  DeviceMemory list(pages.size_bytes());
  list.upload(pages.data(), pages.size_bytes());
  const DeviceMemory staging(2 * count * sizeof(float));
  auto* staged = staging.as<float>();
  size_t at = 0;
  for (const int index : map().group(group).layers) {
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(staged, keys + at, count * sizeof(float), cudaMemcpyHostToDevice, stream_));
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(staged + count, values + at, count * sizeof(float), cudaMemcpyHostToDevice, stream_));
    write_tokens(layer(index), list.as<int32_t>(), tokens, staged, staged + count, stream_);
    at += count;
  }
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_));
}

}  // namespace sluice::cuda
