#include "agents/evaluation/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <numeric>
#include <random>

#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr double kNormal975 = 1.959963984540054;  // the 97.5 % point of the standard normal distribution
constexpr double kMiss = 0.05;                    // of a 95 % interval

/// P(|T| <= t) of Student's distribution (Abramowitz and Stegun 26.7.3 and 26.7.4).
double student_within(double t, int freedom) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(freedom)));
  const double square = std::cos(angle) * std::cos(angle);
  const bool odd = freedom % 2 == 1;
  double term = odd ? std::cos(angle) : 1;
  double sum = 0;
  for (int i = odd ? 3 : 2; i <= freedom; i += 2) {
    sum += term;
    term *= square * (i - 1) / i;
  }
  return odd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
}

/// Sums over the clusters of a task.
struct Totals {
  double samples = 0;
  double credit = 0;
  double squares = 0;  // of their samples
  double spare = 0;

  explicit Totals(std::span<const Cluster> clusters) {
    for (const Cluster& cluster : clusters) {
      samples += cluster.samples;
      credit += cluster.credit;
      squares += static_cast<double>(cluster.samples) * cluster.samples;
      spare += cluster.spare;
    }
  }
  double mean() const { return credit / samples; }
  /// By how much less credits vary than if each were all or nothing, 1 at most: drawn to that by two samples, which few mistakes
  /// tell nothing of, around the share `middle`.
  double variation(double middle) const {
    const double prior = 2 * middle * (1 - middle);
    const double whole = samples * mean() * (1 - mean());
    return whole + prior <= 0 ? 1 : std::clamp((whole - spare + prior) / (whole + prior), 0.0, 1.0);
  }
  double drawn_mean() const { return (credit + 1) / (samples + 2); }
};

/// What tells samples of one cluster from samples of several: sums of squares between and within clusters, of one task or more.
class Spread {
 public:
  /// Of one cluster it tells nothing, nor of clusters of one sample.
  void add(std::span<const Cluster> clusters) {
    const Totals all(clusters);
    const auto count = static_cast<double>(clusters.size());
    if (count < 2 || all.samples <= count) return;
    for (const Cluster& cluster : clusters) {
      if (cluster.samples == 0) continue;
      const double p = cluster.credit / cluster.samples;
      between_ += cluster.samples * (p - all.mean()) * (p - all.mean());
      within_ += std::max(0.0, cluster.samples * p * (1 - p) - cluster.spare);
    }
    clusters_ += count - 1;
    samples_ += all.samples - count;
    size_ += all.samples - all.squares / all.samples;
  }
  /// The intraclass correlation, from 0 to 1; 0 where nothing is known.
  double correlation() const {
    if (clusters_ <= 0 || samples_ <= 0) return 0;
    const double between = between_ / clusters_;
    const double within = within_ / samples_;
    const double denominator = between + (size_ / clusters_ - 1) * within;
    return denominator <= 0 ? 0 : std::clamp((between - within) / denominator, 0.0, 1.0);
  }

 private:
  double between_ = 0;
  double within_ = 0;
  double clusters_ = 0;  // degrees of freedom
  double samples_ = 0;
  double size_ = 0;
};

/// Of samples with that correlation within clusters.
double effect_of(const Totals& all, double correlation) { return 1 + (all.squares / all.samples - 1) * correlation; }

/// The 97.5 % point of Student's distribution.
double student975(int freedom) {
  double low = 0;
  double high = 16;  // more than 12.7, which belongs to one degree of freedom
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (student_within(middle, freedom) < 0.95 ? low : high) = middle;
  }
  return high;
}

/// The point that a standard normal number is beyond, to either side, as often as `miss` says.
double normal_beyond(double miss) {
  double low = 0;
  double high = 38;  // beyond it there is nothing that a double could tell from 0
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) > miss ? low : high) = middle;
  }
  return high;
}

/// A bound of a share, `factor` times as far: see `widened`.
double widened_bound(double share, double bound, double factor) {
  if (bound == share || bound <= 0 || bound >= 1) return bound;
  const double odds = bound / (1 - bound);
  double wider = 0;
  if (share <= 0 || share >= 1) {
    wider = share <= 0 ? odds * factor * factor : odds / (factor * factor);
  } else {
    const double half = std::log(odds * (1 - share) / share) / 2;
    wider = share / (1 - share) * std::exp(2 * std::asinh(factor * std::sinh(half)));
  }
  return std::isinf(wider) ? 1 : wider / (1 + wider);
}

bool is_share(double value) { return value >= 0 && value <= 1; }

}  // namespace

double mean_credit(std::span<const Cluster> clusters) {
  const Totals all(clusters);
  return all.samples > 0 ? all.mean() : 0;
}

Interval wilson(double successes, double samples) {
  if (samples <= 0 || successes < 0 || successes > samples) throw InternalError("an interval for impossible counts");
  const double p = successes / samples;
  const double z2 = kNormal975 * kNormal975;
  const double centre = p + z2 / (2 * samples);
  const double spread = kNormal975 * std::sqrt(p * (1 - p) / samples + z2 / (4 * samples * samples));
  const double scale = 1 + z2 / samples;
  // At the ends the bounds are 0 and 1 exactly; rounding must not move them.
  return {successes == 0 ? 0 : std::max(0.0, (centre - spread) / scale),
          successes == samples ? 1 : std::min(1.0, (centre + spread) / scale)};
}

double design_effect(std::span<const Cluster> clusters) {
  Spread spread;
  spread.add(clusters);
  const Totals all(clusters);
  return all.samples > 0 ? effect_of(all, spread.correlation()) : 1;
}

Interval clustered_wilson(std::span<const Cluster> clusters) {
  const std::vector<Cluster> task(clusters.begin(), clusters.end());
  return pooled_wilson({&task, 1});
}

Interval pooled_wilson(std::span<const std::vector<Cluster>> tasks) {
  double n = 0;
  double credit = 0;
  double inflated = 0;
  for (const std::vector<Cluster>& clusters : tasks) {
    const Totals all(clusters);
    n += all.samples;
    credit += all.credit;
    if (all.samples > 0) inflated += all.samples * design_effect(clusters) * all.variation(all.drawn_mean());
  }
  if (n <= 0) throw InternalError("an interval of no samples");
  // Variances add: that of the pooled share is pq times the sum of samples * effect, over n^2.
  const double effective = n * n / inflated;
  // All or none must stay so after scaling.
  return wilson(credit == n ? effective : credit * (effective / n), effective);
}

Interval mean_wilson(std::span<const std::vector<Cluster>> tasks) {
  Spread spread;
  for (const std::vector<Cluster>& task : tasks) spread.add(task);
  const double common = spread.correlation();
  const auto count = static_cast<double>(tasks.size());
  double mean = 0;
  double drawn = 0;     // the mean of shares that are drawn to the middle
  double variance = 0;  // of the mean
  double freedom = 0;   // of which the degrees of freedom are the inverse, times the variance squared
  for (const std::vector<Cluster>& task : tasks) {
    const Totals all(task);
    if (all.samples <= 0) throw InternalError("an interval of a task without samples");
    const double samples = all.samples / std::max(design_effect(task), effect_of(all, common));
    const double share = (all.mean() * samples + 1) / (samples + 2);
    const double own = share * (1 - share) * all.variation(share) / samples / (count * count);
    mean += all.mean() / count;
    drawn += share / count;
    variance += own;
    const double units = task.size() > 1 ? static_cast<double>(task.size()) : all.samples;
    freedom += own * own / std::max(1.0, units - 1);
  }
  if (tasks.empty()) throw InternalError("an interval of no task");
  const double widened = student975(static_cast<int>(variance * variance / freedom)) / kNormal975;
  const double effective = drawn * (1 - drawn) / (variance * widened * widened);
  mean = std::clamp(mean, 0.0, 1.0);  // sums of shares are rounded
  return wilson(mean == 1 ? effective : mean * effective, effective);
}

Estimate weighted_sum(std::span<const Estimate> estimates) {
  Estimate sum;
  double below = 0;
  double above = 0;
  for (const Estimate& one : estimates) {
    sum.value += one.weight * one.value;
    const double to_low = one.weight * (one.value - one.interval.low);
    const double to_high = one.weight * (one.interval.high - one.value);
    below += one.weight > 0 ? to_low * to_low : to_high * to_high;
    above += one.weight > 0 ? to_high * to_high : to_low * to_low;
  }
  sum.interval = {sum.value - std::sqrt(below), sum.value + std::sqrt(above)};
  return sum;
}

double miss_of_try(int64_t m) {
  if (m < 1) throw InternalError("tries are counted from 1");
  const auto number = static_cast<double>(m);
  return kMiss / (number * (number + 1));
}

Interval widened(double value, const Interval& interval, double miss, IntervalScale scale) {
  if (miss <= 0 || miss > kMiss) throw InternalError("an interval that is not to be widened");
  const double factor = normal_beyond(miss) / kNormal975;
  if (scale == IntervalScale::kShare && is_share(value) && is_share(interval.low) && is_share(interval.high)) {
    return {widened_bound(value, interval.low, factor), widened_bound(value, interval.high, factor)};
  }
  if (scale == IntervalScale::kRatio && value > 0 && interval.low > 0 && interval.high > 0) {
    return {value * std::pow(interval.low / value, factor), value * std::pow(interval.high / value, factor)};
  }
  return {value - factor * (value - interval.low), value + factor * (interval.high - value)};
}

double sign_flip(std::span<const int> differences) {
  constexpr double kMostSteps = 1 << 27;
  double divisor = 0;
  for (const int difference : differences) divisor = std::gcd(static_cast<int>(divisor), difference);
  if (divisor == 0) return 1;
  double steps = 0;
  for (const int difference : differences) steps += std::abs(difference) / divisor * static_cast<double>(differences.size());
  divisor *= std::max(1.0, steps / kMostSteps);
  std::vector<int> scaled;
  size_t total = 0;
  int64_t sum = 0;
  for (const int difference : differences) {
    scaled.push_back(static_cast<int>(std::lround(difference / divisor)));
    total += static_cast<size_t>(std::abs(scaled.back()));
    sum += scaled.back();
  }
  const auto observed = static_cast<size_t>(std::abs(sum));
  // positive[t]: the probability that those with a positive sign add up to t; the sum of all is then 2t - total.
  std::vector<double> positive(total + 1, 0);
  positive[0] = 1;
  size_t reach = 0;
  for (const int difference : scaled) {
    const auto size = static_cast<size_t>(std::abs(difference));
    if (size == 0) continue;
    reach += size;
    for (size_t t = reach + 1; t-- > 0;) positive[t] = (positive[t] + (t >= size ? positive[t - size] : 0)) / 2;
  }
  double tail = 0;
  for (size_t t = 0; t <= total; ++t) {
    const size_t distance = 2 * t > total ? 2 * t - total : total - 2 * t;
    if (distance >= observed) tail += positive[t];
  }
  return std::min(1.0, tail);
}

Interval bootstrap_mean(std::span<const double> values) {
  constexpr int kSamples = 4000;
  constexpr size_t kFew = 8;
  if (values.size() < 2) throw InternalError("an interval of one value");
  const auto count = static_cast<double>(values.size());
  const double t = student975(static_cast<int>(values.size()) - 1);
  if (values.size() < kFew) {
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    const double spread = t * std::sqrt(squares / (count * (count - 1)));
    return {mean - spread, mean + spread};
  }
  std::mt19937_64 random(0x5eed);  // whose numbers the standard fixes; distributions it does not
  std::vector<double> means(kSamples);
  for (double& mean : means) {
    for (size_t i = 0; i < values.size(); ++i) mean += values[random() % values.size()] / count;
  }
  std::sort(means.begin(), means.end());
  const double spread = std::sqrt(count / (count - 1)) * t;
  const double level = std::erfc(spread / std::numbers::sqrt2) / 2;
  const auto tail = static_cast<size_t>(level * kSamples);
  return {means[tail], means[kSamples - 1 - tail]};
}

Ratio paired_ratio(std::span<const double> slow, std::span<const double> fast) {
  if (slow.size() != fast.size() || slow.size() < 2) throw InternalError("a ratio wants two pairs at least");
  const double above = std::accumulate(slow.begin(), slow.end(), 0.0);
  const double below = std::accumulate(fast.begin(), fast.end(), 0.0);
  const double ratio = above / below;
  const auto n = static_cast<double>(slow.size());
  double squares = 0;
  for (size_t i = 0; i < slow.size(); ++i) {
    const double residual = slow[i] - ratio * fast[i];
    squares += residual * residual;
  }
  // The ratio's error is, to first order, that of the mean residual over the mean of `fast`.
  const double error = std::sqrt(squares / (n * (n - 1))) / (below / n);
  const double spread = student975(static_cast<int>(slow.size()) - 1) * error;
  return {ratio, std::max(0.0, ratio - spread), ratio + spread};
}

PairedRatios paired_ratios(std::span<const TimedPairs> things) {
  std::vector<double> means;
  double squares = 0;
  int freedom = 0;
  double variance = 0;  // of the mean of all, in units of a pair's
  for (const TimedPairs& thing : things) {
    if (thing.slow.size() != thing.fast.size() || thing.slow.empty()) throw InternalError("times that are no pairs");
    std::vector<double> logs;
    for (size_t i = 0; i < thing.slow.size(); ++i) logs.push_back(std::log(thing.slow[i] / thing.fast[i]));
    means.push_back(std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size()));
    for (const double value : logs) squares += (value - means.back()) * (value - means.back());
    freedom += static_cast<int>(logs.size()) - 1;
    variance += 1 / static_cast<double>(logs.size());
  }
  if (freedom == 0) throw InternalError("ratios want two pairs of one thing at least");
  const auto n = static_cast<double>(things.size());
  const double spread = student975(freedom) * std::sqrt(squares / freedom);
  const auto ratio_of = [spread](double mean, double share) {
    const double error = spread * std::sqrt(share);
    return Ratio{std::exp(mean), std::exp(mean - error), std::exp(mean + error)};
  };
  PairedRatios ratios;
  for (size_t i = 0; i < means.size(); ++i) {
    ratios.each.push_back(ratio_of(means[i], 1 / static_cast<double>(things[i].slow.size())));
  }
  ratios.all = ratio_of(std::accumulate(means.begin(), means.end(), 0.0) / n, variance / (n * n));
  return ratios;
}

double pass_at_k(int samples, int correct, int k) {
  if (k < 1 || k > samples || correct < 0 || correct > samples) throw InternalError("pass@k of impossible counts");
  if (samples - correct < k) return 1;
  double none = 1;
  for (int i = samples - correct + 1; i <= samples; ++i) none *= 1 - static_cast<double>(k) / i;
  return 1 - none;
}

}  // namespace sluice
