#include "agents/evaluation/speed.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <functional>
#include <numeric>

#include "agents/evaluation/answering.h"
#include "agents/evaluation/step_timing.h"
#include "agents/evaluation/timing_watch.h"
#include "agents/tasks/rng.h"
#include "host/serving/engine.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kProbed = 2;     // prompts whose attention mass is measured, while they are answered
constexpr int kLongAnswer = 64;   // tokens; of such a one is enough
constexpr int kProbedSteps = 16;  // of an answer at least, evenly spread: 16 to 31, or all there are
constexpr int kTimedOfText = 32;  // tokens of a text: every step of it is alike, but under a pattern

/// A question to be timed: the prompt, which generates as many tokens as were scored, and its place in the batch.
struct Question {
  PrefilledPrompt prompt;
  size_t place = 0;
};

/// Tokens of the flow's answer that are scored. Where it is not known how long the answer has to be, they are as many as the flow
/// generated, so that it cannot be fast as long as dense attention takes and right afterwards; as many as dense attention's, if
/// the flow was not asked.
int scored_tokens(const PrefilledPrompt& prompt, const Answers& answers, size_t place, int most_of_text) {
  const std::vector<Generation>& generations = answers.flow != nullptr ? *answers.flow : answers.dense;
  const bool is_known = !prompt.expected.empty();
  const size_t tokens = is_known ? prompt.expected.size() + 1 : generations.at(place).tokens.size();  // the end is scored as well
  const int most = prompt.given.empty() ? prompt.max_tokens : std::min(prompt.max_tokens, most_of_text);
  return std::clamp(static_cast<int>(tokens), 1, most);
}

/// Whether the engine has tokens of the prompt to compute before the first decode step.
bool has_tail(const PrefilledPrompt& prompt) {
  const size_t given = prompt.snapshot == nullptr ? 0 : prompt.snapshot->tokens.size();
  return given + 1 < prompt.tokens.size();
}

/// Tokens of the cache that dense attention reads for the answer, which the cache grows by.
double cache_reads(const PrefilledPrompt& prompt) {
  const double generated = prompt.max_tokens;
  return generated * (static_cast<double>(prompt.tokens.size()) + generated / 2);
}

/// At most `most` questions of the batch, chosen by chance, that begin to decode in the same pass: all with a tail, or all
/// without.
std::vector<Question> draw_questions(const EngineBatch& batch, const Answers& answers, size_t most, int most_of_text, Rng& rng) {
  std::vector<Question> questions;
  for (size_t i = 0; i < batch.prompts.size(); ++i) {
    questions.push_back({batch.prompts[i], i});
    questions.back().prompt.max_tokens = scored_tokens(batch.prompts[i], answers, i, most_of_text);
  }
  for (size_t i = questions.size(); i-- > 1;) std::swap(questions[i], questions[rng.below(i + 1)]);
  const auto tailed = [](const Question& question) { return has_tail(question.prompt); };
  const auto rest = std::stable_partition(questions.begin(), questions.end(), tailed);
  if (rest - questions.begin() >= questions.end() - rest) {
    questions.erase(rest, questions.end());
  } else {
    questions.erase(questions.begin(), rest);
  }
  // Long answers at long contexts take their time: fewer of them, and one in any case.
  constexpr double kLongRun = 1 << 22;  // tokens of the cache, read once for each token that is generated
  double run = 0;
  size_t count = 0;
  for (; count < std::min(questions.size(), most); ++count) {
    run += cache_reads(questions[count].prompt);
    if (count > 0 && run > kLongRun) break;
  }
  questions.resize(count);
  return questions;
}

/// As many pairs as asked for where a run is short, and else as few as take as long.
int pairs_of(const std::vector<Question>& questions, const SpeedOptions& options) {
  constexpr double kShortRun = 1 << 16;  // as above
  double run = 0;
  for (const Question& question : questions) run += cache_reads(question.prompt);
  const double pairs = options.pairs * std::min(1.0, kShortRun / std::max(run, 1.0));
  return std::clamp(static_cast<int>(pairs), options.least, std::max(options.least, options.pairs));
}

std::vector<PrefilledPrompt> prompts_of(const std::vector<Question>& questions) {
  std::vector<PrefilledPrompt> prompts;
  for (const Question& question : questions) prompts.push_back(question.prompt);
  return prompts;
}

/// It generates as many tokens as are timed, whatever they are.
Request timed_request(const PrefilledPrompt& prompt) {
  Request request = request_for(prompt);
  request.ignore_eos = true;
  request.given.resize(std::min(request.given.size(), static_cast<size_t>(prompt.max_tokens)));
  return request;
}

/// An engine that answers the questions, all at once, as often as it is told to.
class Side {
 public:
  Side(const std::vector<Question>& questions, Device& device, const Model& model, const Plan* plan)
      : prompts_(prompts_of(questions)),
        engine_(device, model, plan, engine_options(prompts_, model.config(), plan, {.pool_bytes = SIZE_MAX})) {
    engine_.on_token([this](uint64_t, const GeneratedToken&) {
      last_token_ = Clock::now();
      ++tokens_;
    });
  }

  /// Seconds from when all of them decode to the last token. What comes before, K and V that are brought and the tails of
  /// prompts, is dense attention's for both sides.
  double run() {
    std::vector<uint64_t> ids;
    for (const PrefilledPrompt& prompt : prompts_) ids.push_back(engine_.submit(timed_request(prompt)));
    tokens_ = 0;
    Clock::time_point begin;
    do {
      begin = Clock::now();
      require_step(engine_);
    } while (tokens_ == 0);
    while (engine_.step()) {
    }
    double seconds = std::chrono::duration<double>(last_token_ - begin).count();
    answers_.assign(ids.size(), {});
    log_probabilities_.assign(ids.size(), 0);
    double decoding = 0;
    for (RequestResult& result : engine_.take_finished()) {
      decoding = std::max(decoding, result.decode_seconds);
      const auto place = static_cast<size_t>(std::find(ids.begin(), ids.end(), result.id) - ids.begin());
      log_probabilities_.at(place) = result.probabilities.sum();
      answers_.at(place) = std::move(result.tokens);
    }
    // Where nothing was left of the prompts, the pass that decodes first also brought K and V.
    return std::min(seconds, decoding);
  }

  int tokens() const { return tokens_; }
  const std::vector<std::vector<int32_t>>& answers() const { return answers_; }
  const std::vector<double>& log_probabilities() const { return log_probabilities_; }
  EngineStats stats() const { return engine_.stats(); }

 private:
  std::vector<PrefilledPrompt> prompts_;
  Engine engine_;
  Clock::time_point last_token_;
  int tokens_ = 0;
  std::vector<std::vector<int32_t>> answers_;  // of the last run, by prompt
  std::vector<double> log_probabilities_;      // of what was given, likewise
};

std::vector<double> attention_mass(const std::vector<Question>& questions, Device& device, const Model& model, const Plan& plan) {
  std::vector<PrefilledPrompt> prompts = prompts_of(questions);
  const int longest = std::max_element(prompts.begin(), prompts.end(), [](const auto& a, const auto& b) {
                        return a.max_tokens < b.max_tokens;
                      })->max_tokens;
  const size_t most = longest > kLongAnswer ? 1 : kProbed;
  prompts.resize(std::min(most, prompts.size()));
  Engine engine(device, model, &plan, engine_options(prompts, model.config(), &plan));
  for (const PrefilledPrompt& prompt : prompts) {
    Request request = timed_request(prompt);
    request.probe_every = std::max(1, request.max_tokens / kProbedSteps);
    engine.submit(std::move(request));
  }
  std::vector<double> mass(static_cast<size_t>(model.config().layers), 0);
  const auto results = engine.run_all();
  for (const RequestResult& result : results) {
    // Where no layer is sparse nothing is reported: all of the mass is covered.
    for (size_t layer = 0; layer < mass.size(); ++layer) {
      mass[layer] += (layer < result.mass.size() ? result.mass[layer] : 1) / static_cast<double>(results.size());
    }
  }
  return mass;
}

/// Questions that were answered with other tokens than those that were scored, as far as both go, and texts that were found
/// clearly more or less likely.
void compare(const std::vector<Question>& questions, const Side& flow, const Answers& answers, TaskSpeed& speed) {
  constexpr double kNats = 0.5;  // batches that differ round differently
  if (answers.flow == nullptr) return;
  for (size_t i = 0; i < questions.size(); ++i) {
    const Generation& then = answers.flow->at(questions[i].place);
    const std::vector<int32_t>& now = flow.answers()[i];
    const auto both = static_cast<ptrdiff_t>(std::min(then.tokens.size(), now.size()));
    ++speed.compared;
    const bool is_text = !questions[i].prompt.given.empty();
    const double likely = is_text ? then.log_probability(static_cast<size_t>(questions[i].prompt.max_tokens)) : 0;
    const double apart = is_text ? std::abs(flow.log_probabilities()[i] - likely) : 0;
    const bool strayed = !std::equal(then.tokens.begin(), then.tokens.begin() + both, now.begin());
    if (strayed || apart > kNats + 0.02 * std::abs(likely)) ++speed.strayed;
  }
}

/// Of what dense attention reads of `tokens` tokens in all layers, where the sparse ones read the share `sparse_share`.
double pages_of_all_layers(const Plan& plan, const ModelConfig& config, int tokens, double sparse_share) {
  double by_flow = 0;
  double by_dense = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    const int seen = config.window(layer) > 0 ? std::min(config.window(layer), tokens) : tokens;
    by_dense += seen;
    const Plan* const program = plan.program_of(layer, config.layers);
    by_flow += seen * (program != nullptr && program->graph.is_run_by(layer, config.layers) ? sparse_share : 1);
  }
  return by_flow / by_dense;
}

/// A flow is no faster than by what it leaves of the bytes of dense attention's K and V.
double limit_of(const Plan& plan, double pages_read) {
  const double width = static_cast<double>(size_of(plan.layout.kv)) / static_cast<double>(size_of(EngineOptions().kv));
  return 1 / (pages_read * std::min(1.0, width));
}

}  // namespace

TaskSpeed time_questions(const EngineBatch& batch, const Answers& answers, Device& device, const Model& model, const Plan& plan,
                         const SpeedOptions& options) {
  Rng rng(Seed::secret(), "speed");  // neither what is timed nor who goes first may be foreseeable
  TaskSpeed speed;
  const int most_of_text = plan.has_own_cache() ? INT_MAX : kTimedOfText;
  int longest = 0;  // with its answer
  for (size_t i = 0; i < batch.prompts.size(); ++i) {
    const auto tokens = static_cast<int>(batch.prompts[i].tokens.size());
    speed.tokens = std::max(speed.tokens, tokens);
    longest = std::max(longest, tokens + scored_tokens(batch.prompts[i], answers, i, most_of_text));
  }
  // Where the flow has prompts computed, its requests would begin to decode one after the other.
  const int together = plan.prompt_rows_wanted() > 0 ? 1 : prompts_together(model.config(), longest);
  const int most = std::min(options.batch, together);
  const std::vector<Question> questions = draw_questions(batch, answers, static_cast<size_t>(most), most_of_text, rng);
  speed.batch = static_cast<int>(questions.size());

  TimingWatch watch(device, options.patience);
  Side dense(questions, device, model, nullptr);
  Side flow(questions, device, model, &plan);
  const int pairs = pairs_of(questions, options);
  watch.begin();
  for (int pair = 0; pair < pairs; ++pair) {
    const bool dense_first = rng.below(2) == 0;
    if (dense_first) speed.seconds.slow.push_back(dense.run());
    speed.seconds.fast.push_back(flow.run());
    if (!dense_first) speed.seconds.slow.push_back(dense.run());
  }
  speed.conditions = watch.end();
  compare(questions, flow, answers, speed);
  speed.generated = static_cast<double>(flow.tokens()) * pairs;
  const EngineStats stats = flow.stats();
  const double share =
      stats.pages_available > 0 ? static_cast<double>(stats.pages_attended) / static_cast<double>(stats.pages_available) : 1;
  speed.pages_read = pages_of_all_layers(plan, model.config(), speed.tokens, share);
  speed.limit = limit_of(plan, speed.pages_read);
  // Of tokens that are gone nobody knows what dense attention would give them.
  if (!plan.has_own_cache()) speed.mass = attention_mass(questions, device, model, plan);
  return speed;
}

TaskSpeed united(std::vector<TaskSpeed> batches) {
  TaskSpeed all;
  all.pages_read = 0;
  all.mass.assign(batches.front().mass.size(), 0);
  double pairs = 0;
  double limits = 0;
  for (const TaskSpeed& batch : batches) {
    const auto weight = static_cast<double>(batch.seconds.slow.size());
    pairs += weight;
    all.tokens = std::max(all.tokens, batch.tokens);
    all.batch = std::max(all.batch, batch.batch);
    all.seconds.slow.insert(all.seconds.slow.end(), batch.seconds.slow.begin(), batch.seconds.slow.end());
    all.seconds.fast.insert(all.seconds.fast.end(), batch.seconds.fast.begin(), batch.seconds.fast.end());
    all.generated += batch.generated;
    all.pages_read += weight * batch.pages_read;
    limits += weight * std::log(batch.limit);
    for (size_t layer = 0; layer < batch.mass.size(); ++layer) all.mass[layer] += weight * batch.mass[layer];
    all.strayed += batch.strayed;
    all.compared += batch.compared;
    all.conditions.add(batch.conditions);
  }
  all.pages_read /= pairs;
  all.limit = std::exp(limits / pairs);
  for (double& share : all.mass) share /= pairs;
  return all;
}

SpeedResult speed_of(std::vector<TaskSpeed> tasks) {
  SpeedResult result;
  std::vector<TimedPairs> pairs;
  for (const TaskSpeed& task : tasks) pairs.push_back(task.seconds);
  const PairedRatios ratios = paired_ratios(pairs);
  result.speedup = ratios.all;
  const auto n = static_cast<double>(tasks.size());
  double dense_seconds = 0;
  double flow_seconds = 0;
  double generated = 0;
  double limits = 0;
  result.pages_read = 0;
  result.mass.assign(tasks.front().mass.size(), 0);
  for (size_t i = 0; i < tasks.size(); ++i) {
    TaskSpeed& task = tasks[i];
    task.speedup = ratios.each[i];
    result.tokens = std::max(result.tokens, task.tokens);
    result.batch = std::max(result.batch, task.batch);
    result.pairs += static_cast<int>(task.seconds.slow.size());
    dense_seconds += std::accumulate(task.seconds.slow.begin(), task.seconds.slow.end(), 0.0);
    flow_seconds += std::accumulate(task.seconds.fast.begin(), task.seconds.fast.end(), 0.0);
    generated += task.generated;
    result.conditions.add(task.conditions);
    result.pages_read += task.pages_read / n;
    limits += std::log(task.limit) / n;
    for (size_t layer = 0; layer < task.mass.size(); ++layer) result.mass[layer] += task.mass[layer] / n;
  }
  result.limit = std::exp(limits);
  result.dense_tokens_per_second = generated / dense_seconds;
  result.flow_tokens_per_second = generated / flow_seconds;
  result.tasks = std::move(tasks);
  return result;
}

}  // namespace sluice
