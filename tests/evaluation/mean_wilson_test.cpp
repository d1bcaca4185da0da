// What intervals of means of several tasks hold, in simulated runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "agents/evaluation/statistics.h"
#include "scripting/base/error.h"

namespace sluice::test {
namespace {

/// A run of a suite as it might be: tasks between two shares right, by dense attention and by a flow that loses some of these.
struct Design {
  int tasks, documents, questions;
  double low, high;       // shares that dense attention has right
  double lost;            // of what it has right
  double gained;          // of what it has wrong
  double likeness;        // of answers about a document
  double least, largest;  // shares of runs in which intervals are to have the truth
  int parts = 1;          // of an answer, each with its share of the credit
};

class SimulatedRun {
 public:
  SimulatedRun(const Design& design, std::mt19937& random) : design_(design), random_(random) {
    for (int task = 0; task < design.tasks; ++task) {
      const double right = design.low + (design.high - design.low) * task / std::max(1, design.tasks - 1);
      true_mean += right / design.tasks;
      true_difference += ((1 - right) * design.gained - right * design.lost) / design.tasks;
      ask(right);
    }
  }

  Interval mean() const { return mean_wilson(dense_); }
  Interval difference() const { return weighted_sum(std::vector<Estimate>{estimate(gains_, 1), estimate(losses_, -1)}).interval; }

  double true_mean = 0;
  double true_difference = 0;

 private:
  static Estimate estimate(const std::vector<std::vector<Cluster>>& tasks, double weight) {
    double mean = 0;
    for (const std::vector<Cluster>& task : tasks) {
      double credit = 0;
      double samples = 0;
      for (const Cluster& document : task) {
        credit += document.credit;
        samples += document.samples;
      }
      mean += credit / samples / static_cast<double>(tasks.size());
    }
    return {mean, mean_wilson(tasks), weight};
  }

  double draw() { return random_() / 4294967296.0; }
  /// Two answers with that likeness fall out alike so much more often than by chance.
  bool falls_out(double share, double common) { return (draw() < design_.likeness ? common : draw()) < share; }

  void ask(double right) {
    for (std::vector<std::vector<Cluster>>* const each : {&dense_, &gains_, &losses_}) each->emplace_back();
    for (int document = 0; document < design_.documents; ++document) {
      const double common = draw();
      const double common_change = draw();
      Cluster dense;
      Cluster gained;
      Cluster lost;
      for (int question = 0; question < design_.questions; ++question) {
        double has = 0;
        double becomes = 0;
        for (int part = 0; part < design_.parts; ++part) {
          const bool is_right = falls_out(right, common);
          const bool changes = falls_out(is_right ? design_.lost : design_.gained, common_change);
          has += is_right ? 1.0 / design_.parts : 0;
          becomes += is_right != changes ? 1.0 / design_.parts : 0;
        }
        dense.add(has);
        gained.add(std::max(becomes - has, 0.0));
        lost.add(std::max(has - becomes, 0.0));
      }
      dense_.back().push_back(dense);
      gains_.back().push_back(gained);
      losses_.back().push_back(lost);
    }
  }

  const Design& design_;
  std::mt19937& random_;
  std::vector<std::vector<Cluster>> dense_, gains_, losses_;
};

TEST(MeanWilson, CoversMeansAndDifferencesInNinetyFiveOfAHundredRuns) {
  constexpr int kRuns = 2000;
  std::mt19937 random(11);
  for (const Design& design : {Design{5, 40, 4, 0.5, 1, 0.1, 0.02, 0.2, 0.93, 0.97},
                               {5, 40, 1, 0.5, 0.95, 0.2, 0.1, 0, 0.93, 0.97},
                               {6, 40, 8, 0.2, 0.9, 0.3, 0.05, 0.3, 0.93, 0.98},
                               {3, 40, 8, 0.3, 0.7, 0.2, 0.1, 0.5, 0.93, 0.98},
                               {8, 6, 8, 0.4, 1, 0.2, 0.05, 0.2, 0.93, 0.99},  // few documents
                               {5, 40, 4, 0.9, 1, 0, 0, 0.2, 0.93, 1},         // nothing changes
                               {4, 12, 8, 0.97, 1, 0.05, 0, 0.2, 0.92, 0.99},  // few mistakes
                               {6, 20, 4, 0.1, 0.4, 0.3, 0.05, 0.1, 0.93, 0.97, 4},
                               {6, 20, 4, 0.9, 1, 0.1, 0, 0.1, 0.93, 0.985, 4},
                               {2, 40, 3, 0.2, 0.9, 0.8, 0, 0.2, 0.93, 0.985, 8}}) {
    int means = 0;
    int differences = 0;
    for (int run = 0; run < kRuns; ++run) {
      const SimulatedRun simulated(design, random);
      const Interval mean = simulated.mean();
      const Interval difference = simulated.difference();
      means += mean.low <= simulated.true_mean && simulated.true_mean <= mean.high;
      differences += difference.low <= simulated.true_difference && simulated.true_difference <= difference.high;
    }
    const std::string which = std::to_string(design.tasks) + " tasks of " + std::to_string(design.documents) + " documents, " +
                              std::to_string(design.low) + " and more right";
    for (const int covered : {means, differences}) {
      EXPECT_GE(covered, design.least * kRuns) << which;
      EXPECT_LE(covered, design.largest * kRuns) << which;
    }
  }
}

TEST(MeanWilson, OfOneTaskIsWiderThanWilsonsByStudentsTAlone) {
  std::vector<Cluster> one;
  for (int i = 0; i < 4000; ++i) one.push_back({i % 3 == 0 ? 1.0 : 0.0, 1});
  const Interval mean = mean_wilson(std::vector<std::vector<Cluster>>{one});
  const Interval alone = clustered_wilson(one);
  EXPECT_NEAR(mean.low, alone.low, 1e-4);
  EXPECT_NEAR(mean.high, alone.high, 1e-4);
}

TEST(MeanWilson, HasItsEndsAtNothingAndAll) {
  const std::vector<std::vector<Cluster>> all(3, std::vector<Cluster>(4, {2, 2}));
  const std::vector<std::vector<Cluster>> nothing(3, std::vector<Cluster>(4, {0, 2}));
  EXPECT_EQ(mean_wilson(all).high, 1);
  EXPECT_LT(mean_wilson(all).low, 1);
  EXPECT_EQ(mean_wilson(nothing).low, 0);
  EXPECT_GT(mean_wilson(nothing).high, 0);
  EXPECT_THROW(mean_wilson({}), InternalError);
  EXPECT_THROW(mean_wilson(std::vector<std::vector<Cluster>>(1)), InternalError);
}

}  // namespace
}  // namespace sluice::test
