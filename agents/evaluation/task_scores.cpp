#include "agents/evaluation/task_scores.h"

#include <algorithm>

#include "agents/evaluation/statistics.h"
#include "agents/tasks/task.h"

namespace sluice {
namespace {

std::vector<Cluster> clusters_of(const Scores& scores) {
  std::vector<Cluster> clusters;
  for (const auto& document : scores) {
    Cluster cluster{0, static_cast<int>(document.size())};
    for (const Score& score : document) cluster.successes += score.correct;
    clusters.push_back(cluster);
  }
  return clusters;
}

double accuracy_of(const std::vector<Cluster>& clusters) {
  double successes = 0;
  double samples = 0;
  for (const Cluster& cluster : clusters) {
    successes += cluster.successes;
    samples += cluster.samples;
  }
  return samples > 0 ? successes / samples : 0;
}

double mean_pass_at_k(const std::vector<Cluster>& clusters, int k) {
  double sum = 0;
  for (const Cluster& cluster : clusters) sum += pass_at_k(cluster.samples, cluster.successes, k);
  return clusters.empty() ? 0 : sum / static_cast<double>(clusters.size());
}

}  // namespace

void append_scores(Scores& scores, const std::vector<JobDocument>& documents, const std::vector<Generation>& generations) {
  size_t next = 0;
  for (const JobDocument& document : documents) {
    scores.emplace_back();
    for (const Job& job : document) {
      const Generation& generation = generations.at(next++);
      scores.back().push_back(score(job.sample, generation.text, generation.ended));
    }
  }
}

TaskResult summarise(const SuiteStage& stage, const SuiteTask& task, const Scores& flow, const Scores& dense) {
  TaskResult result;
  result.stage = stage.name;
  result.task = task.task;
  result.group = task.is_problem_set() ? task.task : find_task(task.task).group;
  result.tokens = task.is_problem_set() ? 0 : task.tokens;
  result.documents = static_cast<int>(flow.size());
  result.clusters = clusters_of(flow);
  result.dense_clusters = clusters_of(dense);
  result.accuracy = accuracy_of(result.clusters);
  result.interval = clustered_wilson(result.clusters);
  result.dense_accuracy = accuracy_of(result.dense_clusters);
  result.dense_interval = clustered_wilson(result.dense_clusters);
  std::vector<int> differences;
  for (size_t i = 0; i < flow.size(); ++i) {
    for (size_t j = 0; j < flow[i].size(); ++j) {
      ++result.samples;
      result.matched += flow[i][j].matched;
      result.lost += dense[i][j].correct && !flow[i][j].correct;
      result.gained += !dense[i][j].correct && flow[i][j].correct;
    }
    // Questions about one document share their luck, so documents are what the test counts.
    differences.push_back(result.dense_clusters[i].successes - result.clusters[i].successes);
  }
  result.matched /= std::max(1, result.samples);
  result.p_value = sign_flip(differences);
  if (task.is_problem_set()) {
    result.generations = task.generations;
    result.k = task.k;
    result.pass_at_k = mean_pass_at_k(result.clusters, task.k);
    result.dense_pass_at_k = mean_pass_at_k(result.dense_clusters, task.k);
  }
  return result;
}

double mean_accuracy(const std::vector<TaskResult>& results, size_t first) {
  double sum = 0;
  for (size_t i = first; i < results.size(); ++i) sum += results[i].accuracy;
  return sum / static_cast<double>(results.size() - first);
}

}  // namespace sluice
