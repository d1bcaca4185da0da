#include "agents/evaluation/speed.h"

#include <algorithm>

#include "agents/step_timing.h"
#include "agents/tasks/rng.h"
#include "host/engine.h"

namespace sluice {
namespace {

constexpr size_t kProbed = 4;  // prompts whose attention mass is measured, while they are answered

/// An engine whose requests all decode.
class Side {
 public:
  Side(std::vector<PrefilledPrompt> prompts, Device& device, const Model& model, const Plan* plan)
      : prompts_(std::move(prompts)),
        // All of them at once, whatever else a flow keeps in its pages.
        engine_(device, model, plan, engine_options(prompts_, model.config(), plan, SIZE_MAX)) {
    for (const PrefilledPrompt& prompt : prompts_) {
      Request request;
      request.prompt = prompt.tokens;
      request.snapshot = prompt.snapshot;
      request.max_tokens = prompt.max_tokens;
      request.ignore_eos = true;
      engine_.submit(std::move(request));
    }
    // Whatever is left of the prompts first; from then on every pass decodes all of them.
    while (engine_.stats().decode_passes < SpeedOptions::kWarmSteps) require_step(engine_);
    engine_.settle();
  }

  double run(int steps) { return time_steps(engine_, steps); }

  EngineStats stats() const { return engine_.stats(); }

 private:
  std::vector<PrefilledPrompt> prompts_;
  Engine engine_;
};

std::vector<PrefilledPrompt> repeated(const std::vector<PrefilledPrompt>& document, size_t count, int max_tokens) {
  std::vector<PrefilledPrompt> prompts;
  for (size_t i = 0; i < count; ++i) {
    prompts.push_back(document[i % document.size()]);
    prompts.back().max_tokens = max_tokens;
  }
  return prompts;
}

std::vector<double> attention_mass(const std::vector<PrefilledPrompt>& document, Device& device, const Model& model,
                                   const Plan& plan) {
  const std::vector<PrefilledPrompt> prompts(document.begin(),
                                             document.begin() + static_cast<ptrdiff_t>(std::min(kProbed, document.size())));
  Engine engine(device, model, &plan, engine_options(prompts, model.config(), &plan));
  for (const PrefilledPrompt& prompt : prompts) {
    Request request;
    request.prompt = prompt.tokens;
    request.snapshot = prompt.snapshot;
    request.max_tokens = prompt.max_tokens;
    request.want_probe = true;
    engine.submit(std::move(request));
  }
  std::vector<double> mass(model.config().layers, 0);
  const auto results = engine.run_all();
  for (const RequestResult& result : results) {
    // Where no layer is sparse nothing is reported: all of the mass is covered.
    for (size_t layer = 0; layer < mass.size(); ++layer) {
      mass[layer] += (layer < result.mass.size() ? result.mass[layer] : 1) / static_cast<double>(results.size());
    }
  }
  return mass;
}

}  // namespace

SpeedResult measure_speed(const std::vector<PrefilledPrompt>& document, Device& device, const Model& model, const Plan& plan,
                          const SpeedOptions& options) {
  SpeedResult result;
  for (const PrefilledPrompt& prompt : document) result.tokens = std::max(result.tokens, static_cast<int>(prompt.tokens.size()));
  result.batch = std::min(options.batch, prompts_together(model.config(), result.tokens + options.generated()));
  result.pairs = options.pairs;
  result.mass = attention_mass(document, device, model, plan);

  const auto prompts = repeated(document, result.batch, options.generated());
  Side dense(prompts, device, model, nullptr);
  Side flow(prompts, device, model, &plan);
  Rng order(Seed::secret(), "order");  // who goes first must not be foreseeable
  std::vector<double> dense_seconds;
  std::vector<double> flow_seconds;
  for (int pair = 0; pair < options.pairs; ++pair) {
    const bool dense_first = order.below(2) == 0;
    if (dense_first) dense_seconds.push_back(dense.run(options.steps));
    flow_seconds.push_back(flow.run(options.steps));
    if (!dense_first) dense_seconds.push_back(dense.run(options.steps));
  }
  result.speedup = paired_ratio(dense_seconds, flow_seconds);
  const auto throughput = [&](const std::vector<double>& seconds) {
    double sum = 0;
    for (const double value : seconds) sum += value;
    return static_cast<double>(result.batch) * options.steps * options.pairs / sum;
  };
  result.dense_tokens_per_second = throughput(dense_seconds);
  result.flow_tokens_per_second = throughput(flow_seconds);
  const EngineStats stats = flow.stats();
  if (stats.pages_available > 0) {
    result.pages_read = static_cast<double>(stats.pages_attended) / static_cast<double>(stats.pages_available);
  }
  int sparse = 0;
  const int layers = model.config().layers;
  for (int layer = 0; layer < layers; ++layer) sparse += plan.graph.layers.is_sparse(layer, layers) ? 1 : 0;
  result.limit = layers / (layers - sparse + sparse * result.pages_read);
  return result;
}

}  // namespace sluice
