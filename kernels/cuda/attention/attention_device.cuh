#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/attention/attention_math.cuh"
#include "kernels/cuda/pages/paged_kv.h"
#include "kernels/cuda/primitives/mbarrier.cuh"

/// What the attention kernels have in common on the device.
namespace sluice::cuda {

inline CUtensorMap to_cuda(const TensorMap& map) {
  CUtensorMap copy;
  std::memcpy(&copy, &map, sizeof(copy));
  return copy;
}

/// Divides numbers below 2^31 by one that the host knows, in two instructions instead of a chain of twenty (Granlund and
/// Montgomery, "Division by invariant integers using multiplication", 1994).
class Divisor {
 public:
  explicit Divisor(int divisor) : divisor_(divisor) {
    while ((int64_t{1} << bits_) < divisor) ++bits_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << (31 + bits_)) + divisor - 1) / divisor);
  }
  __device__ __forceinline__ int quotient(int number) const {
    return static_cast<int>(static_cast<uint64_t>(static_cast<uint32_t>(number)) * multiplier_ >> (31 + bits_));
  }
  __device__ __forceinline__ int remainder(int number) const { return number - quotient(number) * divisor_; }

 private:
  uint32_t multiplier_ = 0;
  int bits_ = 0;
  int divisor_;
};

}  // namespace sluice::cuda
