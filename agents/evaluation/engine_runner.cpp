#include "agents/evaluation/engine_runner.h"

#include <algorithm>
#include <utility>

#include "agents/evaluation/answering.h"
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

const EngineBatch& engine_batch(const PrefilledBatch& batch) {
  const auto* found = dynamic_cast<const EngineBatch*>(&batch);
  if (found == nullptr) throw InternalError("a batch of another runner");
  return *found;
}

}  // namespace

namespace {

/// For the model; not compiled for the device.
Candidate plan_flow(const FlowScript& script, const ModelConfig& config) {
  FlowGraph traced = script.trace(trace_options(config));
  Plan plan = compile(traced).plan;
  const auto leave_windows = [&](Plan& program) {
    const bool is_pattern = !program.graph.patterns.empty() && program.graph.sources.empty();
    if (!is_pattern) program.graph.layers = without_windows(program.graph.layers, config);
  };
  leave_windows(plan);
  for (Plan& variant : plan.variants) leave_windows(variant);
  return {std::move(traced), std::move(plan)};
}

}  // namespace

Candidate prepare_flow(const FlowScript& script, const ModelConfig& config, Device& device) {
  Candidate candidate = plan_flow(script, config);
  require_device_takes(candidate.plan, device.info().name);
  for (const Plan* program : candidate.plan.programs()) {
    check_cache_size(*program);
    if (program->graph.selection() != kNoNode) device.compile(*program, config.layers, config.kv_heads);
  }
  return candidate;
}

void announce_flows(std::span<const FlowScript> scripts, const ModelConfig& config, Device& device, const TraceJudge* traces) {
  if (!device.info().compiles_kernels) return;
  std::vector<Plan> plans;
  for (const FlowScript& script : scripts) {
    try {
      const Candidate candidate = plan_flow(script, config);
      for (const Plan* program : candidate.plan.programs()) {
        if (program->graph.selection() != kNoNode) plans.push_back(*program);
      }
      if (traces == nullptr) continue;
      for (Plan& plan : traces->plans_of(script)) plans.push_back(std::move(plan));
    } catch (const InputError&) {
      continue;  // whoever prepares it says so
    }
  }
  device.compile_ahead(plans);
}

EngineRunner::EngineRunner(Device& device, const Model& model, const Tokenizer& tokenizer, TraceJudge* traces)
    : device_(device), model_(model), tokenizer_(tokenizer), traces_(traces), room_(room_on(device)) {}

void EngineRunner::announce(std::span<const FlowScript> scripts) { announce_flows(scripts, model_.config(), device_, traces_); }

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
  std::vector<Request> requests;
  for (const PrefilledPrompt& prompt : batch.prompts) requests.push_back(request_for(prompt));
  return answer_all(engine, batch.prompts, std::move(requests), tokenizer_);
}

TaskSpeed EngineRunner::measure(const PrefilledBatch& prefilled, const Plan& plan, const Answers& answers,
                                const SpeedOptions& options) {
  return time_questions(batch_for(prefilled, &plan), answers, device_, model_, plan, options);
}

std::optional<std::string> EngineRunner::check_numerically(const Candidate& candidate) {
  return check_against_reference(device_, candidate.traced, candidate.plan);
}

}  // namespace sluice
