#include "kernels/cuda/pages/pool.h"

#include <algorithm>

#include "kernels/cuda/codegen/refusal.h"
#include "kernels/device/checks.h"

namespace sluice::cuda {
namespace {

const PoolMap& checked(const PoolMap& map) {
  for (int group = 0; group < map.groups(); ++group) {
    if (const auto refusal = codegen::refusal_of(map.layout(group))) throw InputError(refusal->what, refusal->hint);
  }
  return map;
}

bool is_on_device(const void* memory) {
  cudaPointerAttributes about{};
  SLUICE_CHECK_CUDA(cudaPointerGetAttributes(&about, memory));
  return about.type == cudaMemoryTypeDevice;
}

}  // namespace

CudaPool::CudaPool(const PoolMap& map, Stream stream, LayerStream& beside)
    : Pool(checked(map)), stream_(stream), beside_(beside), memory_(map.bytes()) {
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
  beside_.join(group_of(index), index, stream_);
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

PageBlocks CudaPool::blocks_of(int group) const {
  return {.base = memory_.as<std::byte>(),
          .bytes = map().page_bytes(group),
          .layer_stride = map().slab_pages(group) * map().page_bytes(group),
          .layers = static_cast<int>(map().group(group).layers.size())};
}

void CudaPool::copy_pages(int group, std::span<const int32_t> sources, std::span<const int32_t> targets) {
  require_copies(*this, group, sources, targets);
  beside_.join(stream_);
  cuda::copy_pages(blocks_of(group), sources, targets, stream_);
}

void CudaPool::clear_pages(int group, std::span<const int32_t> pages) {
  require_pages(*this, group, pages);
  beside_.join(stream_);
  cuda::clear_pages(blocks_of(group), pages, stream_);
}

TokenRows CudaPool::rows_of(int group) const {
  const PageLayout& kept = layout(group);
  return {.block_bytes = kept.bytes,
          .key_offset = kept.key_offset,
          .value_offset = kept.value_offset,
          .bytes = kept.head_dim * size_of(kept.kv),
          .kv_heads = kv_heads()};
}

ShiftedRows CudaPool::shifted_rows(GroupLayers of, const float* frequencies) const {
  const PageLayout& kept = layout(of.group);
  const std::vector<int>& layers = map().group(of.group).layers;
  const auto before = static_cast<int>(std::count_if(layers.begin(), layers.end(), [&](int layer) { return layer < of.first; }));
  PageBlocks blocks = blocks_of(of.group);
  blocks.base += before * blocks.layer_stride;
  blocks.layers -= before;
  return {.blocks = blocks,
          .rows = rows_of(of.group),
          .kv = kept.kv,
          .head_dim = kept.head_dim,
          .page = kept.page,
          .frequencies = frequencies};
}

void CudaPool::move_tokens(int group, std::span<const TokenMove> moves) {
  require_moves(*this, group, moves);
  beside_.join(stream_);
  cuda::move_tokens(blocks_of(group), rows_of(group), moves, stream_);
}

void CudaPool::read_layer(int index, std::span<const int32_t> pages, int tokens, float* keys, float* values) const {
  require_tokens(*this, group_of(index), pages, tokens);
  if (tokens == 0) return;
  const size_t count = numbers(tokens);
  DeviceMemory list(pages.size_bytes());
  list.upload(pages.data(), pages.size_bytes());
  const bool stays = is_on_device(keys);
  const DeviceMemory staging(stays ? 0 : 2 * count * sizeof(float));
  float* const to_keys = stays ? keys : staging.as<float>();
  float* const to_values = stays ? values : staging.as<float>() + count;
  read_tokens(layer(index), list.as<int32_t>(), tokens, to_keys, to_values, stream_);
  if (!stays) {
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(keys, to_keys, count * sizeof(float), cudaMemcpyDeviceToHost, stream_));
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(values, to_values, count * sizeof(float), cudaMemcpyDeviceToHost, stream_));
  }
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_));
}

void CudaPool::write_layer(int index, std::span<const int32_t> pages, int tokens, std::span<const int32_t> slots,
                           const float* keys, const float* values) {
  require_slots(*this, group_of(index), pages, tokens, slots);
  if (tokens == 0) return;
  const size_t count = numbers(tokens);
  DeviceMemory lists(pages.size_bytes() + slots.size_bytes());
  lists.upload(pages.data(), pages.size_bytes());
  const auto* const on_device = lists.as<int32_t>();
  int32_t* const device_slots = slots.empty() ? nullptr : lists.as<int32_t>() + pages.size();
  if (device_slots != nullptr) {
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(device_slots, slots.data(), slots.size_bytes(), cudaMemcpyHostToDevice, stream_));
  }
  const bool is_there = is_on_device(keys);
  const DeviceMemory staging(is_there ? 0 : 2 * count * sizeof(float));
  const float* from_keys = keys;
  const float* from_values = values;
  if (!is_there) {
    auto* const staged = staging.as<float>();
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(staged, keys, count * sizeof(float), cudaMemcpyHostToDevice, stream_));
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(staged + count, values, count * sizeof(float), cudaMemcpyHostToDevice, stream_));
    from_keys = staged;
    from_values = staged + count;
  }
  const int heads = slots.empty() ? 1 : static_cast<int>(slots.size()) / tokens;
  write_tokens(layer(index), on_device, tokens, device_slots, heads, from_keys, from_values, stream_);
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_));
}

}  // namespace sluice::cuda
