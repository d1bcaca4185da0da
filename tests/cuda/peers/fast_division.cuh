// Division by a number that is known before a kernel starts, as FlashInfer 0.6.10 and later take it from a CCCL that is newer
// than that of CUDA 13.0. build.py puts this in its place where that is missing. It is a multiplication, too.
#pragma once
#define FLASHINFER_FASTDIV_CUH_
#include <cstdint>

namespace flashinfer {

/// n / d = (n * m) >> 64 for all n and d of 32 bits, where m is 2^64 / d, rounded up: Lemire, Kaser, Kurz, "Faster remainder by
/// direct computation", 2019. For d = 1, m does not fit and is 0.
struct uint_fastdiv {
  uint_fastdiv() = default;
  __host__ uint_fastdiv(uint32_t divisor) : d(divisor), m(divisor < 2 ? 0 : ~uint64_t{0} / divisor + 1) {}

  __host__ __device__ operator unsigned int() const { return d; }

  __host__ __device__ uint32_t quotient(uint32_t n) const {
    if (m == 0) return n;
#ifdef __CUDA_ARCH__
    return static_cast<uint32_t>(__umul64hi(m, n));
#else
    return n / d;
#endif
  }
  __host__ __device__ void divmod(uint32_t n, uint32_t& q, uint32_t& r) const {
    q = quotient(n);
    r = n - q * d;
  }

  uint32_t d = 0;
  uint64_t m = 0;
};

__host__ __device__ inline uint32_t operator/(uint32_t n, const uint_fastdiv& divisor) { return divisor.quotient(n); }
__host__ __device__ inline uint32_t operator%(uint32_t n, const uint_fastdiv& divisor) {
  return n - divisor.quotient(n) * divisor.d;
}

}  // namespace flashinfer
