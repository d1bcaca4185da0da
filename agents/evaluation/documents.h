#pragma once

#include <vector>

#include "agents/evaluation/runner.h"
#include "agents/evaluation/suite.h"
#include "agents/tasks/rng.h"
#include "agents/tasks/task.h"

namespace sluice {

/// Reads the problem sets and the texts of `suite`, each file once, and finds what would otherwise be found only when its turn
/// comes: a context that the model does not have, a task that does not fit its context, a problem that leaves no room to answer,
/// a text shorter than a window. Leaves out what the suite says it does without. Throws InputError.
void prepare_suite(Suite& suite, const TaskContext& context, TextReader& texts);

/// The documents and questions of one suite task. Each document follows from the seed, the task, its length, the document's
/// number and how many questions are asked about it (and from the model's tokenizer and context), whatever else the suite holds.
class DocumentSource {
 public:
  DocumentSource(const SuiteTask& task, const TaskContext& context, const Seed& seed);

  /// The next document, or an empty one when all samples were given.
  JobDocument next();

 private:
  JobDocument next_problem();
  JobDocument next_window();

  SuiteTask task_;
  TaskContext context_;  // a copy: what it refers to outlives the documents, itself it may not
  Seed seed_;
  std::vector<Job> problems_;  // jsonl: one job a problem
  std::vector<int> windows_;   // of a text
  int samples_ = 0;            // in all: problems times generations for jsonl
  int given_ = 0;
  int document_ = 0;
};

/// The documents of a task in batches of about `capacity` questions, as they are prefilled together: documents stay whole, so one
/// that is larger makes a batch of its own.
class DocumentBatches {
 public:
  DocumentBatches(const SuiteTask& task, const TaskContext& context, const Seed& seed, int capacity);

  /// The next batch, or an empty one when all samples were given.
  std::vector<JobDocument> next();
  /// Batches that are left.
  size_t count() const;

 private:
  DocumentSource source_;
  size_t capacity_;
  JobDocument waiting_;  // for the next batch
};

}  // namespace sluice
