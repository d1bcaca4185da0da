#pragma once

#include "kernels/cuda/attention/decode_numbers.cuh"

/// Pages of 8-bit K and V, written out as bf16, which holds their numbers exactly.
namespace sluice::cuda::prefill {

struct WidenArguments {
  const std::byte* base;  // block (page, KV head) at base + (page * kv_heads + head) * block_bytes
  size_t block_bytes;
  size_t key_offset;
  size_t value_offset;
  const int32_t* pages;  // to widen
  int kv_heads;
  int numbers;         // of K in a block, a multiple of 8
  std::byte* widened;  // block (position in `pages`, KV head) at widened + (position * kv_heads + head) * widened_bytes
  size_t widened_bytes;
  size_t widened_value;  // where V is in such a block; K is at its beginning
  int32_t* positions;    // [pages] 0, 1, 2, ...: the pages' numbers among the widened
};

template <DataType Type>
__device__ __forceinline__ uint2 widen_to_bf16(uint32_t bytes) {
  const decode::Pairs pairs = decode::widen<Type>(bytes);
  const auto to_bf16 = [](uint32_t pair) {
    const float2 numbers = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    return pack(numbers.x, numbers.y);
  };
  return {to_bf16(pairs.first), to_bf16(pairs.second)};
}

/// A block of threads for each (page, KV head).
template <DataType Type>
__global__ void widen_kernel(const WidenArguments a) {
  const auto position = static_cast<int>(blockIdx.x);
  const auto head = static_cast<int>(blockIdx.y);
  if (head == 0 && threadIdx.x == 0) a.positions[position] = position;
  const std::byte* block = a.base + (static_cast<size_t>(a.pages[position]) * a.kv_heads + head) * a.block_bytes;
  std::byte* target = a.widened + (static_cast<size_t>(position) * a.kv_heads + head) * a.widened_bytes;
  for (int i = 8 * static_cast<int>(threadIdx.x); i < 2 * a.numbers; i += 8 * static_cast<int>(blockDim.x)) {
    const bool value = i >= a.numbers;
    const int at = value ? i - a.numbers : i;
    const uint2 eight = *reinterpret_cast<const uint2*>(block + (value ? a.value_offset : a.key_offset) + at);
    const uint2 low = widen_to_bf16<Type>(eight.x);
    const uint2 high = widen_to_bf16<Type>(eight.y);
    *reinterpret_cast<uint4*>(target + (value ? a.widened_value : 0) + at * sizeof(uint16_t)) = {low.x, low.y, high.x, high.y};
  }
}

}  // namespace sluice::cuda::prefill
