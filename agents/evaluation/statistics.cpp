#include "agents/evaluation/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "scripting/graph/error.h"

namespace sluice {
namespace {

constexpr double kNormal975 = 1.959963984540054;  // the 97.5 % point of the standard normal distribution
constexpr int kResamples = 4000;

double log_choose(int n, int k) { return std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0); }

}  // namespace

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
  double n = 0;
  double successes = 0;
  double squares = 0;
  for (const Cluster& cluster : clusters) {
    n += cluster.samples;
    successes += cluster.successes;
    squares += static_cast<double>(cluster.samples) * cluster.samples;
  }
  const double count = static_cast<double>(clusters.size());
  if (count < 2 || n <= count) return 1;
  const double mean = successes / n;
  double between = 0;
  double within = 0;
  for (const Cluster& cluster : clusters) {
    if (cluster.samples == 0) continue;
    const double p = static_cast<double>(cluster.successes) / cluster.samples;
    between += cluster.samples * (p - mean) * (p - mean);
    within += cluster.samples * p * (1 - p);
  }
  between /= count - 1;
  within /= n - count;
  const double size = (n - squares / n) / (count - 1);
  const double denominator = between + (size - 1) * within;
  if (denominator <= 0) return 1;
  const double icc = std::clamp((between - within) / denominator, 0.0, 1.0);
  return 1 + (squares / n - 1) * icc;
}

Interval clustered_wilson(std::span<const Cluster> clusters) {
  const std::vector<Cluster> task(clusters.begin(), clusters.end());
  return pooled_wilson({&task, 1});
}

Interval pooled_wilson(std::span<const std::vector<Cluster>> tasks) {
  double n = 0;
  double successes = 0;
  double effective = 0;
  for (const std::vector<Cluster>& clusters : tasks) {
    double samples = 0;
    for (const Cluster& cluster : clusters) {
      samples += cluster.samples;
      successes += cluster.successes;
    }
    n += samples;
    effective += samples / design_effect(clusters);
  }
  if (n <= 0) throw InternalError("an interval of no samples");
  // All or none must stay so after scaling.
  return wilson(successes == n ? effective : successes * (effective / n), effective);
}

double mcnemar(int only_first, int only_second) {
  const int n = only_first + only_second;
  const int fewer = std::min(only_first, only_second);
  if (only_first == only_second) return 1;
  double tail = 0;
  for (int i = 0; i <= fewer; ++i) tail += std::exp(log_choose(n, i) - n * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

Ratio paired_ratio(std::span<const double> slow, std::span<const double> fast) {
  if (slow.size() != fast.size() || slow.empty()) throw InternalError("pairs of different lengths");
  std::mt19937_64 random(0x5111ceULL);
  std::uniform_int_distribution<size_t> index(0, slow.size() - 1);
  const auto sum = [](std::span<const double> values) {
    double total = 0;
    for (const double value : values) total += value;
    return total;
  };
  std::vector<double> ratios;
  ratios.reserve(kResamples);
  for (int i = 0; i < kResamples; ++i) {
    double above = 0;
    double below = 0;
    for (size_t j = 0; j < slow.size(); ++j) {
      const size_t pair = index(random);
      above += slow[pair];
      below += fast[pair];
    }
    ratios.push_back(above / below);
  }
  std::sort(ratios.begin(), ratios.end());
  const auto quantile = [&](double q) { return ratios[static_cast<size_t>(std::lround(q * (kResamples - 1)))]; };
  return {sum(slow) / sum(fast), quantile(0.025), quantile(0.975)};
}

double pass_at_k(int samples, int correct, int k) {
  if (k < 1 || k > samples || correct < 0 || correct > samples) throw InternalError("pass@k of impossible counts");
  if (samples - correct < k) return 1;
  double none = 1;
  for (int i = samples - correct + 1; i <= samples; ++i) none *= 1 - static_cast<double>(k) / i;
  return 1 - none;
}

}  // namespace sluice
