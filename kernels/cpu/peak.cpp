#include "kernels/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/cpu/targets.h"
#include "kernels/cpu/thread_pool.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/peak.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

/// Runs `rounds` rounds of independent multiply-adds; adds the operations of one round to `operations`.
float multiply_add_rounds(int64_t rounds, double* operations) {
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
  *operations = 2.0 * kChains * static_cast<double>(kLanes);
  return hn::GetLane(sum);
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(multiply_add_rounds);

double measure_peak_gflops(int threads) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kRounds = 4'000'000;
  ThreadPool pool(threads);
  std::vector<float> results(pool.threads());
  double operations = 0;
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto start = Clock::now();
    pool.run(pool.threads(), [&](int64_t index, int) {
      double of_one_round = 0;
      results[index] = HWY_DYNAMIC_DISPATCH(multiply_add_rounds)(kRounds, &of_one_round);
      if (index == 0) operations = of_one_round;
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, operations * kRounds * pool.threads() / seconds);
  }
  return best / 1e9;
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
