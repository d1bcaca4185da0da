#pragma once

#include "kernels/cuda/selection/topk_plan.h"
#include "kernels/cuda/selection/topk_task.cuh"
#include "kernels/cuda/selection/topk_team.cuh"

/// Keys that selection probes at: guesses of the k-th best, from a sample of the row or from what was selected last (GVR).
namespace sluice::cuda::topk {

/// A key of which about `rank` of the keys that the threads of the block hold, one each (or kNoKey), are at least as high.
template <int kThreads>
__device__ uint32_t key_of_rank(Team<kThreads>& team, uint32_t key, int held, int rank) {
  constexpr int kPasses = 2;
  const auto visit = [&](const auto& use) { use(uint4{key, kNoKey, kNoKey, kNoKey}, 0); };
  Bracket bracket{.reaching_begin = held};
  for (int pass = 0; pass < kPasses && bracket.reaching_begin > rank + rank / 2; ++pass) {
    team.template narrow<false>(bracket, rank, visit);
  }
  // A key that occurs, as it may be that of a plateau.
  return ~team.block_max(key >= bracket.begin ? ~key : 0);
}

/// Ranks, among the keys that the threads hold for guesses, to probe at in the hope that the k-th best key is just above.
struct Guess {
  int rank = 0;  // 0: none left
  int held = 0;
};

/// In an even sample of the row: the lowest rank that is all but sure to reach the k-th best.
inline __device__ Guess guess_in_sample(int sampled, int k, int length) {
  const float expected = static_cast<float>(sampled) * k / length;
  const float rank = ceilf(expected + 3 * sqrtf(expected) + 2);
  if (rank * length > 0.5F * sampled * kCandidates) return {};  // too many would reach it
  return {static_cast<int>(rank), sampled};
}

/// Among hints: half are expected to be as good as ever.
inline __device__ Guess guess_in_hints(int held, int threads) { return {held < threads / 8 ? 0 : held / 2 + held / 64, held}; }
/// The same, however few they are.
inline __device__ Guess guess_in_any_hints(int held) { return {held == 0 ? 0 : max(1, held / 2 + held / 64), held}; }

/// The next guess after `reached` keys reached the last: the secant method of GVR, section 4.2.2, on ranks among the hints.
inline __device__ Guess next_guess(Guess last, int k, int reached) {
  if (reached >= k) return {last.rank * 3 / 4, last.held};
  const float wanted = static_cast<float>(last.rank) * k / max(reached, 1) + last.held / 32 + 1;
  return {last.rank == last.held ? 0 : static_cast<int>(fminf(wanted, last.held)), last.held};
}

/// Index of the score that this thread contributes, or -1.
inline __device__ int guess_index(FirstGuess how, const int32_t* hints, int hint_count, int length, int threads) {
  const int64_t thread = threadIdx.x;
  int index = -1;
  if (how == FirstGuess::kSample) index = static_cast<int>(thread * length / threads);
  if (how == FirstGuess::kHints) {
    const int64_t place = hint_count > threads ? thread * hint_count / threads : thread;
    if (place < hint_count) index = hints[place];
  }
  return index < length ? index : -1;
}

/// The first rank to probe at, among the keys that threads contribute.
template <int kThreads, bool kInsists>
__device__ __forceinline__ Guess first_guess(FirstGuess how, uint32_t key, const Task& task) {
  Guess guess;
  if (how == FirstGuess::kSample) guess = guess_in_sample(kThreads, task.k, task.length);
  if (how == FirstGuess::kHints) {
    const int held = __syncthreads_count(key != kNoKey);
    guess = kInsists ? guess_in_any_hints(held) : guess_in_hints(held, kThreads);
  }
  return guess;
}

/// What narrows the bracket of a row of clustered blocks beside histograms: the keys to probe at.
template <int kThreads>
struct Probes {
  FirstGuess how;
  uint32_t key;  // this thread's contribution
  Guess guess;
  int made = 0;
  uint32_t last = kNoKey;  // probed at a guess

  /// The next key to probe at; kNoKey: there is none.
  __device__ __forceinline__ uint32_t next(Team<kThreads>& team, const Bracket& bracket) {
    constexpr int kMost = 4;
    uint32_t next = kNoKey;
    // Too many reach a probe: if that is a plateau, it may be the threshold, or enough keys may lie above it.
    const bool on_plateau = last != kNoKey && last == bracket.begin;
    if (made < kMost && on_plateau) {
      next = last + 1;
    } else if (made < kMost && guess.rank > 0) {
      next = last = key_of_rank(team, key, guess.held, guess.rank);
    }
    ++made;
    if (on_plateau) last = kNoKey;
    return next;
  }
  /// After so many keys reached a probe.
  __device__ __forceinline__ void learn(int k, int reached) {
    guess = how == FirstGuess::kHints ? next_guess(guess, k, reached) : Guess{};
  }
};

}  // namespace sluice::cuda::topk
