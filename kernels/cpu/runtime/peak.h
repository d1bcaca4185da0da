#pragma once

#include <cstddef>

namespace sluice::cpu {

/// The unit that multiplies float32 by bf16 on this processor, and how fast.
struct ProductPeak {
  double gflop_per_s;  // a multiply-add counts two
  const char* unit;    // "float32 vectors"
};
/// What `threads` threads reach on registers alone: the limit of prefill and of products with bf16 weights. On AMX it is half of
/// the tiles' rate, since the float32 operand is split into two bf16 halves. 0: all cores that this process may use.
ProductPeak measure_product_peak(int threads);

/// Copies past the caches; `bytes` is a multiple of 64, both ends are aligned to 64.
void stream_copy(const std::byte* source, std::byte* target, size_t bytes);

}  // namespace sluice::cpu
