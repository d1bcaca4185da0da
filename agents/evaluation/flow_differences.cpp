#include "agents/evaluation/flow_differences.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "agents/evaluation/statistics.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

/// One task that was asked of both flows.
struct Shared {
  const TaskResult* flow;
  const TaskResult* other;
};

std::vector<Shared> shared_tasks(const std::vector<TaskResult>& flow, const std::vector<TaskResult>& other) {
  std::vector<Shared> shared;
  for (const TaskResult& mine : flow) {
    const auto its = std::find_if(other.begin(), other.end(), [&](const TaskResult& each) { return each.is_of_same(mine); });
    if (its == other.end() || !mine.counted || !its->counted) continue;
    const bool is_same =
        mine.documents == its->documents && mine.samples == its->samples && mine.loss.has_value() == its->loss.has_value();
    if (!is_same) throw InternalError("two flows are compared on different samples of " + mine.task);
    if (mine.documents > 0) shared.push_back({&mine, &*its});
  }
  return shared;
}

/// Documents of a task: what answers gained and lost against those of the other flow.
struct Changes {
  std::vector<Cluster> gains;
  std::vector<Cluster> losses;
};

Changes changes_of(const Shared& task) {
  Changes changes;
  for (size_t i = 0; i < task.flow->credits.size(); ++i) {
    const std::vector<double>& mine = task.flow->credits[i];
    const std::vector<double>& its = task.other->credits.at(i);
    Cluster& gains = changes.gains.emplace_back();
    Cluster& losses = changes.losses.emplace_back();
    for (size_t j = 0; j < mine.size(); ++j) {
      const double difference = mine[j] - its.at(j);
      gains.add(std::max(difference, 0.0));
      losses.add(std::max(-difference, 0.0));
    }
  }
  return changes;
}

/// By how much less likely the model finds each window of a text with the other flow.
std::vector<double> losses_apart(const Shared& task) {
  std::vector<double> apart;
  const std::vector<double>& mine = task.flow->loss->differences;
  const std::vector<double>& its = task.other->loss->differences;
  for (size_t i = 0; i < mine.size(); ++i) apart.push_back(its.at(i) - mine[i]);
  return apart;
}

/// Of a text: in what is kept of a token's probability.
Estimate kept_apart(const Shared& task, double weight) {
  const double its = task.other->accuracy;
  const auto gained = [its](double nats) { return std::min(1.0, its * std::exp(nats)) - its; };
  const std::vector<double> apart = losses_apart(task);
  Estimate estimate{task.flow->accuracy - its, {-1, 1}, weight};
  if (apart.size() > 1) {
    const Interval nats = bootstrap_mean(apart);
    estimate.interval = {gained(nats.low), gained(nats.high)};
  }
  return estimate;
}

/// By document, the share of the difference that it makes, in units of which the largest has a thousand.
double p_value_of(const std::vector<Shared>& shared) {
  constexpr double kUnits = 1000;
  std::vector<double> shares;
  for (const Shared& task : shared) {
    if (task.flow->loss) {
      for (const double nats : losses_apart(task)) shares.push_back(nats / task.flow->documents);
      continue;
    }
    const Changes changes = changes_of(task);
    for (size_t i = 0; i < changes.gains.size(); ++i) {
      shares.push_back((changes.gains[i].credit - changes.losses[i].credit) / task.flow->samples);
    }
  }
  double largest = 0;
  for (const double share : shares) largest = std::max(largest, std::fabs(share));
  if (largest == 0) return 1;
  std::vector<int> units;
  for (const double share : shares) units.push_back(static_cast<int>(std::lround(share / largest * kUnits)));
  return sign_flip(units);
}

}  // namespace

std::optional<FlowDifference> difference_of(const std::vector<TaskResult>& flow, const std::vector<TaskResult>& other) {
  const std::vector<Shared> shared = shared_tasks(flow, other);
  if (shared.empty()) return std::nullopt;
  const double weight = 1 / static_cast<double>(shared.size());
  std::vector<Estimate> parts;
  std::vector<std::vector<Cluster>> gains;
  std::vector<std::vector<Cluster>> losses;
  for (const Shared& task : shared) {
    if (task.flow->loss) {
      parts.push_back(kept_apart(task, weight));
      continue;
    }
    Changes changes = changes_of(task);
    gains.push_back(std::move(changes.gains));
    losses.push_back(std::move(changes.losses));
  }
  const auto add = [&](const std::vector<std::vector<Cluster>>& tasks, double sign) {
    if (tasks.empty()) return;
    const auto asked = static_cast<double>(tasks.size());
    double sum = 0;
    for (const std::vector<Cluster>& task : tasks) sum += mean_credit(task);
    parts.push_back({sum / asked, mean_wilson(tasks), sign * weight * asked});
  };
  add(gains, 1);
  add(losses, -1);
  const Estimate all = weighted_sum(parts);
  return FlowDifference{.flow = {},
                        .other = {},
                        .tasks = static_cast<int>(shared.size()),
                        .difference = all.value,
                        .interval = all.interval,
                        .p_value = p_value_of(shared)};
}

std::vector<FlowDifference> differences_between(const std::vector<FlowReport>& flows) {
  constexpr size_t kMostInPairs = 6;
  std::vector<const FlowReport*> asked;
  for (const FlowReport& flow : flows) {
    if (flow.mean) asked.push_back(&flow);
  }
  const auto worse = [](const FlowReport* a, const FlowReport* b) { return a->mean->accuracy < b->mean->accuracy; };
  const bool in_pairs = asked.size() <= kMostInPairs;
  if (!in_pairs) std::iter_swap(asked.begin(), std::max_element(asked.begin(), asked.end(), worse));
  std::vector<FlowDifference> differences;
  for (size_t i = 0; i < asked.size() && (in_pairs || i == 0); ++i) {
    for (size_t j = i + 1; j < asked.size(); ++j) {
      std::optional<FlowDifference> difference = difference_of(asked[i]->tasks, asked[j]->tasks);
      if (!difference) continue;
      difference->flow = asked[i]->name;
      difference->other = asked[j]->name;
      differences.push_back(std::move(*difference));
    }
  }
  return differences;
}

}  // namespace sluice
