#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice::cpu {

// Selections of pages by score. The order is total and the same on every device: higher score first, ties to the lower page,
// NaN below -inf; all NaN are equal and so are -0 and +0.

/// Maps a score to an unsigned number of the same order: NaN is 0.
constexpr uint32_t order_key(uint32_t score_bits) {
  if ((score_bits & 0x7fffffffU) > 0x7f800000U) return 0;
  if (score_bits == 0x80000000U) score_bits = 0;
  return (score_bits & 0x80000000U) != 0 ? ~score_bits : score_bits | 0x80000000U;
}

/// Pages that a topk or approx_topk selects of `pages`: min(B, max(k + first + last, ceil(ratio * B))).
int budget_of(const Attributes& attributes, int pages);

/// Finds pages; its memory is sized once, so that selecting allocates nothing. Every method writes positions in ascending
/// order to `selected`, which has room for all pages, and returns their number.
class PageSelector {
 public:
  explicit PageSelector(int max_pages);

  /// The `budget` best of `scores`, no page forced. Expected time O(pages): radix selection on order keys.
  int best(std::span<const float> scores, int budget, int32_t* selected);
  /// kTopK.
  int top_k(std::span<const float> scores, const Attributes& attributes, int32_t* selected);
  /// kApproxTopK (Vortex, sections 5.2 and 11.2): one histogram over bins that a monotonic map of the scores evens out; scores
  /// that a sample finds far too low are left out of it (all are searched exactly if that leaves too few). If the pages above the
  /// bin in which the budget ends are at least (1 - tolerate) of it, the others are drawn from that bin at random
  /// (kernels/device/random.h; `key` of RandomPurpose::kApproxTopK), else the bin is searched exactly. Forced pages are not
  /// counted.
  int approx_top_k(std::span<const float> scores, const Attributes& attributes, uint64_t key, int32_t* selected);
  /// kThreshold. No page passes a bound that is NaN.
  int threshold(std::span<const float> scores, float bound, const Attributes& attributes, int32_t* selected);
  /// kTopP. Weights are summed in float64, those that are taken from the largest on.
  int top_p(std::span<const float> weights, const Attributes& attributes, int32_t* selected);

  size_t bytes() const;

 private:
  static constexpr int kMaxBins = 2048;

  /// Scores greater than `key` are taken, and of those equal to it the first `ties`.
  struct Cut {
    uint32_t key = 0;
    int ties = 0;
  };
  /// Cut that takes `budget` of `keys`, 0 < budget < keys.size(). Leaves `keys` as they are.
  Cut cut_of(std::span<const uint32_t> keys, int budget);
  static Cut cut_of_few(std::span<const uint32_t> keys, int budget);
  /// Best `budget` of pages [begin, end), appended at `selected`.
  int best_between(std::span<const float> scores, int begin, int end, int budget, int32_t* selected);
  int approx_between(std::span<const float> scores, int begin, int end, int budget, double tolerate, uint64_t key,
                     int32_t* selected);

  std::vector<uint32_t> keys_;
  std::vector<uint32_t> candidates_;
  std::vector<uint32_t> ranks_;
  std::vector<int32_t> members_;
  std::vector<float> kept_;
  std::vector<int32_t> places_;
  std::array<uint32_t, kMaxBins> histogram_{};
};

/// kWindow.
int select_window(int pages, const Attributes& attributes, int32_t* selected);
/// kUnion of two ascending selections.
int select_union(std::span<const int32_t> a, std::span<const int32_t> b, int32_t* selected);
/// Every page.
int select_all(int pages, int32_t* selected);

}  // namespace sluice::cpu
