#include "host/serving/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "host/serving/engine_state.h"
#include "host/serving/kv_snapshot.h"
#include "host/serving/random.h"
#include "host/serving/sampler.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

PageLayout choose_layout(const ModelConfig& config, const Plan* plan, const EngineOptions& options) {
  if (plan == nullptr) {
    if (options.page < 8 || options.page > 128 || (options.page & (options.page - 1)) != 0) {
      throw InputError(fmt::format("a page of {} tokens", options.page), "a page holds 8, 16, 32, 64 or 128 tokens");
    }
    return page_layout({config.head_dim, config.group(), options.page, options.kv}, {});
  }
  const Geometry& geometry = plan->graph.geometry;
  if (geometry.head_dim != config.head_dim || geometry.group != config.group()) {
    throw InputError(
        fmt::format("flow \"{}\" was traced for heads of {} with {} query heads per KV head, but the model has {} and {}",
                    plan->graph.name, geometry.head_dim, geometry.group, config.head_dim, config.group()),
        "trace the flow with the model's geometry");
  }
  return plan->layout;
}

int choose_pages(const ModelConfig& config, const PageLayout& layout, const EngineOptions& options) {
  if (options.pages > 0) return options.pages;
  const size_t bytes = layout.bytes * static_cast<size_t>(config.layers) * static_cast<size_t>(config.kv_heads);
  const size_t pages = options.pool_bytes / bytes;
  if (pages == 0) {
    throw InputError(fmt::format("a page pool of {} bytes cannot hold one page of {} bytes", options.pool_bytes, bytes),
                     "make the pool larger");
  }
  return static_cast<int>(std::min<size_t>(pages, 1 << 24));
}

/// The layers without a window first.
std::vector<CacheGroup> groups_of(const ModelConfig& config, const PageLayout& layout, const EngineOptions& options) {
  if (options.windows.size() >= kMostGroups) {
    throw InputError(
        fmt::format("{} windows; at most {} groups of layers are kept apart", options.windows.size() + 1, kMostGroups));
  }
  std::vector<CacheGroup> groups = {{{}, layout}};
  std::vector<bool> has_window(static_cast<size_t>(config.layers), false);
  for (const LayerWindow& window : options.windows) {
    if (window.layers.empty()) throw InputError(fmt::format("a window of {} tokens for no layer", window.tokens));
    if (window.tokens < 1) throw InputError(fmt::format("a window of {} tokens; at least 1 is wanted", window.tokens));
    for (const int layer : window.layers) {
      if (layer < 0 || layer >= config.layers) {
        throw InputError(fmt::format("a window for layer {} of a model of {} layers", layer, config.layers));
      }
      has_window[static_cast<size_t>(layer)] = true;
    }
    groups.push_back({window.layers, layout});
    std::sort(groups.back().layers.begin(), groups.back().layers.end());
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!has_window[static_cast<size_t>(layer)]) groups.front().layers.push_back(layer);
  }
  if (groups.front().layers.empty()) throw InputError("every layer has a window", "leave a layer that keeps all tokens");
  return groups;
}

/// Slabs are as small as memory is read fast: a stretch of pages of a layer fills the larger pages of memory that devices have.
PoolMap choose_map(const ModelConfig& config, const PageLayout& layout, const EngineOptions& options) {
  const int pages = choose_pages(config, layout, options);
  if (options.windows.empty()) return {config.layers, config.kv_heads, pages, layout};
  constexpr size_t kStretch = size_t{2} << 20;
  constexpr size_t kFewSlabs = 32;  // for small pools stretches are shorter
  std::vector<CacheGroup> groups = groups_of(config, layout, options);
  const size_t page_bytes = layout.bytes * static_cast<size_t>(config.kv_heads);
  const size_t bytes = page_bytes * static_cast<size_t>(config.layers) * static_cast<size_t>(pages);
  size_t most_layers = 0;
  for (const CacheGroup& group : groups) most_layers = std::max(most_layers, group.layers.size());
  const size_t least = page_bytes * (most_layers + 1);
  const size_t slabs = std::max(bytes / std::max(least, most_layers * kStretch), std::min(kFewSlabs, bytes / least));
  if (slabs < groups.size()) {
    throw InputError(fmt::format("a page pool of {} bytes cannot hold pages of {} groups of layers", bytes, groups.size()),
                     "make the pool larger");
  }
  return {config.kv_heads, std::move(groups), bytes / slabs, static_cast<int>(slabs)};
}

std::unique_ptr<Pool> create_pool(Device& device, const ModelConfig& config, const Plan* plan, const EngineOptions& options) {
  return device.create_pool(choose_map(config, choose_layout(config, plan, options), options));
}

/// By group. No sequence is longer than the model's positions, so no window is.
std::vector<int> windows_of(const ModelConfig& config, const EngineOptions& options) {
  std::vector<int> windows = {0};
  for (const LayerWindow& window : options.windows) windows.push_back(std::min(window.tokens, config.max_positions));
  return windows;
}

std::unique_ptr<CompiledFlow> compile_if_sparse(Device& device, const ModelConfig& config, const Plan* plan,
                                                const EngineOptions& options) {
  if (plan == nullptr || plan->graph.selection() == kNoNode) return nullptr;
  for (const LayerWindow& window : options.windows) {
    for (const int layer : window.layers) {
      if (!plan->graph.layers.is_sparse(layer, config.layers)) continue;
      throw InputError(fmt::format("layer {} has a window and runs flow \"{}\"", layer, plan->graph.name),
                       "let the flow leave that layer out");
    }
  }
  return device.compile(*plan, config.layers, config.kv_heads);
}

SchedulerOptions choose_limits(const ModelConfig& config, const EngineOptions& options, bool decode_differs) {
  if (options.max_batch < 1 || options.max_pass_tokens < options.max_batch) {
    throw InputError(fmt::format("a batch of {} in passes of {} tokens", options.max_batch, options.max_pass_tokens),
                     "both are at least 1, and a pass has at least one token for each of the batch");
  }
  // Requests that want all logits get chunks of prefill that keep the rows of logits within this many numbers.
  constexpr int kLogits = 1 << 22;
  SchedulerOptions limits;
  limits.max_batch = options.max_batch;
  limits.max_pass_tokens = options.max_pass_tokens;
  limits.max_logit_rows = std::max(options.max_batch, std::min(options.max_pass_tokens, kLogits / config.vocabulary));
  limits.decode_differs = decode_differs;
  return limits;
}

// Tokens that the cache will hold at most. The last one generated needs no place, unless its logits are wanted.
int64_t most_tokens(const Request& request) {
  return static_cast<int64_t>(request.prompt.size()) + request.max_tokens - (request.want_logits ? 0 : 1);
}

// Bytes of the flow's states for one request of `pages` pages; the device adds a little.
int64_t state_bytes(const FlowGraph& graph, const ModelConfig& config, int pages) {
  int64_t floats = 0;
  for (const State& state : graph.states) {
    floats += elements_per_page(state.shape) * (has_axis(state.shape, Axis::kPage) ? pages : 1);
  }
  int sparse = 0;
  for (int layer = 0; layer < config.layers; ++layer) sparse += graph.layers.is_sparse(layer, config.layers) ? 1 : 0;
  return floats * sparse * config.kv_heads * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Engine::State::State(Device& on, const Model& loaded, const Plan* plan, const EngineOptions& wanted)
    : device(on),
      model(loaded),
      config(loaded.config()),
      options(wanted),
      pool(create_pool(on, config, plan, wanted)),
      flow(compile_if_sparse(on, config, plan, wanted)),
      limits(choose_limits(config, wanted, flow != nullptr)),
      windows(windows_of(config, wanted)),
      cache(pool->map(), {.page = pool->layout().page, .share = wanted.prefix_cache, .windows = windows}),
      scheduler(cache, limits),
      workspace(loaded.create_workspace(on, limits.max_pass_tokens, limits.max_logit_rows)),
      picks(on.create_picks(limits.max_batch)),
      runs_ahead(wanted.run_ahead.value_or(on.info().works_beside_host)) {
  choices.reserve(static_cast<size_t>(limits.max_batch));
  sampled.reserve(static_cast<size_t>(limits.max_batch));
  for (RunningPass& pass : passes) {
    pass.entries.reserve(static_cast<size_t>(limits.max_batch));
    pass.ended_states.reserve(static_cast<size_t>(limits.max_batch));
  }
  if (flow) {
    const size_t stride = static_cast<size_t>(limits.max_batch) * static_cast<size_t>(config.kv_heads);
    mass.resize(stride * static_cast<size_t>(config.layers));
    probes.resize(static_cast<size_t>(config.layers));
    for (size_t layer = 0; layer < probes.size(); ++layer) probes[layer].mass = mass.data() + layer * stride;
  }
  Device::Limits scratch;
  scratch.rows = limits.max_pass_tokens;
  scratch.sequences = limits.max_batch;
  scratch.pages_per_sequence = std::min(cache.pages(), pages_for(config.max_positions, cache.page()));
  scratch.query_heads = config.query_heads;
  scratch.kv_heads = config.kv_heads;
  scratch.head_dim = config.head_dim;
  scratch.page = cache.page();
  scratch.vocabulary = config.vocabulary;
  device.reserve(scratch);
  stats.overhead_bytes = workspace->bytes() + cache.bytes() + mass.size() * sizeof(float);
  update_gauges();
}

Engine::State::~State() {
  if (running_passes == 0) return;
  try {
    device.synchronize();            // a pass uses what is about to be freed
  } catch (const std::exception&) {  // then it has ended as well
  }
}

void Engine::State::check(const Request& request) const {
  const size_t prompt = request.prompt.size();
  if (prompt == 0) throw InputError("the prompt is empty", "give at least one token");
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= config.vocabulary) {
      throw InputError(fmt::format("token {} is outside the model's vocabulary of {}", token, config.vocabulary));
    }
  }
  if (request.max_tokens < 1) throw InputError(fmt::format("{} tokens to generate; at least 1 is wanted", request.max_tokens));
  check_sampling(request.sampling);
  const int64_t tokens = most_tokens(request);
  if (tokens > config.max_positions) {
    throw InputError(fmt::format("a prompt of {} tokens and {} to generate exceed the model's {} positions", prompt,
                                 request.max_tokens, config.max_positions),
                     "shorten the prompt or generate less");
  }
  if (!scheduler.could_hold(static_cast<int>(tokens))) {
    throw InputError(fmt::format("a prompt of {} tokens and {} to generate exceed the page pool, which holds {} tokens", prompt,
                                 request.max_tokens, capacity()),
                     "make the pool larger, or shorten the prompt");
  }
  if (flow) check_states(tokens);
  if (request.want_snapshot && !keeps_all()) throw InputError("a snapshot of K and V that layers with a window have not kept");
  if (!request.snapshot) return;
  if (!keeps_all()) throw InputError("K and V of a prompt were given, and layers with a window keep only the last");
  check_snapshot(*request.snapshot, request.prompt, *pool);
  if (request.want_logits)
    throw InputError("the logits of every prompt token need the prompt computed, but its K and V were given");
}

int64_t Engine::State::capacity() const {
  int64_t held = 0;
  int64_t step = int64_t{1} << 30;
  for (; step > 0; step /= 2) {
    if (held + step <= INT32_MAX && scheduler.could_hold(static_cast<int>(held + step))) held += step;
  }
  return held;
}

// States are made at admission, beside the pool: a whole batch of such requests must leave memory for the rest.
void Engine::State::check_states(int64_t tokens) const {
  constexpr int64_t kBeyondThePool = int64_t{1} << 30;
  const FlowGraph& graph = flow->plan().graph;
  const int64_t bytes = state_bytes(graph, config, pages_for(static_cast<int>(tokens), cache.page()));
  const int64_t all =
      options.state_bytes > 0 ? static_cast<int64_t>(options.state_bytes) : static_cast<int64_t>(pool->bytes()) + kBeyondThePool;
  const int64_t most = all / limits.max_batch;
  if (bytes <= most) return;
  throw InputError(
      fmt::format("the states of flow \"{}\" take {} MiB for a request of {} tokens, and in a batch of {} each may take "
                  "{} MiB",
                  graph.name, bytes >> 20, tokens, limits.max_batch, most >> 20),
      "make the flow's states smaller, the requests shorter or the batch smaller");
}

uint64_t Engine::State::submit(Request request) {
  check(request);
  auto job = std::make_unique<EngineJob>();
  job->id = ++last_id;
  job->priority = request.priority;
  job->caller = request.caller;
  job->most_tokens = static_cast<int>(most_tokens(request));
  job->tokens = std::move(request.prompt);
  job->prompt = static_cast<int>(job->tokens.size());
  job->prompt_logits = request.want_logits;
  job->own_pages = request.copy_prefix;
  job->seed = mix(options.seed, request.sampling.seed);
  if (request.snapshot) {
    const int given = std::min(static_cast<int>(request.snapshot->tokens.size()), job->stored_tokens());
    job->least_match = given / cache.page() * cache.page();
  }
  job->request = std::move(request);
  job->result.id = job->id;
  job->result.tokens.reserve(static_cast<size_t>(job->request.max_tokens));
  if (job->request.want_probe) job->result.mass.resize(static_cast<size_t>(config.layers));
  const uint64_t id = job->id;
  scheduler.add(*jobs.emplace(id, std::move(job)).first->second);
  update_gauges();
  return id;
}

void Engine::State::cancel(uint64_t id) {
  const auto found = jobs.find(id);
  if (found == jobs.end()) return;  // it has just ended: a race that the caller cannot avoid
  found->second->cancelled = true;
  any_cancelled = true;
  if (!stepping) finish_cancelled();  // within a pass, whose entries refer to it, it ends after the pass
}

void Engine::State::update_gauges() {
  stats.preemptions = scheduler.preemptions();
  stats.pages_free = cache.available();
  stats.pages_total = cache.pages();
  stats.running = scheduler.running();
  stats.waiting = scheduler.waiting();
}

Engine::Engine(Device& device, const Model& model, const Plan* flow, const EngineOptions& options)
    : state_(std::make_unique<State>(device, model, flow, options)) {}

Engine::~Engine() = default;

uint64_t Engine::submit(Request request) { return state_->submit(std::move(request)); }

void Engine::cancel(uint64_t id) { state_->cancel(id); }

int Engine::cached_tokens(uint64_t id) const {
  const auto job = state_->jobs.find(id);
  return job == state_->jobs.end() ? 0 : job->second->result.cached_tokens;
}

bool Engine::step() { return state_->step(); }

void Engine::settle() { state_->settle(); }

std::vector<RequestResult> Engine::take_finished() { return std::exchange(state_->finished, {}); }

std::vector<RequestResult> Engine::run_all() {
  while (step()) {
  }
  std::vector<RequestResult> results = take_finished();
  require_finite(results);
  return results;
}

void require_finite(const std::vector<RequestResult>& results) {
  const auto is_not = [](const RequestResult& result) { return result.reason == FinishReason::kNotFinite; };
  if (std::none_of(results.begin(), results.end(), is_not)) return;
  throw InputError("the model's logits are not finite (NaN or infinite): its weights are damaged or overflow",
                   "compare the checkpoint's files with where they came from");
}

void Engine::on_token(std::function<void(uint64_t id, int32_t token)> callback) { state_->callback = std::move(callback); }

EngineStats Engine::stats() const {
  EngineStats stats = state_->stats;
  if (state_->flow == nullptr) return stats;
  const FlowCounters pages = state_->flow->counters();
  stats.pages_attended = pages.pages_attended;
  stats.pages_available = pages.pages_available;
  return stats;
}

}  // namespace sluice
