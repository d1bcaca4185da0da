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
  for (const Problem& problem : load_problems(task.problem_file())) {
    if (task.samples > 0 && static_cast<int>(problems_.size()) == task.samples) break;
    problems_.push_back({problem_sample(problem, context.tokenizer, task.max_tokens), {}});
  }
  samples_ = static_cast<int>(problems_.size()) * task.generations;
}

JobDocument DocumentSource::next() {
  if (given_ >= samples_) return {};
  if (task_.is_problem_set()) return next_problem();
  const std::string stream = fmt::format("{}/{}/{}", task_.task, task_.tokens, document_++);
  const int questions = std::min(task_.questions, samples_ - given_);
  const Task& task = find_task(task_.task);
  Rng rng(seed_, stream);
  std::vector<Sample> samples = task.generate(context_, rng, task_.tokens, questions);
  int answer = 0;
  for (const Sample& sample : samples) answer = std::max(answer, sample.max_tokens);
  if (context_.positions > 0 && task_.tokens + answer > context_.positions) {
    // A prompt as long as the model's context has to leave room for its answer.
    rng = Rng(seed_, stream);
    samples = task.generate(context_, rng, context_.positions - answer, questions);
  }
  JobDocument document;
  for (Sample& sample : samples) {
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
