#include "kernels/cpu/runtime/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/cpu/runtime/thread_pool.h"
#include "kernels/cpu/simd/amx.h"
#include "kernels/cpu/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/runtime/peak.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

/// Runs `rounds` rounds of independent multiply-adds; gives the floating-point operations of one round.
double multiply_add_rounds(int64_t rounds) {
  constexpr int kChains = 12;  // more than latency times throughput of any core
  VecF32 chains[kChains];
  SLUICE_UNROLL for (int i = 0; i < kChains; ++i) chains[i] = hn::Set(kF32, 0.5f + static_cast<float>(i));
  const VecF32 factor = hn::Set(kF32, 0.999f);
  const VecF32 term = hn::Set(kF32, 1e-3f);
  for (int64_t round = 0; round < rounds; ++round) {
    SLUICE_UNROLL for (int i = 0; i < kChains; ++i) chains[i] = hn::MulAdd(chains[i], factor, term);
  }
  VecF32 sum = hn::Zero(kF32);
  SLUICE_UNROLL for (int i = 0; i < kChains; ++i) sum = hn::Add(sum, chains[i]);
  const volatile float kept = hn::GetLane(sum);  // so that the work is not dropped
  static_cast<void>(kept);
  return 2.0 * kChains * static_cast<double>(kLanes);
}

void stream_copy_any(const std::byte* source, std::byte* target, size_t bytes) {
  const auto* from = reinterpret_cast<const float*>(source);
  auto* to = reinterpret_cast<float*>(target);
  for (size_t i = 0; i < bytes / sizeof(float); i += kLanes) hn::Stream(hn::Load(kF32, from + i), kF32, to + i);
  hwy::FlushStream();
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(multiply_add_rounds);
HWY_EXPORT(stream_copy_any);

namespace {

/// Operations a second of all threads of `pool` together: the best of many short tries, since on a machine with other work
/// only some of them have all cores to themselves.
template <typename Rounds>
double measure_rounds(ThreadPool& pool, int64_t count, Rounds rounds) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int repeat = 0; repeat < 40; ++repeat) {
    const auto start = Clock::now();
    std::atomic<double> of_one_round{0};
    pool.run(pool.threads(), [&](int64_t, int) { of_one_round = rounds(count); });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, of_one_round * static_cast<double>(count) * pool.threads() / seconds);
  }
  return best;
}

}  // namespace

ProductPeak measure_product_peak(int threads) {
  ThreadPool pool(threads);
  if (amx_available()) {
    constexpr int64_t kRounds = 20'000;
    return {measure_rounds(pool, kRounds, amx_multiply_rounds) / 2 / 1e9, "AMX tiles, float32 split into two bf16 halves"};
  }
  constexpr int64_t kRounds = 400'000;
  const auto rounds = [](int64_t count) { return HWY_DYNAMIC_DISPATCH(multiply_add_rounds)(count); };
  return {measure_rounds(pool, kRounds, rounds) / 1e9, "float32 vectors"};
}

void stream_copy(const std::byte* source, std::byte* target, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(stream_copy_any)(source, target, bytes);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
