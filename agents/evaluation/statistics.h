#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

struct Interval {
  double low = 0;
  double high = 0;
};

/// The samples of one document (or the generations of one problem).
struct Cluster {
  double credit = 0;  // sum of the samples': each from 0 to 1
  int samples = 0;
  double spare = 0;  // sum of c (1 - c) over these: by so much the squares of shares c vary less than those of all or nothing

  void add(double share) {
    credit += share;
    ++samples;
    spare += share * (1 - share);
  }
  bool operator==(const Cluster&) const = default;
};

/// Over all samples; 0 of none.
double mean_credit(std::span<const Cluster> clusters);

/// Wilson's score interval, 95 %, for `successes` of `samples` (Wilson 1927). Both may be fractional (credit of an effective
/// number), and `samples` must be positive.
Interval wilson(double successes, double samples);

/// Variance of the mean of clustered samples over that of independent ones that vary as much, at least 1: 1 + (m - 1) * icc with
/// the one-way analysis-of-variance estimate of the intraclass correlation (Kish 1965; Donner and Klar 2000).
double design_effect(std::span<const Cluster> clusters);

/// Wilson's interval with the samples divided by the design effect: questions about one document are not independent. Shares of
/// credit vary less than all or nothing, and count as so many more samples.
Interval clustered_wilson(std::span<const Cluster> clusters);

/// The same over several tasks, each with a design effect of its own: that tasks differ is no likeness of their samples. The
/// effective number of samples is n^2 / sum(n_i * effect_i).
Interval pooled_wilson(std::span<const std::vector<Cluster>> tasks);

/// The interval of the mean of several tasks, each of which counts alike, however many samples it has: Wilson's, with as many
/// samples as would leave a single share the variance of this mean (after Yan and Su 2010). Samples of a task are divided by its
/// design effect, or by that which the correlation within documents of all tasks gives, whichever is larger: few documents tell
/// little of theirs. Shares of credit vary less than all or nothing (Cluster::spare). Shares in variances are drawn to the middle
/// by two samples, since a task without a mistake may yet make some, and few documents widen it as Student's t does
/// (Satterthwaite's degrees of freedom). Every task has samples.
Interval mean_wilson(std::span<const std::vector<Cluster>> tasks);

/// A number with its 95 % interval, that counts `weight` in a sum.
struct Estimate {
  double value = 0;
  Interval interval;
  double weight = 1;
};

/// The weighted sum of independent estimates; its interval reaches as far as the roots of the sums of squares of what theirs do,
/// to each side (MOVER: Zou and Donner 2008), so that it need not be symmetric. `weight` is 1.
Estimate weighted_sum(std::span<const Estimate> estimates);

/// How often the m-th of any number of intervals may miss, so that all of them hold together 95 times of a hundred, whatever is
/// asked for next because of those before: 0.05 / (m (m + 1)), which adds up to 0.05 (alpha spending). `m` is from 1.
double miss_of_try(int64_t m);

/// Where an interval is as long to both sides, so that it is widened there.
enum class IntervalScale : uint8_t {
  kShare,  // log-odds
  kRatio,  // logarithms
  kPlain,
};

/// A 95 % interval of `value`, widened to miss as often as `miss` says, by r, the ratio of the normal quantiles. A half-width h
/// becomes r h; that of a share, which is h in log-odds, 2 asinh(r sinh(h / 2)): so Wilson's interval becomes that of the same
/// samples at the other level, also at 0 and 1 (Newcombe 1998, "Two-sided confidence intervals", has its symmetry in log-odds).
/// What does not fit its scale, such as a share below 0, is widened plainly. `miss` is above 0 and at most 0.05.
Interval widened(double value, const Interval& interval, double miss, IntervalScale scale);

/// Two-sided exact sign-flip test: how likely is a sum at least as far from 0 as that of `differences` if each of them could as
/// well have had the other sign. With the difference in credit of each document it compares two answerers of the same questions;
/// where each document has one question that is right or wrong it is McNemar's exact test. Time grows with the number of
/// differences times their sum, once their common divisor is taken out: beyond 2^27 they are rounded, and the test is no longer
/// exact.
double sign_flip(std::span<const int> differences);

/// The 95 % interval of the mean of `values`, at least two. Of eight or more by the bootstrap: percentiles of the means of
/// samples drawn with replacement, at levels that make up for few values (the expanded percentile interval: Hesterberg 2015,
/// section 4.4), the same for every call. Of fewer, whose samples are too few, by Student's t.
Interval bootstrap_mean(std::span<const double> values);

struct Ratio {
  double ratio = 0;
  double low = 0;
  double high = 0;
};

/// Sum of `slow` over sum of `fast`, with a 95 % interval from the spread of the pairs (slow[i], fast[i]): Student's t on the
/// linearised ratio (Cochran 1977, section 6.3). Both have the same length, at least two, and positive entries.
Ratio paired_ratio(std::span<const double> slow, std::span<const double> fast);

/// Ratios of several things that were each timed in pairs, and the ratio of all.
struct PairedRatios {
  std::vector<Ratio> each;
  Ratio all;  // their geometric mean: each counts alike, however long it takes
};

/// One thing's times: as many of `slow` as of `fast`, one at least, all positive.
struct TimedPairs {
  std::vector<double> slow;
  std::vector<double> fast;
};

/// Geometric means of slow over fast, with 95 % intervals from the spread of the pairs' logarithms, which is taken to be the same
/// for all things (pooled; Student's t). Two pairs of one thing at least.
PairedRatios paired_ratios(std::span<const TimedPairs> things);

/// Unbiased estimate of the probability that at least one of `k` generations is right, from `correct` of `samples`
/// (Chen et al. 2021, Codex): 1 - C(samples - correct, k) / C(samples, k). 1 <= k <= samples.
double pass_at_k(int samples, int correct, int k);

}  // namespace sluice
