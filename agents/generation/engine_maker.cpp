#include "agents/generation/engine_maker.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <algorithm>

#include <utility>

#include "agents/generation/dear_engine.h"
#include "agents/generation/engine_slot.h"
#include "agents/generation/flow_cost.h"
#include "agents/http/http_problem.h"
#include "host/serving/kv_cache.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

/// What `make` makes for the engine of `name`. Throws FlowError if the device cannot run the flow, HttpProblem, once the log has
/// it, for what no client can help.
template <typename Make>
auto made(const Make& make, const std::string& name, spdlog::logger* log) {
  try {
    return make();
  } catch (const FlowError&) {
    throw;  // the device cannot run it
  } catch (const InputError& error) {
    // The server lacks memory or a library, which no client can help.
    if (log) log->error("no engine for {}: {} ({})", name, error.what(), error.hint());
    throw HttpProblem(503, "the engine could not be made; the server's log tells more");
  } catch (const std::exception& error) {
    if (log) log->error("no engine for {}: {}", name, error.what());
    throw HttpProblem(500, "the engine could not be made; the server's log tells more");
  }
}

}  // namespace

EngineMaker::EngineMaker(const GenerationOptions& options, Device& device, const Model& model, GenerationMetrics& metrics,
                         std::function<void()> changed)
    : options_(options), device_(device), model_(model), metrics_(metrics), changed_(std::move(changed)) {}

std::shared_ptr<KvCache> EngineMaker::shared_cache(const Plan* plan, const EngineOptions& engine) {
  EngineOptions wanted = engine;
  if (plan != nullptr) {
    wanted.page = plan->layout.page;
    wanted.kv = plan->layout.kv;
  }
  std::shared_ptr<KvCache>& cache = caches_[{wanted.page, wanted.kv}];
  if (cache == nullptr) cache = create_shared_cache(device_, model_.config(), wanted);
  return cache->takes_fields() ? cache : nullptr;
}

std::unique_ptr<FlowEngine> EngineMaker::make(const LiveTask& live, int engines_to_come) {
  const auto keeps_any = [](const Plan& plan) {
    const std::vector<const Plan*> programs = plan.programs();
    return std::any_of(programs.begin(), programs.end(), [](const Plan* each) { return !each->graph.states.empty(); });
  };
  const bool keeps_state = live.task.plan && keeps_any(*live.task.plan);
  const EngineRoom room{.free_bytes = device_.free_bytes(),
                        .weight_bytes = model_.weight_bytes(),
                        .engines_to_come = engines_to_come,
                        .keeps_state = keeps_state};
  EngineOptions engine = options_of_engine(options_, device_.info(), room);
  const std::string& flow = live.task.flow;
  const std::string name = flow.empty() ? "dense attention" : fmt::format("flow \"{}\"", flow);
  const bool has_own_cache = live.task.plan && live.task.plan->has_own_cache();
  if (options_.shares_cache && !live.dear && !has_own_cache) {
    engine.cache = made([&] { return shared_cache(live.task.plan.get(), engine); }, name, options_.log.get());
  }
  const auto make_slot = [this, name, flow, plan = live.task.plan, engine](Device& on) {
    return made(
        [&] {
          auto slot = std::make_unique<EngineSlot>(on, model_, flow, plan, engine, metrics_);
          if (options_.log) {
            const double bytes = static_cast<double>(engine.cache ? engine.cache->pool().bytes() : engine.pool_bytes);
            options_.log->info("an engine for {}: {} pages in {:.0f} MiB{}, at most {} requests at once", name,
                               slot->stats().pages_total, bytes / (1 << 20), engine.cache ? " that others share" : "",
                               engine.max_batch);
          }
          return slot;
        },
        name, options_.log.get());
  };
  if (!live.dear) return make_slot(device_);
  const auto make_device = [this, name, threads = device_.info().threads] {
    return made([&] { return create_device("cpu", threads); }, name, options_.log.get());
  };
  return std::make_unique<DearEngine>(flow, make_device, make_slot, changed_);
}

bool EngineMaker::is_dear(const Plan& plan) const {
  if (device_.info().works_beside_host) return false;  // there is one of it
  return sluice::is_dear(plan, model_.config(), options_of_engine(options_, device_.info(), {}));
}

int EngineMaker::max_batch() const { return options_of_engine(options_, device_.info(), {}).max_batch; }

}  // namespace sluice
