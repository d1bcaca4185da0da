#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device.h"

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;

/// The longest rows that are sampled: sums of weights stay within 64 bits.
inline constexpr int64_t kMostTokens = (int64_t{1} << 20) - 1;

/// Picks tokens from rows of logits on the GPU, as Device::sample says, in one launch: a cluster of blocks a row. Which token a
/// number draws may differ from the CPU's where rounding decides; two runs always agree, since weights are added as integers.
class Sampler {
 public:
  /// Makes room for `rows` rows in one call.
  void reserve(size_t rows);
  /// Waits for the result. `logits` are float32 in device memory, at most kMostTokens columns.
  void run(const Matrix& logits, std::span<const SampleRow> rows, std::span<Sampled> out, Stream stream);

 private:
  struct FreePinned {
    void operator()(void* memory) const;
  };
  // In host memory that the kernel reads and writes itself: a row's choice, a row's result, and no copy either way.
  std::unique_ptr<void, FreePinned> memory_;
  size_t capacity_ = 0;
};

}  // namespace sluice::cuda
