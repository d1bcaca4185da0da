#include "kernels/cuda/selection/topk_plan.h"

// Chosen from times on an H200.

namespace sluice::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kFewKeys = 8;
constexpr int kMostKeys = 32;
constexpr int kMostBlocks = 8;  // a cluster of any device

/// As many blocks a row as the device has room for, as long as each has work.
TopKPlan clustered(FirstGuess guess, int rows, int max_length, int multiprocessors) {
  TopKPlan plan{.guess = guess, .threads = kThreads, .keys = kFewKeys};
  while (plan.cluster < kMostBlocks && 2 * plan.cluster * rows <= multiprocessors &&
         plan.cluster * kThreads * kFewKeys < max_length) {
    plan.cluster *= 2;
  }
  while (plan.keys < kMostKeys && plan.cluster * kThreads * plan.keys < max_length) plan.keys *= 2;
  return plan;
}

}  // namespace

TopKPlan plan_radix(int rows, int max_length, int multiprocessors) {
  if (max_length <= 1024) return {.threads = 128, .keys = 8};
  if (max_length <= 2048) return {.threads = 512, .keys = 4};
  if (max_length <= 4096) return {.threads = 512, .keys = 8};
  if (max_length <= 8192) return {.threads = 1024, .keys = 8};
  return clustered(FirstGuess::kNone, rows, max_length, multiprocessors);
}

TopKPlan plan_gvr(int rows, int max_length, int multiprocessors) {
  TopKPlan plan = clustered(FirstGuess::kHints, rows, max_length, multiprocessors);
  plan.insists = true;
  return plan;
}

TopKPlan plan_top_k(int rows, int max_length, int max_budget, bool hinted, int multiprocessors) {
  TopKPlan plan = plan_radix(rows, max_length, multiprocessors);
  if (max_length <= kThreads * kFewKeys) return plan;
  plan.guess = FirstGuess::kSample;
  // Hints spare a pass over the sample, but the longer the row, the more of it lies above a wrong hint.
  if (hinted && plan.cluster == kMostBlocks && max_length / 32 <= max_budget) plan.guess = FirstGuess::kHints;
  return plan;
}

}  // namespace sluice::cuda
