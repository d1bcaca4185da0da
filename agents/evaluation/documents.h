#pragma once

#include <vector>

#include "agents/evaluation/runner.h"
#include "agents/evaluation/suite.h"
#include "agents/tasks/rng.h"
#include "agents/tasks/task.h"

namespace sluice {

/// The documents and questions of one suite task. They follow from the seed, the task, its length and its place, and from nothing
/// else.
class DocumentSource {
 public:
  /// Loads the problems of a jsonl task. Throws InputError.
  DocumentSource(const SuiteTask& task, const TaskContext& context, const Seed& seed);

  /// The next document, or an empty one when all samples were given.
  JobDocument next();
  /// Samples in all (problems times generations for jsonl).
  int samples() const { return samples_; }

 private:
  JobDocument next_problem();

  SuiteTask task_;
  const TaskContext& context_;
  Seed seed_;
  std::vector<Job> problems_;  // jsonl: one job a problem
  int samples_ = 0;
  int given_ = 0;
  int document_ = 0;
};

}  // namespace sluice
