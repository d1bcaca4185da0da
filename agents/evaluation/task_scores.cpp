#include "agents/evaluation/task_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "agents/evaluation/statistics.h"
#include "agents/tasks/task.h"

namespace sluice {
namespace {

std::vector<Cluster> clusters_of(const Scores& scores) {
  std::vector<Cluster> clusters;
  for (const auto& document : scores) {
    Cluster& cluster = clusters.emplace_back();
    for (const Score& score : document) cluster.add(score.credit());
  }
  return clusters;
}

/// A document is a problem with its generations.
double mean_pass_at_k(const Scores& scores, int k) {
  double sum = 0;
  for (const auto& problem : scores) {
    const auto whole = std::count_if(problem.begin(), problem.end(), [](const Score& score) { return score.is_whole(); });
    sum += pass_at_k(static_cast<int>(problem.size()), static_cast<int>(whole), k);
  }
  return scores.empty() ? 0 : sum / static_cast<double>(scores.size());
}

/// Of which every credit is a whole number, if those are not too many: of a task whose answers have many parts credits are
/// rounded.
double credit_units(const Scores& flow, const Scores& dense) {
  constexpr int64_t kMost = 10000;
  int64_t units = 1;
  for (const Scores* scores : {&flow, &dense}) {
    for (const auto& document : *scores) {
      for (const Score& score : document) {
        units = std::lcm(units, score.draws_of(score.parts));
        if (units > kMost) return static_cast<double>(kMost);
      }
    }
  }
  return static_cast<double>(units);
}

double mean_loss(const Scores& scores) {
  double sum = 0;
  for (const auto& window : scores) sum += window.at(0).loss;
  return scores.empty() ? 0 : sum / static_cast<double>(scores.size());
}

LossResult loss_of(const Scores& flow, const Scores& dense) {
  LossResult result;
  result.loss = mean_loss(flow);
  result.dense_loss = mean_loss(dense);
  result.difference = result.loss - result.dense_loss;
  for (size_t i = 0; i < flow.size(); ++i) result.differences.push_back(flow[i].at(0).loss - dense.at(i).at(0).loss);
  if (result.differences.size() > 1) result.interval = bootstrap_mean(result.differences);
  return result;
}

/// A text has windows in the place of questions, and no answers that are right or wrong.
void add_loss(TaskResult& result, const Scores& flow, const Scores& dense) {
  result.loss = loss_of(flow, dense);
  result.documents = result.samples = static_cast<int>(flow.size());
  const auto kept = [](double difference) { return std::min(1.0, std::exp(-difference)); };
  result.accuracy = result.share = kept(result.loss->difference);
  result.interval = {0, 1};
  if (result.loss->interval) result.interval = {kept(result.loss->interval->high), kept(result.loss->interval->low)};
  result.dense_accuracy = 1;
  result.dense_interval = {1, 1};
}

std::optional<double> mean_of(const std::vector<TaskResult>& results, size_t first, double TaskResult::*number) {
  double sum = 0;
  int counted = 0;
  for (size_t i = first; i < results.size(); ++i) {
    if (!results[i].counted) continue;
    sum += results[i].*number;
    ++counted;
  }
  if (counted == 0) return std::nullopt;
  return sum / counted;
}

std::string group_of(const SuiteTask& task) {
  return task.is_problem_set() || task.is_text() ? task.task : find_task(task.task).group;
}

}  // namespace

double LossResult::kept() const { return std::exp(-difference); }

Score score_of_generation(const Sample& sample, const Generation& generation) {
  if (sample.scoring != Scoring::kLoss) return score(sample, generation.text, generation.ended);
  return {.loss = -generation.log_probability() / static_cast<double>(sample.given.size())};
}

void append_scores(Scores& scores, const std::vector<JobDocument>& documents, const std::vector<Generation>& generations) {
  size_t next = 0;
  for (const JobDocument& document : documents) {
    scores.emplace_back();
    for (const Job& job : document) {
      scores.back().push_back(score_of_generation(job.sample, generations.at(next++)));
    }
  }
}

TaskResult summarise(const SuiteStage& stage, const SuiteTask& task, const Scores& flow, const Scores& dense) {
  TaskResult result;
  result.stage = stage.name;
  result.task = task.task;
  result.group = group_of(task);
  result.tokens = task.is_problem_set() ? 0 : task.tokens;
  if (task.is_text()) {
    add_loss(result, flow, dense);
    return result;
  }
  result.documents = static_cast<int>(flow.size());
  for (const auto& document : flow) {
    std::vector<double>& credits = result.credits.emplace_back();
    for (const Score& score : document) credits.push_back(score.credit());
  }
  result.clusters = clusters_of(flow);
  result.dense_clusters = clusters_of(dense);
  result.accuracy = mean_credit(result.clusters);
  result.interval = clustered_wilson(result.clusters);
  result.dense_accuracy = mean_credit(result.dense_clusters);
  result.dense_interval = clustered_wilson(result.dense_clusters);
  const double unit = credit_units(flow, dense);
  std::vector<int> differences;
  for (size_t i = 0; i < flow.size(); ++i) {
    Cluster& gains = result.gains.emplace_back();
    Cluster& losses = result.losses.emplace_back();
    for (size_t j = 0; j < flow[i].size(); ++j) {
      const double difference = flow[i][j].credit() - dense[i][j].credit();
      gains.add(std::max(difference, 0.0));
      losses.add(std::max(-difference, 0.0));
      ++result.samples;
      result.whole += flow[i][j].is_whole();
      result.share += flow[i][j].share();
      result.lost += flow[i][j].credit() < dense[i][j].credit();
      result.gained += flow[i][j].credit() > dense[i][j].credit();
      result.dense_whole += dense[i][j].is_whole();
    }
    // Questions about one document share their luck, so documents are what the test counts.
    differences.push_back(static_cast<int>(std::lround((result.dense_clusters[i].credit - result.clusters[i].credit) * unit)));
  }
  result.whole /= std::max(1, result.samples);
  result.share /= std::max(1, result.samples);
  result.dense_whole /= std::max(1, result.samples);
  result.p_value = sign_flip(differences);
  if (task.is_problem_set()) {
    result.generations = task.generations;
    result.k = task.k;
    result.pass_at_k = mean_pass_at_k(flow, task.k);
    result.dense_pass_at_k = mean_pass_at_k(dense, task.k);
  }
  return result;
}

std::optional<MeanAccuracy> mean_of_tasks(const std::vector<TaskResult>& results) {
  // Answers are judged together, texts each by its windows.
  std::vector<std::vector<Cluster>> flow;
  std::vector<std::vector<Cluster>> dense;
  std::vector<std::vector<Cluster>> gains;
  std::vector<std::vector<Cluster>> losses;
  std::vector<Estimate> flow_parts;
  std::vector<Estimate> dense_parts;
  std::vector<Estimate> differences;
  const auto counts = [](const TaskResult& result) { return result.counted && (result.loss || !result.clusters.empty()); };
  const auto count = static_cast<double>(std::count_if(results.begin(), results.end(), counts));
  if (count == 0) return std::nullopt;
  for (const TaskResult& result : results) {
    if (!counts(result)) continue;
    if (result.loss) {
      flow_parts.push_back({result.accuracy, result.interval, 1 / count});
      dense_parts.push_back({result.dense_accuracy, result.dense_interval, 1 / count});
      differences.push_back({result.accuracy - 1, {result.interval.low - 1, result.interval.high - 1}, 1 / count});
      continue;
    }
    flow.push_back(result.clusters);
    dense.push_back(result.dense_clusters);
    gains.push_back(result.gains);
    losses.push_back(result.losses);
  }
  const auto add = [&](std::vector<Estimate>& to, const std::vector<std::vector<Cluster>>& tasks, double weight) {
    if (tasks.empty()) return;
    double sum = 0;
    for (const std::vector<Cluster>& task : tasks) sum += mean_credit(task);
    const auto asked = static_cast<double>(tasks.size());
    to.push_back({sum / asked, mean_wilson(tasks), weight * asked / count});
  };
  add(flow_parts, flow, 1);
  add(dense_parts, dense, 1);
  add(differences, gains, 1);
  add(differences, losses, -1);
  const Estimate of_flow = weighted_sum(flow_parts);
  const Estimate of_dense = weighted_sum(dense_parts);
  const Estimate of_both = weighted_sum(differences);
  return MeanAccuracy{of_flow.value, of_flow.interval, of_dense.value, of_dense.interval, of_both.value, of_both.interval};
}

std::optional<double> mean_accuracy(const std::vector<TaskResult>& results, size_t first) {
  return mean_of(results, first, &TaskResult::accuracy);
}

std::optional<double> mean_share(const std::vector<TaskResult>& results, size_t first) {
  return mean_of(results, first, &TaskResult::share);
}

}  // namespace sluice
