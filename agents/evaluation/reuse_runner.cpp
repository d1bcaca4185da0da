#include "agents/evaluation/reuse_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "agents/evaluation/answering.h"
#include "agents/evaluation/engine_runner.h"
#include "agents/evaluation/numerical.h"
#include "agents/evaluation/rule_check.h"
#include "agents/evaluation/timing_watch.h"
#include "agents/tasks/rng.h"
#include "kernels/device/recompute_rule.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr int kPassTokens = 512;        // rows of a pass
constexpr int kLargePassTokens = 4096;  // where a device is fast

/// The prompts of one document.
class ReuseBatch final : public PrefilledBatch {
 public:
  size_t bytes() const override {
    size_t tokens = known_tokens();
    for (const PrefilledPrompt& prompt : prompts) tokens += prompt.tokens.size();
    return tokens * sizeof(int32_t);
  }

  size_t known_tokens() const {
    size_t tokens = 0;
    for (const KnownText& text : known) tokens += text.tokens.size() + text.answer.size();
    return tokens;
  }

  std::vector<PrefilledPrompt> prompts;
  std::vector<Segment> segments;  // of each prompt: they lie in what all have in common
  std::vector<KnownText> known;
};

const ReuseBatch& reuse_batch(const PrefilledBatch& batch) {
  const auto* found = dynamic_cast<const ReuseBatch*>(&batch);
  if (found == nullptr) throw InternalError("a batch of another runner");
  return *found;
}

size_t common_tokens(const std::vector<PrefilledPrompt>& prompts) {
  const std::vector<int32_t>& first = prompts.front().tokens;
  size_t common = first.size() - 1;
  for (const PrefilledPrompt& prompt : prompts) {
    const size_t end = std::min(common, prompt.tokens.size() - 1);
    common = static_cast<size_t>(
        std::mismatch(first.begin(), first.begin() + static_cast<ptrdiff_t>(end), prompt.tokens.begin()).first - first.begin());
  }
  return common;
}

bool is_sparse(const Plan& plan, const ModelConfig& config) {
  for (int layer = 0; layer < config.layers; ++layer) {
    const Plan* const program = plan.program_of(layer, config.layers);
    if (program != nullptr && program->graph.is_run_by(layer, config.layers)) return true;
  }
  return false;
}

EngineOptions options_for(const Device& device, const ReuseBatch& batch, int page, DataType kv, bool reuses) {
  EngineOptions options;
  options.page = page;
  options.kv = kv;
  options.max_batch = reuses ? std::max(1, static_cast<int>(batch.known.size())) : 1;  // agents answer together
  options.max_pass_tokens = device.info().works_beside_host ? kLargePassTokens : kPassTokens;
  size_t longest = 0;
  for (const PrefilledPrompt& prompt : batch.prompts)
    longest = std::max(longest, prompt.tokens.size() + static_cast<size_t>(prompt.max_tokens));
  // What is known has to stay while prompts come and go, which leave what they computed for others who begin as they do.
  const size_t tokens = reuses ? batch.known_tokens() + 2 * longest : longest;
  const size_t partial = 8 + (reuses ? 2 * batch.known.size() : 0);  // pages that are not full
  options.pages = static_cast<int>(tokens / static_cast<size_t>(options.page) + partial);
  return options;
}

/// No rule is faster than by what the rows that it leaves out multiply with weights and tokens, if those that it computes see
/// none.
double limit_of(const ModelConfig& config, int tokens, double computed) {
  const double heads = static_cast<double>(config.query_heads) * config.head_dim;
  const double hidden = config.hidden;
  const double row = hidden * (2 * heads + 2.0 * config.kv_heads * config.head_dim) + 3 * hidden * config.intermediate;
  const double attention = 2 * heads * tokens / 2;  // of a row in the middle
  return (row + attention) / (computed * row);
}

Request with_segments(Request request, const ReuseBatch& batch, const std::shared_ptr<const RecomputeRule>& rule) {
  request.segments = batch.segments;
  request.recompute = rule;
  return request;
}

/// Seconds to the first token that a request gets.
struct FirstToken {
  double seconds = 0;
  RequestResult result;
};

FirstToken time_first_token(Engine& engine, Request request) {
  using Clock = std::chrono::steady_clock;
  request.max_tokens = 1;
  request.ignore_eos = true;
  request.given.clear();
  FirstToken first;
  const auto begun = Clock::now();
  engine.on_token(
      [&](uint64_t, const GeneratedToken&) { first.seconds = std::chrono::duration<double>(Clock::now() - begun).count(); });
  engine.submit(std::move(request));
  first.result = engine.run_all().front();
  engine.on_token({});
  return first;
}

}  // namespace

/// An engine that knows the segments of a document.
class ReuseRunner::Reusing {
 public:
  /// `plan`: of a flow whose decode steps are not dense; else null. `page` and `kv`: of the flow.
  Reusing(Device& device, const Model& model, const ReuseBatch& batch, const Plan* plan, int page, DataType kv)
      : batch_(&batch),
        is_dense_(plan == nullptr),
        page_(page),
        kv_(kv),
        engine_(device, model, plan, options_for(device, batch, page, kv, true)) {
    for (const KnownText& text : batch.known) {
      Request known;
      known.prompt = text.tokens;
      known.segments = text.segments;
      known.max_tokens = std::max(1, static_cast<int>(text.answer.size()));
      known.given = text.answer;
      known.ignore_eos = true;
      if (!text.answer.empty()) known.answer_extra_key = text.answer_key;
      engine_.submit(std::move(known));
    }
    engine_.run_all();
  }

  /// Whether another flow finds here what it would make for itself: its decode steps are dense, too.
  bool serves(const ReuseBatch& batch, const Plan* plan, int page, DataType kv) const {
    return batch_ == &batch && is_dense_ && plan == nullptr && page_ == page && kv_ == kv;
  }
  Engine& engine() { return engine_; }

 private:
  const ReuseBatch* batch_;
  bool is_dense_;
  int page_;
  DataType kv_;
  Engine engine_;
};

ReuseRunner::ReuseRunner(Device& device, const Model& model, const Tokenizer& tokenizer, const ReuseLayout& layout)
    : device_(device), model_(model), tokenizer_(tokenizer), layout_(layout) {}

ReuseRunner::~ReuseRunner() = default;

Candidate ReuseRunner::prepare(const FlowScript& script) {
  Candidate candidate = prepare_flow(script, model_.config(), device_);
  if (candidate.traced.recompute == nullptr) {
    throw InputError("the flow does not say what is computed again of copied text, which this suite is about",
                     "write function flow.recompute(r), or choose another suite");
  }
  if (!candidate.plan.takes_copies()) {
    throw InputError("prompts of the flow are computed, whatever is known of their text: nothing is copied",
                     "leave out patterns, evictions, variants, and masses of prompts");
  }
  return candidate;
}

std::optional<std::string> ReuseRunner::check_numerically(const Candidate& candidate) {
  if (auto fault = check_against_reference(device_, candidate.traced, candidate.plan)) return fault;
  return check_rule_against_reference(*candidate.traced.recompute);
}

std::optional<TraceResult> ReuseRunner::judge_on_traces(const FlowScript& /*script*/, const Candidate& /*candidate*/) {
  return std::nullopt;
}

int ReuseRunner::batch_size(int /*tokens*/) const { return 1; }

void ReuseRunner::with_engine(const PrefilledBatch& prefilled, const Plan& plan, const std::function<void(Engine&)>& work) {
  const ReuseBatch& batch = reuse_batch(prefilled);
  const Plan* const own = is_sparse(plan, model_.config()) ? &plan : nullptr;
  const int page = plan.layout.page;
  const DataType kv = plan.layout.kv;
  std::unique_ptr<Reusing> reusing = std::move(reusing_);  // gone if the work comes to no end
  if (reusing == nullptr || !reusing->serves(batch, own, page, kv)) {
    reusing.reset();  // before more is made
    reusing = std::make_unique<Reusing>(device_, model_, batch, own, page, kv);
  }
  work(reusing->engine());
  // Prompts of which everything was computed are known as beginnings, which others must not find.
  if (plan.graph.recompute->kind != Recompute::Kind::kAll) reusing_ = std::move(reusing);
}

std::unique_ptr<PrefilledBatch> ReuseRunner::prefill(const std::vector<JobDocument>& documents) {
  reusing_.reset();  // whose batch may be gone
  auto batch = std::make_unique<ReuseBatch>();
  for (const JobDocument& document : documents) {
    for (const Job& job : document) batch->prompts.push_back(prompt_of(job, tokenizer_));
  }
  if (documents.size() != 1) throw InternalError(fmt::format("reuse: {} documents at once", documents.size()));
  const size_t common = common_tokens(batch->prompts);
  const auto document = std::span<const int32_t>(batch->prompts.front().tokens).first(common);
  std::vector<std::string> answers;
  for (const Job& job : documents.front()) answers.push_back(job.sample.answer);
  const std::vector<int> cuts = cuts_of_answers(document, answers, tokenizer_);
  require_segments(layout_, static_cast<int>(common));
  batch->segments = segments_of(layout_, static_cast<int>(common), kReuseBlock, cuts);
  const Occasion occasion = documents.front().front().occasion;
  for (size_t i = 0; i < batch->segments.size(); ++i) batch->segments[i].extra_key = name_of_segment(occasion, i);
  batch->known = known_texts(occasion, document, batch->segments);
  return batch;
}

std::vector<Generation> ReuseRunner::decode(const PrefilledBatch& prefilled, const Plan* plan) {
  const ReuseBatch& batch = reuse_batch(prefilled);
  std::vector<Generation> generations;
  const auto answer = [&](Engine& engine, size_t place, Request request) {
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    generations.push_back(std::move(answer_all(engine, {batch.prompts[place]}, std::move(requests), tokenizer_).front()));
  };
  if (plan == nullptr) {
    Engine engine(device_, model_, nullptr, options_for(device_, batch, EngineOptions().page, EngineOptions().kv, false));
    for (size_t i = 0; i < batch.prompts.size(); ++i) answer(engine, i, request_for(batch.prompts[i]));
    return generations;
  }
  const auto rule = make_recompute_rule(plan->graph.recompute);
  with_engine(batch, *plan, [&](Engine& engine) {
    for (size_t i = 0; i < batch.prompts.size(); ++i)
      answer(engine, i, with_segments(request_for(batch.prompts[i]), batch, rule));
  });
  return generations;
}

TaskSpeed ReuseRunner::measure(const PrefilledBatch& prefilled, const Plan& plan, const Answers& /*answers*/,
                               const SpeedOptions& options) {
  const ReuseBatch& batch = reuse_batch(prefilled);
  Rng rng(Seed::secret(), "reuse");  // neither what is timed nor who goes first may be foreseeable
  TaskSpeed speed;
  speed.batch = 1;
  EngineOptions of_dense = options_for(device_, batch, EngineOptions().page, EngineOptions().kv, false);
  of_dense.prefix_cache = false;
  Engine dense(device_, model_, nullptr, of_dense);
  const auto rule = make_recompute_rule(plan.graph.recompute);
  const int pairs = std::max(options.least, std::min(options.pairs, static_cast<int>(batch.prompts.size())));
  double computed = 0;
  // Every prompt begins with another token, which is not that of the document: nobody knows its beginning.
  std::set<int32_t> begun = {batch.prompts.front().tokens.front()};
  const auto drawn = [&] {
    PrefilledPrompt prompt = batch.prompts[rng.below(batch.prompts.size())];
    do {
      prompt.tokens.front() = static_cast<int32_t>(rng.below(static_cast<uint64_t>(model_.config().vocabulary)));
    } while (!begun.insert(prompt.tokens.front()).second);
    return prompt;
  };
  with_engine(batch, plan, [&](Engine& reusing) {
    TimingWatch watch(device_, options.patience);
    {  // nobody's first prompt is timed
      const PrefilledPrompt prompt = drawn();
      time_first_token(dense, request_for(prompt));
      time_first_token(reusing, with_segments(request_for(prompt), batch, rule));
    }
    watch.begin();
    for (int pair = 0; pair < pairs; ++pair) {
      const PrefilledPrompt prompt = drawn();
      speed.tokens = std::max(speed.tokens, static_cast<int>(prompt.tokens.size()));
      const auto by_dense = [&] { speed.seconds.slow.push_back(time_first_token(dense, request_for(prompt)).seconds); };
      const bool dense_first = rng.below(2) == 0;
      if (dense_first) by_dense();
      const FirstToken first = time_first_token(reusing, with_segments(request_for(prompt), batch, rule));
      speed.seconds.fast.push_back(first.seconds);
      if (!dense_first) by_dense();
      const int copied = first.result.copied_tokens - first.result.recomputed_tokens;
      computed += 1 - static_cast<double>(copied) / static_cast<double>(prompt.tokens.size());
    }
    speed.conditions = watch.end();
  });
  speed.generated = pairs;
  speed.pages_read = computed / pairs;
  speed.limit = limit_of(model_.config(), speed.tokens, speed.pages_read);
  return speed;
}

}  // namespace sluice
