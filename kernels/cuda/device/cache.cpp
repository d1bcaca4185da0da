#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flow/device_flow.h"
#include "kernels/device/checks.h"

// What CudaDevice does with the cache: its memory, and what is written to it.

namespace sluice::cuda {

std::unique_ptr<Pool> CudaDevice::create_pool(const PoolMap& map) {
  return std::make_unique<CudaPool>(map, stream_.get(), copying_);
}

const float* CudaDevice::frequencies_of(const Rope& rope, int head_dim) {
  const int half = head_dim / 2;
  if (!rope.inverse_frequencies.empty() && static_cast<int>(rope.inverse_frequencies.size()) != half) {
    throw InternalError(
        fmt::format("rope has {} frequencies for a head dimension of {}", rope.inverse_frequencies.size(), head_dim));
  }
  DeviceMemory& known = frequencies_[{head_dim, rope.theta, rope.inverse_frequencies}];
  if (known.data() != nullptr) return known.as<float>();
  std::vector<float> frequencies = rope.inverse_frequencies;
  for (int i = static_cast<int>(frequencies.size()); i < half; ++i) {
    frequencies.push_back(1.0f / std::pow(rope.theta, static_cast<float>(2 * i) / static_cast<float>(head_dim)));
  }
  DeviceMemory memory(half * sizeof(float));
  memory.upload(frequencies.data(), memory.bytes());
  known = std::move(memory);
  return known.as<float>();
}

void CudaDevice::rope_append(int layer, Matrix qkv, int query_heads, const Weight* query_gain, const Weight* key_gain,
                             float epsilon, const Rope& rope) {
  const auto told = operation("rope_append");
  if (!pass_.active()) throw InternalError("rope_append was called outside a pass");
  making_room_.join(stream_.get());
  const CudaPool& pool = pass_.pool();
  require_layer("rope_append", layer, pool);
  const int dim = pool.layout_of(layer).head_dim;
  require_numbers("rope_append", qkv);
  require_equal("rope_append", "qkv.rows", qkv.rows, pass_.batch().rows());
  require_equal("rope_append", "qkv.columns", qkv.columns, static_cast<int64_t>(query_heads + 2 * pool.kv_heads()) * dim);
  require_equal("rope_append", "qkv.stride modulo 8", qkv.stride % 8, 0);
  if (query_gain != nullptr) require_equal("rope_append", "query_gain.columns", query_gain->columns(), dim);
  if (key_gain != nullptr) require_equal("rope_append", "key_gain.columns", key_gain->columns(), dim);
  const float* const frequencies = frequencies_of(rope, dim);
  const PassArrays arrays = pass_.arrays(stream_.get(), pool.group_of(layer));
  rope_append_rows(qkv,
                   {.query_heads = query_heads,
                    .query_gain = query_gain == nullptr ? nullptr : as_cuda(*query_gain).vector(),
                    .key_gain = key_gain == nullptr ? nullptr : as_cuda(*key_gain).vector(),
                    .frequencies = frequencies,
                    .epsilon = epsilon,
                    .attention_scale = rope.attention_scale},
                   pool.layer(layer), arrays.places(), stream_.get());
}

void CudaDevice::append(int layer, Matrix keys, Matrix values) {
  const auto told = operation("append");
  if (!pass_.active()) throw InternalError("append was called outside a pass");
  making_room_.join(stream_.get());
  const CudaPool& pool = pass_.pool();
  require_layer("append", layer, pool);
  const int64_t columns = static_cast<int64_t>(pool.kv_heads()) * pool.layout_of(layer).head_dim;
  require_numbers("append", keys);
  require_numbers("append", values);
  require_equal("append", "keys.rows", keys.rows, pass_.batch().rows());
  require_equal("append", "values.rows", values.rows, pass_.batch().rows());
  require_equal("append", "keys.columns", keys.columns, columns);
  require_equal("append", "values.columns", values.columns, columns);
  const PassArrays arrays = pass_.arrays(stream_.get(), pool.group_of(layer));
  append_rows(keys, values, pool.layer(layer), arrays.places(), stream_.get());
}

void CudaDevice::copy_shifted(Pool& pool, GroupLayers of, std::span<const ShiftedRun> runs, const Rope& rope) {
  const auto told = operation("copy_shifted");
  const CudaPool& memory = as_cuda(pool);
  require_runs(memory, of.group, runs);
  cuda::ShiftedRows rows = memory.shifted_rows(of, frequencies_of(rope, memory.layout(of.group).head_dim));
  const int layers = rows.blocks.layers;
  if (runs.empty() || layers == 0) return;
  static_assert(sizeof(ShiftedRun) % sizeof(int32_t) == 0);
  const auto* const numbers = reinterpret_cast<const int32_t*>(runs.data());
  const std::span<const int32_t> told_runs(numbers, runs.size_bytes() / sizeof(int32_t));
  const auto copy = [&](const int32_t* sent, Stream stream) {
    cuda::copy_shifted(rows, reinterpret_cast<const ShiftedRun*>(sent), static_cast<int>(runs.size()), stream);
  };
  const std::vector<int>& all = memory.map().group(of.group).layers;
  const auto first = all.end() - layers;
  copying_.join(of.group, *first, stream_.get());
  // What comes next wants the first layer before the others.
  rows.blocks.layers = 1;
  copy(send(told_runs), stream_.get());
  if (layers == 1) return;
  rows.blocks.base += rows.blocks.layer_stride;
  rows.blocks.layers = layers - 1;
  const Stream beside = copying_.begin(of.group, first[1], stream_.get());
  std::copy(told_runs.begin(), told_runs.end(), reinterpret_cast<int32_t*>(runs_.fill(runs.size_bytes())));
  runs_.send(runs.size_bytes(), beside);
  copy(reinterpret_cast<const int32_t*>(runs_.device()), beside);
}

}  // namespace sluice::cuda
