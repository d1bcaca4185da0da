#include "agents/evaluation/documents.h"

#include <fmt/format.h>

#include <algorithm>

#include "agents/tasks/problem_set.h"

namespace sluice {
namespace {

// What the authors of reasoning models recommend for them, and what AMC and AIME scores are usually reported with.
constexpr float kTemperature = 0.6F;
constexpr float kTopP = 0.95F;

}  // namespace

DocumentSource::DocumentSource(const SuiteTask& task, const TaskContext& context, const Seed& seed)
    : task_(task), context_(context), seed_(seed), samples_(task.samples) {
  if (!task.is_problem_set()) return;
  for (const Problem& problem : load_problems(task.task.substr(std::string("jsonl:").size()))) {
    if (task.samples > 0 && static_cast<int>(problems_.size()) == task.samples) break;
    problems_.push_back({problem_sample(problem, context.tokenizer, task.max_tokens), {}});
  }
  samples_ = static_cast<int>(problems_.size()) * task.generations;
}

JobDocument DocumentSource::next() {
  if (given_ >= samples_) return {};
  if (task_.is_problem_set()) return next_problem();
  Rng rng(seed_, fmt::format("{}/{}/{}", task_.task, task_.tokens, document_++));
  const int questions = std::min(task_.questions, samples_ - given_);
  JobDocument document;
  for (Sample& sample : find_task(task_.task).generate(context_, rng, task_.tokens, questions)) {
    document.push_back({std::move(sample), {}});
    document.back().sampling.seed = rng.next();  // greedy, but flows may draw
  }
  given_ += static_cast<int>(document.size());
  return document;
}

JobDocument DocumentSource::next_problem() {
  Rng rng(seed_, fmt::format("{}/{}", task_.task, document_));
  JobDocument document;
  for (int i = 0; i < task_.generations; ++i) {
    document.push_back(problems_[document_]);
    SamplingOptions& sampling = document.back().sampling;
    if (task_.generations > 1) {
      sampling.temperature = kTemperature;
      sampling.top_p = kTopP;
    }
    sampling.seed = rng.next();
  }
  ++document_;
  given_ += task_.generations;
  return document;
}

}  // namespace sluice
