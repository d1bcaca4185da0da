#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device.h"

struct CUevent_st;

namespace sluice::cuda {

namespace sampling {
struct BestTokens;
}

/// The longest rows that are sampled: sums of weights stay within 64 bits.
inline constexpr int64_t kMostTokens = (int64_t{1} << 20) - 1;

/// Picks tokens from rows of logits on the GPU, as Device::sample says, in one launch: a cluster of blocks a row. Which token a
/// number draws may differ from the CPU's where rounding decides; two runs always agree, since weights are added as integers.
class CudaPicks final : public Device::Picks {
 public:
  explicit CudaPicks(int most_rows);

  /// `logits` are float32 in device memory, at most kMostTokens columns.
  void sample(const Matrix& logits, std::span<const SampleRow> rows, Stream stream);
  /// The same greedily for at most DecodeMatmul::kMostRows choices among rows whose best tokens `best()` has; throws
  /// InternalError for more.
  void sample_best(std::span<const SampleRow> rows, Stream stream);
  /// Of the first `rows` rows that `best()` has, as many as there is room for, one choice each, in their order: a kernel that can
  /// be part of a graph. They are no call yet. A later pass overwrites those of the same `half` (BatchUpload::half).
  void pick_in_pass(int rows, int half, Stream stream);
  /// Makes the first `rows` of these a call.
  void call_picked(size_t rows, int half, Stream stream);
  /// Whether products of up to DecodeMatmul::kMostRows rows find the best tokens. Those of one engine, whose head and matrices
  /// are the same in all passes, do so always or never: a replayed pass does not say it again.
  bool product_finds_best() const { return product_finds_best_; }
  void set_product_finds_best(bool finds) { product_finds_best_ = finds; }
  /// Device memory for what DecodeMatmul::run_best finds.
  sampling::BestTokens* best() const { return best_.as<sampling::BestTokens>(); }
  /// Waits for the earliest results that have not been taken.
  void take_results(std::span<Sampled> out);
  const RowProbabilities& probabilities(size_t place) const override { return probabilities_of(taken_)[place]; }
  /// What the last call gave, in device memory: [rows]
  const int32_t* tokens() const { return tokens_.as<int32_t>(); }

 private:
  struct FreePinned {
    void operator()(void* memory) const;
  };
  struct DestroyEvent {
    void operator()(CUevent_st* event) const;
  };
  using Pinned = std::unique_ptr<void, FreePinned>;  // host memory that kernels read and write themselves: no copies
  /// Choices of rows that are sampled, log-probabilities, results.
  struct Call {
    Pinned memory;
    std::unique_ptr<CUevent_st, DestroyEvent> done;
    const Sampled* found = nullptr;  // in `memory`, or in that of a half
  };
  static Pinned allocate_pinned(size_t bytes);
  template <class Launch>
  void run(size_t rows, Stream stream, const Launch& launch);
  void end_call(int call, const Sampled* found, Stream stream);
  Sampled* picked_of(int half) const { return static_cast<Sampled*>(picked_.at(static_cast<size_t>(half)).get()); }
  SampleRow* choices(int call) const { return static_cast<SampleRow*>(calls_.at(static_cast<size_t>(call)).memory.get()); }
  RowProbabilities* probabilities_of(int call) const { return reinterpret_cast<RowProbabilities*>(choices(call) + most_rows()); }
  Sampled* results(int call) const { return reinterpret_cast<Sampled*>(probabilities_of(call) + most_rows()); }

  std::array<Call, 2> calls_;
  std::array<Pinned, 2> picked_;  // of `pick_in_pass`, by half
  DeviceMemory tokens_;
  DeviceMemory best_;
  bool product_finds_best_ = false;
  int taken_ = 0;  // the call whose results were taken last
};

}  // namespace sluice::cuda
