#pragma once

namespace sluice::cuda {

/// What the first guess of the threshold, the k-th best score, is made of. All else narrows by histograms of order keys.
enum class FirstGuess {
  kNone,
  kSample,  // a sample of the row
  kHints    // the scores of the hints (GVR, section 4)
};

/// How rows of a shape are selected from: `cluster` blocks of `threads` share a row, each thread keeps `keys` scores in
/// registers.
struct TopKPlan {
  FirstGuess guess = FirstGuess::kNone;
  int threads = 0;
  int keys = 0;
  int cluster = 1;
  bool insists = false;  // on guesses from hints, also where so few scores are left, or hints there, that others do without
};

/// The plan that was measured to be fastest for rows of up to `max_length` on a GPU of so many multiprocessors. `hinted`: what
/// was selected last is kept.
TopKPlan plan_top_k(int rows, int max_length, int max_budget, bool hinted, int multiprocessors);
/// The fastest known that begins with no guess.
TopKPlan plan_radix(int rows, int max_length, int multiprocessors);
/// The fastest known that begins with hints, whatever the rows.
TopKPlan plan_gvr(int rows, int max_length, int multiprocessors);

}  // namespace sluice::cuda
