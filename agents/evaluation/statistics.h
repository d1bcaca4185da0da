#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

struct Interval {
  double low = 0;
  double high = 0;
};

/// Successes among the samples of one document (or the generations of one problem).
struct Cluster {
  int successes = 0;
  int samples = 0;
};

/// Wilson's score interval, 95 %, for `successes` of `samples` (Wilson 1927). `samples` may be fractional (an effective
/// number) and must be positive.
Interval wilson(double successes, double samples);

/// Variance of the mean of clustered samples over that of independent ones, at least 1: 1 + (m - 1) * icc with the
/// one-way analysis-of-variance estimate of the intraclass correlation (Kish 1965; Donner and Klar 2000).
double design_effect(std::span<const Cluster> clusters);

/// Wilson's interval with the samples divided by the design effect: questions about one document are not independent.
Interval clustered_wilson(std::span<const Cluster> clusters);

/// The same over several tasks, each with a design effect of its own: that tasks differ is no likeness of their samples.
Interval pooled_wilson(std::span<const std::vector<Cluster>> tasks);

/// Two-sided exact McNemar test: how likely are discordant pairs at least as uneven as (`only_first`, `only_second`) if both are
/// equally good.
double mcnemar(int only_first, int only_second);

struct Ratio {
  double ratio = 0;
  double low = 0;
  double high = 0;
};

/// Sum of `slow` over sum of `fast`, with a 95 % percentile bootstrap interval over the pairs (slow[i], fast[i]).
/// Deterministic: resampling uses a fixed stream. Both have the same length, at least one, and positive entries.
Ratio paired_ratio(std::span<const double> slow, std::span<const double> fast);

/// Unbiased estimate of the probability that at least one of `k` generations is right, from `correct` of `samples`
/// (Chen et al. 2021, Codex): 1 - C(samples - correct, k) / C(samples, k). 1 <= k <= samples.
double pass_at_k(int samples, int correct, int k);

}  // namespace sluice
