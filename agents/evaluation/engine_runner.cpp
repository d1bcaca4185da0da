#include "agents/evaluation/engine_runner.h"

#include <algorithm>
#include <unordered_map>

#include "agents/evaluation/numerical.h"
#include "agents/evaluation/prefilled.h"
#include "agents/evaluation/speed.h"
#include "agents/evaluation/trace_options.h"
#include "kernels/device/device_refusal.h"
#include "scripting/base/error.h"
#include "scripting/graph/text.h"
#include "scripting/passes/cache_limit.h"

namespace sluice {
namespace {

constexpr size_t kStopWindow = 16;  // tokens that are searched for a stop text, which is shorter

const EngineBatch& engine_batch(const PrefilledBatch& batch) {
  const auto* found = dynamic_cast<const EngineBatch*>(&batch);
  if (found == nullptr) throw InternalError("a batch of another runner");
  return *found;
}

Request request_for(const PrefilledPrompt& prompt) {
  Request request;
  request.prompt = prompt.tokens;
  request.max_tokens = prompt.max_tokens;
  request.sampling = prompt.sampling;
  request.snapshot = prompt.snapshot;
  request.given = prompt.given;
  if (!prompt.given.empty()) request.likely = 0;
  return request;
}

/// Follows generations token by token, so that those whose outcome is known can end.
class Follower {
 public:
  explicit Follower(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(uint64_t id, const PrefilledPrompt& prompt) { watched_[id] = {&prompt, {}}; }

  /// True if nothing that could follow changes the score: of an answer in order, once there is a mistake.
  bool is_decided(uint64_t id, int32_t token) {
    Watched& watched = watched_.at(id);
    watched.tokens.push_back(token);
    const PrefilledPrompt& prompt = *watched.prompt;
    const size_t at = watched.tokens.size() - 1;
    if (!prompt.expected.empty() && at < prompt.expected.size() && prompt.expected[at] != token) return true;
    if (prompt.stop.empty()) return false;
    const auto& tokens = watched.tokens;
    const size_t first = tokens.size() - std::min(tokens.size(), kStopWindow);
    return tokenizer_.decode(std::span(tokens).subspan(first)).find(prompt.stop) != std::string::npos;
  }

  std::string text(uint64_t id) const { return tokenizer_.decode(watched_.at(id).tokens); }
  const std::vector<int32_t>& tokens(uint64_t id) const { return watched_.at(id).tokens; }

 private:
  struct Watched {
    const PrefilledPrompt* prompt = nullptr;
    std::vector<int32_t> tokens;
  };
  const Tokenizer& tokenizer_;
  std::unordered_map<uint64_t, Watched> watched_;
};

}  // namespace

Candidate prepare_flow(const FlowScript& script, const ModelConfig& config, Device& device) {
  FlowGraph traced = script.trace(trace_options(config));
  Plan plan = compile(traced).plan;
  const auto leave_windows = [&](Plan& program) {
    const bool is_pattern = !program.graph.patterns.empty() && program.graph.sources.empty();
    if (!is_pattern) program.graph.layers = without_windows(program.graph.layers, config);
  };
  leave_windows(plan);
  for (Plan& variant : plan.variants) leave_windows(variant);
  require_device_takes(plan, device.info().name);
  for (const Plan* program : plan.programs()) {
    check_cache_size(*program);
    if (program->graph.selection() != kNoNode) device.compile(*program, config.layers, config.kv_heads);
  }
  return {std::move(traced), std::move(plan)};
}

EngineRunner::EngineRunner(Device& device, const Model& model, const Tokenizer& tokenizer, TraceJudge* traces)
    : device_(device), model_(model), tokenizer_(tokenizer), traces_(traces), room_(room_on(device)) {}

Candidate EngineRunner::prepare(const FlowScript& script) { return prepare_flow(script, model_.config(), device_); }

std::optional<TraceResult> EngineRunner::judge_on_traces(const FlowScript& script, const Candidate& candidate) {
  return traces_ == nullptr ? std::nullopt : std::optional(traces_->judge(script, &candidate.traced));
}

int EngineRunner::batch_size(int tokens) const { return prompts_together(model_.config(), tokens, room_); }

std::unique_ptr<PrefilledBatch> EngineRunner::prefill(const std::vector<JobDocument>& documents) {
  own_ = {};  // whose batch may be gone
  return prefill_documents(documents, device_, model_, tokenizer_, known_, room_);
}

const EngineBatch& EngineRunner::batch_for(const PrefilledBatch& prefilled, const Plan* plan) {
  const EngineBatch& batch = engine_batch(prefilled);
  const bool evicts = plan != nullptr && plan->evicts();
  if (plan == nullptr || (!evicts && !plan->bounds_prompts())) return batch;
  std::string text = to_text(*plan);
  if (own_.of != &batch || own_.plan != text) {
    own_ = {};  // before more is made
    own_ = {&batch, std::move(text), evicts ? without_snapshots(batch) : prefill_under(*plan, batch, device_, model_, room_)};
  }
  return own_.batch;
}

std::vector<Generation> EngineRunner::decode(const PrefilledBatch& prefilled, const Plan* plan) {
  const EngineBatch& batch = batch_for(prefilled, plan);
  Engine engine(device_, model_, plan, engine_options(batch.prompts, model_.config(), plan, room_));
  Follower follower(tokenizer_);
  std::unordered_map<uint64_t, size_t> places;
  std::vector<uint64_t> ids;
  for (const PrefilledPrompt& prompt : batch.prompts) {
    ids.push_back(engine.submit(request_for(prompt)));
    places[ids.back()] = ids.size() - 1;
    follower.add(ids.back(), prompt);
  }
  engine.on_token([&](uint64_t id, const GeneratedToken& generated) {
    if (follower.is_decided(id, generated.token)) engine.cancel(id);
  });
  std::vector<Generation> generations(ids.size());
  for (const RequestResult& result : engine.run_all()) {
    generations[places.at(result.id)] = {follower.text(result.id), result.reason == FinishReason::kStop,
                                         follower.tokens(result.id), result.probabilities.of_tokens};
  }
  return generations;
}

TaskSpeed EngineRunner::measure(const PrefilledBatch& prefilled, const Plan& plan, const Answers& answers,
                                const SpeedOptions& options) {
  return time_questions(batch_for(prefilled, &plan), answers, device_, model_, plan, options);
}

std::optional<std::string> EngineRunner::check_numerically(const Candidate& candidate) {
  return check_against_reference(device_, candidate.traced, candidate.plan);
}

}  // namespace sluice
