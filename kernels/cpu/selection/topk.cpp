#include "kernels/cpu/selection/topk.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/cpu/selection/topk_kernels.h"
#include "kernels/device/random.h"
#include "scripting/base/error.h"

namespace sluice::cpu {

namespace {

/// Vectors may be stored whole behind the last entry.
constexpr size_t kSlack = 64;

/// Wider digits need fewer passes, but clearing and scanning their histogram must be worth it.
constexpr int kLongRow = 4096;
int digit_bits(size_t count) { return count < kLongRow ? 8 : 11; }

/// Bin, from the top of `histogram`, at which the count from above reaches `budget`; `above` gets the count above it.
template <class Counts>
int crossing_bin(const Counts& histogram, int bins, int budget, int& above) {
  constexpr int kBlock = 16;
  above = 0;
  int bin = bins - 1;
  // Whole blocks first: their sums are vector instructions.
  for (; bin >= kBlock; bin -= kBlock) {
    uint32_t sum = 0;
    for (int i = 0; i < kBlock; ++i) sum += histogram[bin - i];
    if (above + static_cast<int>(sum) >= budget) break;
    above += static_cast<int>(sum);
  }
  for (; bin > 0 && above + static_cast<int>(histogram[bin]) < budget; --bin) above += static_cast<int>(histogram[bin]);
  return bin;
}

/// So few keys are better sorted than counted.
constexpr size_t kFew = 32;

/// Scores below `floor` are left out; the others go to bin scale * (score - low).
struct Remap {
  float floor = -std::numeric_limits<float>::infinity();
  float low = 0;
  float scale = 1;
};

/// `low` and `scale` for bins that span [low, high]. Bounds that are all alike, or beyond float32, leave nothing to even out:
/// any scale will do for them.
Remap spanning(float floor, double low, double high, int bins) {
  const auto start = static_cast<float>(low);
  const auto scale = static_cast<float>((bins - 2) / (high - low));
  return std::isfinite(start) && std::isnormal(scale) ? Remap{floor, start, scale} : Remap{floor, 0, 1};
}

/// Bins around the mean of a sample, in units of its deviation. For rows too short to be worth sorting a sample of. The sums are
/// trees, as threads that add in pairs make them.
Remap remap_by_deviation(std::span<const float> scores, int bins) {
  constexpr size_t kSamples = 32;
  constexpr double kBelow = 2;  // deviations that the bins span
  constexpr double kAbove = 4;
  std::array<double, 2 * kSamples> sums{};  // fewer scores are sampled
  std::array<double, 2 * kSamples> squares{};
  const size_t step = std::max<size_t>(1, scores.size() / kSamples);
  int sampled = 0;
  for (size_t i = 0; i * step < scores.size(); ++i) {
    const double score = scores[i * step];
    if (!std::isfinite(score)) continue;
    sums[i] = score;
    squares[i] = score * score;
    ++sampled;
  }
  if (sampled == 0) return {};
  for (size_t half = kSamples; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) {
      sums[i] += sums[i + half];
      squares[i] += squares[i + half];
    }
  }
  const double mean = sums[0] / sampled;
  const double deviation = std::sqrt(std::max(0.0, squares[0] / sampled - mean * mean));
  return spanning(Remap{}.floor, mean - kBelow * deviation, mean + kAbove * deviation, bins);
}

/// Leaves out what a sample says is not among the best `budget`, and spreads the bins over the rest.
Remap remap_by_rank(std::span<const float> scores, int budget, int bins) {
  constexpr size_t kRuns = 32;  // places that the sample is read from: each is a cache miss
  constexpr size_t kRun = 8;
  constexpr size_t kSamples = kRuns * kRun;
  std::array<float, kSamples> sample{};
  for (size_t run = 0; run < kRuns; ++run) std::copy_n(scores.data() + run * (scores.size() / kRuns), kRun, &sample[run * kRun]);
  // The rank of the budget in the sample has a standard deviation of at most 8.
  const size_t rank = kSamples * budget / scores.size() * 5 / 4 + 16;
  const bool has_nan = std::any_of(sample.begin(), sample.end(), [](float score) { return std::isnan(score); });
  if (rank >= kSamples || has_nan) return remap_by_deviation(scores, bins);
  std::nth_element(sample.begin(), sample.begin() + rank, sample.end(), std::greater<>());
  const float floor = sample[rank];
  return spanning(floor, floor, *std::max_element(sample.begin(), sample.begin() + rank + 1), bins);
}

/// The lot of a page. The lowest and the highest of all numbers are none: the GPU's keys mean something else by these.
uint32_t drawn_rank(uint64_t key, int page) { return std::clamp<uint32_t>(random_bits(key, page), 1, UINT32_MAX - 1); }

int forced_pages(const Attributes& attributes, int pages) {
  return static_cast<int>(std::min<int64_t>(pages, int64_t{attributes.first} + attributes.last));
}

int append_range(int begin, int end, int32_t* selected) {
  std::iota(selected, selected + (end - begin), begin);
  return end - begin;
}

}  // namespace

int budget_of(const Attributes& attributes, int pages) {
  const int64_t fixed = int64_t{attributes.k} + attributes.first + attributes.last;
  const auto share = static_cast<int64_t>(std::ceil(attributes.ratio * pages));
  return static_cast<int>(std::min<int64_t>(pages, std::max(fixed, share)));
}

PageSelector::PageSelector(int max_pages)
    : keys_(max_pages + kSlack),
      candidates_(max_pages + kSlack),
      ranks_(max_pages + kSlack),
      members_(max_pages),
      kept_(max_pages + kSlack),
      places_(max_pages + kSlack) {}

size_t PageSelector::bytes() const {
  return sizeof(*this) + (keys_.size() + candidates_.size() + ranks_.size()) * sizeof(uint32_t) + kept_.size() * sizeof(float) +
         (members_.size() + places_.size()) * sizeof(int32_t);
}

PageSelector::Cut PageSelector::cut_of_few(std::span<const uint32_t> keys, int budget) {
  std::array<uint32_t, kFew> sorted{};
  const auto end = std::copy(keys.begin(), keys.end(), sorted.begin());
  std::sort(sorted.begin(), end, std::greater<>());
  const uint32_t key = sorted[budget - 1];
  return {key, budget - static_cast<int>(std::find(sorted.begin(), end, key) - sorted.begin())};
}

PageSelector::Cut PageSelector::cut_of(std::span<const uint32_t> keys, int budget) {
  const int width = digit_bits(keys.size());
  std::span<const uint32_t> left = keys;
  uint32_t prefix = 0;
  int known = 0;  // leading bits that `prefix` fixes
  while (true) {
    if (left.size() <= kFew) return cut_of_few(left, budget);
    const int bits = std::min(width, 32 - known);
    const int shift = 32 - known - bits;
    const uint32_t digit_mask = (1U << bits) - 1;
    std::fill_n(histogram_.begin(), size_t{1} << bits, 0U);
    for (const uint32_t key : left) ++histogram_[key >> shift & digit_mask];
    int above = 0;
    const int bin = crossing_bin(histogram_, 1 << bits, budget, above);
    budget -= above;
    prefix |= static_cast<uint32_t>(bin) << shift;
    known += bits;
    if (known == 32) return {prefix, budget};
    if (static_cast<int>(histogram_[bin]) == budget) return {prefix - 1, 0};  // the whole bin; not the lowest, as budget < keys
    const uint32_t mask = ~((1U << shift) - 1);
    // In place from the second round on: keys are kept at or before where they were read.
    const int kept = keep_matching(left.data(), static_cast<int>(left.size()), mask, prefix, candidates_.data());
    left = {candidates_.data(), static_cast<size_t>(kept)};
  }
}

int PageSelector::best_between(std::span<const float> scores, int begin, int end, int budget, int32_t* selected) {
  const int count = end - begin;
  if (budget <= 0) return 0;
  if (budget >= count) return append_range(begin, end, selected);
  order_keys(scores.data() + begin, count, keys_.data());
  const Cut cut = cut_of({keys_.data(), static_cast<size_t>(count)}, budget);
  return emit_above(keys_.data(), count, cut.key, cut.ties, begin, selected);
}

int PageSelector::best(std::span<const float> scores, int budget, int32_t* selected) {
  if (scores.size() + kSlack > keys_.size()) throw InternalError("page selector: more pages than it was made for");
  return best_between(scores, 0, static_cast<int>(scores.size()), budget, selected);
}

int PageSelector::top_k(std::span<const float> scores, const Attributes& attributes, int32_t* selected) {
  if (scores.size() + kSlack > keys_.size()) throw InternalError("page selector: more pages than it was made for");
  const int pages = static_cast<int>(scores.size());
  const int forced = forced_pages(attributes, pages);
  const int budget = budget_of(attributes, pages);
  if (budget == pages) return select_all(pages, selected);
  const int end = pages - attributes.last;
  int count = append_range(0, attributes.first, selected);
  count += best_between(scores, attributes.first, end, budget - forced, selected + count);
  return count + append_range(end, pages, selected + count);
}

int PageSelector::approx_between(std::span<const float> scores, int begin, int end, int budget, double tolerate, uint64_t key,
                                 int32_t* selected) {
  const int count = end - begin;
  if (budget <= 0) return 0;
  if (budget >= count) return append_range(begin, end, selected);
  const std::span<const float> values = scores.subspan(begin, count);
  const bool is_long = count >= kLongRow;
  const int bins = is_long ? kMaxBins : 256;
  const Remap remap = is_long ? remap_by_rank(values, budget, bins) : remap_by_deviation(values, bins);
  // Places in `binned` are places in `values`, unless some were left out.
  const bool filtered = remap.floor > Remap{}.floor;
  std::span<const float> binned = values;
  if (filtered) {
    const int kept = keep_at_least(values.data(), count, remap.floor, kept_.data(), places_.data());
    if (kept < budget) return best_between(scores, begin, end, budget, selected);
    binned = {kept_.data(), static_cast<size_t>(kept)};
  }
  const int left = static_cast<int>(binned.size());
  map_to_bins(binned.data(), left, remap.low, remap.scale, bins - 2, keys_.data());
  std::fill_n(histogram_.begin(), bins, 0U);
  for (int i = 0; i < left; ++i) ++histogram_[keys_[i]];
  int above = 0;
  const int bin = crossing_bin(histogram_, bins, budget, above);
  const int members = static_cast<int>(histogram_[bin]);
  int ties = budget - above;  // of the bin, to be taken in order
  if (ties < members) {
    // Rank the members of the bin by score, or by lot; those taken rise above it.
    find_equal(keys_.data(), left, static_cast<uint32_t>(bin), members_.data());
    const bool exact = above < (1 - tolerate) * budget;
    const auto page_of = [&](int place) { return begin + (filtered ? places_[place] : place); };
    for (int m = 0; m < members; ++m) {
      ranks_[m] = exact ? order_key(std::bit_cast<uint32_t>(binned[members_[m]])) : drawn_rank(key, page_of(members_[m]));
    }
    const std::span<const uint32_t> ranks(ranks_.data(), static_cast<size_t>(members));
    const bool all_tie = std::adjacent_find(ranks.begin(), ranks.end(), std::not_equal_to<>()) == ranks.end();
    if (!all_tie) {
      const Cut cut = cut_of(ranks, ties);
      for (int m = 0, equal = cut.ties; m < members; ++m) {
        if (ranks_[m] > cut.key || (ranks_[m] == cut.key && equal-- > 0)) keys_[members_[m]] = UINT32_MAX;
      }
      ties = 0;
    }
  }
  const int taken = emit_above(keys_.data(), left, static_cast<uint32_t>(bin), ties, filtered ? 0 : begin, selected);
  if (filtered) std::transform(selected, selected + taken, selected, [&](int32_t place) { return begin + places_[place]; });
  return taken;
}

int PageSelector::approx_top_k(std::span<const float> scores, const Attributes& attributes, uint64_t key, int32_t* selected) {
  if (scores.size() + kSlack > keys_.size()) throw InternalError("page selector: more pages than it was made for");
  const int pages = static_cast<int>(scores.size());
  const int forced = forced_pages(attributes, pages);
  const int budget = budget_of(attributes, pages);
  if (budget == pages) return select_all(pages, selected);
  const int end = pages - attributes.last;
  int count = append_range(0, attributes.first, selected);
  count += approx_between(scores, attributes.first, end, budget - forced, attributes.tolerate, key, selected + count);
  return count + append_range(end, pages, selected + count);
}

int PageSelector::threshold(std::span<const float> scores, float bound, const Attributes& attributes, int32_t* selected) {
  if (scores.size() + kSlack > keys_.size()) throw InternalError("page selector: more pages than it was made for");
  const int pages = static_cast<int>(scores.size());
  const int forced = forced_pages(attributes, pages);
  if (forced == pages) return select_all(pages, selected);
  const int begin = attributes.first;
  const int end = pages - attributes.last;
  const int most = attributes.max_pages > 0 ? std::max(attributes.max_pages - forced, 0) : pages;
  int passing = 0;
  for (int page = begin; page < end; ++page) passing += scores[page] > bound ? 1 : 0;
  int count = append_range(0, begin, selected);
  if (passing > most) {
    // Every page that passes ranks above every other, so the best of all are the best of those.
    count += best_between(scores, begin, end, most, selected + count);
  } else {
    for (int page = begin; page < end; ++page) {
      if (scores[page] > bound) selected[count++] = page;
    }
  }
  return count + append_range(end, pages, selected + count);
}

int PageSelector::top_p(std::span<const float> weights, const Attributes& attributes, int32_t* selected) {
  if (weights.size() + kSlack > keys_.size()) throw InternalError("page selector: more pages than it was made for");
  const int pages = static_cast<int>(weights.size());
  const int forced = forced_pages(attributes, pages);
  if (forced == pages) return select_all(pages, selected);
  const int begin = attributes.first;
  const int end = pages - attributes.last;
  const auto weight = [&](int page) { return weights[page] > 0 ? static_cast<double>(weights[page]) : 0.0; };
  double all = 0;
  double taken = 0;
  int candidates = 0;
  for (int page = 0; page < pages; ++page) {
    all += weight(page);
    if (page < begin || page >= end) {
      taken += weight(page);
    } else if (weight(page) > 0) {
      members_[candidates++] = page;
    }
  }
  const double wanted = attributes.value * all;
  const int most = attributes.max_pages > 0 ? std::max(attributes.max_pages - forced, 0) : pages;
  const auto after = [&](int32_t a, int32_t b) { return weights[a] != weights[b] ? weights[a] < weights[b] : a > b; };
  std::make_heap(members_.begin(), members_.begin() + candidates, after);
  int left = candidates;
  while (left > 0 && candidates - left < most && taken < wanted) {
    taken += weight(members_.front());
    std::pop_heap(members_.begin(), members_.begin() + left--, after);
  }
  std::sort(members_.begin() + left, members_.begin() + candidates);
  int count = append_range(0, begin, selected);
  count = static_cast<int>(std::copy(members_.begin() + left, members_.begin() + candidates, selected + count) - selected);
  return count + append_range(end, pages, selected + count);
}

int select_window(int pages, const Attributes& attributes, int32_t* selected) {
  if (forced_pages(attributes, pages) == pages) return select_all(pages, selected);
  const int count = append_range(0, attributes.first, selected);
  return count + append_range(pages - attributes.last, pages, selected + count);
}

int select_union(std::span<const int32_t> a, std::span<const int32_t> b, int32_t* selected) {
  return static_cast<int>(std::set_union(a.begin(), a.end(), b.begin(), b.end(), selected) - selected);
}

int select_all(int pages, int32_t* selected) { return append_range(0, pages, selected); }

}  // namespace sluice::cpu
