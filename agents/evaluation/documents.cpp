#include "agents/evaluation/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <memory>

#include "agents/tasks/problem_set.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

// What the authors of reasoning models recommend for them, and what AMC and AIME scores are usually reported with.
constexpr float kTemperature = 0.6F;
constexpr float kTopP = 0.95F;

void check_length(const SuiteTask& task, const TaskContext& context) {
  if (context.positions == 0 || task.tokens <= context.positions) return;
  throw InputError(fmt::format("a context of {} tokens exceeds the model's {} positions", task.tokens, context.positions),
                   "choose --tokens or a suite with shorter contexts");
}

/// The first document of a task, whose seed no evaluation uses, shows whether the task fits the model at all.
void check_task(const SuiteTask& task, const TaskContext& context) {
  check_length(task, context);
  for (const Job& job : DocumentSource(task, context, Seed::parse("does it fit?")).next()) {
    context.tokenizer.encode(job.sample.prompt);  // which refuses words that the tokenizer lacks
    context.tokenizer.encode(job.sample.answer);
  }
}

/// Documents are drawn from all of the words.
void check_words(const TaskContext& context) {
  if (context.english()) return;
  for (const auto* words : {&context.mini->keys, &context.mini->values, &context.mini->fillers}) {
    for (const std::string& word : *words) {
      const std::vector<int32_t> ids = context.tokenizer.encode(word);  // refuses what it lacks, or has a token for all of that
      if (context.tokenizer.decode(ids) == word) continue;
      throw InputError(fmt::format("the tokenizer does not know the word \"{:.60}\", of which the tasks' texts are made", word),
                       "the model's vocabulary.json lists other words than its tokenizer.json");
    }
  }
}

void check_problems(const SuiteTask& task, const TaskContext& context) {
  if (context.positions == 0) return;
  int left = task.samples > 0 ? task.samples : INT_MAX;
  for (const Problem& problem : *task.problems) {
    if (left-- == 0) return;
    const size_t tokens = context.tokenizer.encode(problem_sample(problem, context, task.max_tokens).prompt).size();
    if (tokens + task.max_tokens <= static_cast<size_t>(context.positions) + 1) continue;
    throw InputError(fmt::format("{}: problem {:.60} has {} tokens; with {} to generate that exceeds the model's {} positions",
                                 task.problem_file(), problem.id, tokens, task.max_tokens, context.positions),
                     "lower --max-tokens, or leave the problem out");
  }
}

void check_text(const SuiteTask& task, const TaskContext& context) {
  if (windows_in(*task.text, task.tokens) > 0) return;
  throw InputError(
      fmt::format("{}: it has {} tokens of the model, a window {}", task.text->name, task.text->tokens.size(), task.tokens),
      "choose shorter windows (--tokens) or a longer text");
}

void leave_out_long(Suite& suite, const TaskContext& context) {
  if (!suite.leaves_out_long || context.positions == 0) return;
  for (SuiteStage& stage : suite.stages) {
    std::erase_if(stage.tasks, [&](const SuiteTask& task) { return !task.is_problem_set() && task.tokens > context.positions; });
  }
  double threshold = 0;  // of what is left out
  for (const SuiteStage& stage : suite.stages) threshold = std::max(threshold, stage.tasks.empty() ? stage.threshold : 0);
  std::erase_if(suite.stages, [](const SuiteStage& stage) { return stage.tasks.empty(); });
  if (!suite.stages.empty()) suite.stages.back().threshold = std::max(suite.stages.back().threshold, threshold);
  if (suite.stages.empty()) {
    throw InputError(
        fmt::format("the model has {} positions, fewer than any task of the suite {}", context.positions, suite.name),
        "choose --tokens");
  }
}

/// Of the longest prompt with its answer.
int most_tokens(const std::vector<Sample>& samples, const Tokenizer& tokenizer) {
  int most = 0;
  for (const Sample& sample : samples) {
    most = std::max(most, static_cast<int>(tokenizer.encode(sample.prompt).size()) + sample.max_tokens);
  }
  return most;
}

}  // namespace

void prepare_suite(Suite& suite, const TaskContext& context, TextReader& texts) {
  if (!context.english()) leave_to_mini(suite);
  leave_out_long(suite, context);
  std::map<std::string, std::shared_ptr<const std::vector<Problem>>> files;  // a pipe can be read only once
  for (SuiteStage& stage : suite.stages) {
    for (SuiteTask& task : stage.tasks) {
      if (suite.reuse && !task.is_problem_set()) require_segments(*suite.reuse, task.tokens);
      if (task.is_text()) {
        if (!context.english()) {
          throw InputError(fmt::format("{}: the model knows {} words and no text", task.task, context.tokenizer.vocabulary()),
                           "texts, and so suite real, are for models of natural language: --model smollm2");
        }
        check_length(task, context);
        task.text = texts.read(task.file(), context);
        check_text(task, context);
        continue;
      }
      if (!task.is_problem_set()) {
        check_words(context);
        check_task(task, context);
        continue;
      }
      auto& problems = files[task.problem_file()];
      if (!problems) problems = std::make_shared<const std::vector<Problem>>(load_problems(task.problem_file()));
      task.problems = problems;
      check_problems(task, context);
    }
  }
}

DocumentSource::DocumentSource(const SuiteTask& task, const TaskContext& context, const Seed& seed)
    : task_(task), context_(context), seed_(seed), samples_(task.samples) {
  if (task.is_text()) {
    if (!task.text) throw InternalError("a text that was not read");
    Rng rng(seed, "windows");  // of text and copy the same, at all lengths
    windows_ = draw_windows(*task.text, task.tokens, task.samples, rng);
    samples_ = static_cast<int>(windows_.size());
  }
  if (!task.is_problem_set()) return;
  if (!task.problems) throw InternalError("a problem set that was not read");
  for (const Problem& problem : *task.problems) {
    if (task.samples > 0 && static_cast<int>(problems_.size()) == task.samples) break;
    problems_.push_back({problem_sample(problem, context, task.max_tokens), {}});
  }
  samples_ = static_cast<int>(problems_.size()) * task.generations;
}

JobDocument DocumentSource::next() {
  if (given_ >= samples_) return {};
  if (task_.is_problem_set()) return next_problem();
  if (task_.is_text()) return next_window();
  constexpr int kDoubt = 64;  // tokens by which a prompt may be longer than was asked for, as words join otherwise
  const std::string stream = fmt::format("{}/{}/{}", task_.task, task_.tokens, document_++);
  const int questions = std::min(task_.questions, samples_ - given_);
  const Task& task = find_task(task_.task);
  Rng rng(seed_, stream);
  std::vector<Sample> samples;
  // A prompt as long as the model's context has to leave room for its answer. A shorter document is another one, whose prompt and
  // answer may be longer, so this is repeated until both fit.
  for (int tokens = task_.tokens;;) {
    rng = Rng(seed_, stream);
    samples = task.generate(context_, rng, tokens, questions);
    int answer = 0;
    for (const Sample& sample : samples) answer = std::max(answer, sample.max_tokens);
    if (context_.positions == 0 || tokens + answer + kDoubt <= context_.positions) break;
    const int most = most_tokens(samples, context_.tokenizer);
    if (most <= context_.positions) break;
    tokens -= most - context_.positions;
  }
  JobDocument document;
  for (Sample& sample : samples) {
    document.push_back({std::move(sample), {}, task.occasion});
    document.back().sampling.seed = rng.next();  // greedy, but flows may draw
  }
  given_ += static_cast<int>(document.size());
  return document;
}

JobDocument DocumentSource::next_window() {
  Rng rng(seed_, fmt::format("{}/{}/{}", task_.task, task_.tokens, document_));
  JobDocument document(1);
  document[0].sample = text_sample(task_.text_task(), *task_.text, task_.tokens, windows_[document_++], rng);
  document[0].sampling.seed = rng.next();
  ++given_;
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

DocumentBatches::DocumentBatches(const SuiteTask& task, const TaskContext& context, const Seed& seed, int capacity)
    : source_(task, context, seed), capacity_(static_cast<size_t>(std::max(1, capacity))), waiting_(source_.next()) {}

size_t DocumentBatches::count() const {
  DocumentBatches all = *this;  // what a document has room for only its task knows
  size_t batches = 0;
  while (!all.next().empty()) ++batches;
  return batches;
}

std::vector<JobDocument> DocumentBatches::next() {
  std::vector<JobDocument> batch;
  size_t questions = 0;
  while (!waiting_.empty() && (batch.empty() || questions + waiting_.size() <= capacity_)) {
    questions += waiting_.size();
    batch.push_back(std::move(waiting_));
    waiting_ = source_.next();
  }
  return batch;
}

}  // namespace sluice
