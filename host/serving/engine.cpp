#include "host/serving/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "host/serving/engine_state.h"
#include "host/serving/kv_cache.h"
#include "host/serving/kv_snapshot.h"
#include "host/serving/random.h"
#include "host/serving/sampler.h"
#include "scripting/base/error.h"
#include "scripting/graph/text.h"

namespace sluice {
namespace {

void check_geometry(const ModelConfig& config, const Plan& plan) {
  const Geometry& geometry = plan.graph.geometry;
  if (geometry.head_dim == config.head_dim && geometry.group == config.group()) return;
  throw InputError(
      fmt::format("flow \"{}\" was traced for heads of {} with {} query heads per KV head, but the model has {} and {}",
                  plan.graph.name, geometry.head_dim, geometry.group, config.head_dim, config.group()),
      "trace the flow with the model's geometry");
}

/// The cache that the engine shares, or one of its own.
std::shared_ptr<KvCache> cache_of(Device& device, const ModelConfig& config, const Plan* plan, const EngineOptions& options) {
  if (plan != nullptr) check_geometry(config, *plan);
  if (options.cache == nullptr) return create_own_cache(device, config, plan, options);
  if (plan != nullptr && plan->has_own_cache()) {
    const char* const what = !plan->variants.empty() ? "has variants" : plan->graph.eviction ? "evicts tokens" : "has patterns";
    throw InputError(fmt::format("flow \"{}\" {}, and has a cache of its own", plan->graph.name, what));
  }
  if (!options.cache->is_of(device, config)) throw InputError("a cache of another model or device is to be shared");
  const PageLayout& kept = options.cache->pool().layout();
  if (plan != nullptr && (plan->layout.page != kept.page || plan->layout.kv != kept.kv)) {
    throw InputError(fmt::format("flow \"{}\" has pages of {} tokens in {}, and those of the shared cache are of {} in {}",
                                 plan->graph.name, plan->layout.page, name_of(plan->layout.kv), kept.page, name_of(kept.kv)),
                     "share a cache among flows of one page size and type");
  }
  return options.cache;
}

/// The group of the cache that gets the flow's fields; -1: they lie with K and V, or it has none.
FieldPlane field_plane_of(const ModelConfig& config, const LayerFlows& flows, KvCache& cache) {
  if (flows.empty() || !flows.all().front()->plan().has_field_pages()) return {};
  CacheGroup group{{}, flows.all().front()->plan().fields()};
  for (int layer = 0; layer < config.layers; ++layer) {
    if (flows.of(layer) != nullptr) group.layers.push_back(layer);
  }
  return {cache, std::move(group)};
}

SchedulerOptions choose_limits(const ModelConfig& config, const EngineOptions& options, const LayerFlows& flows, int field_group,
                               const KvCache& cache) {
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
  limits.decode_differs = !flows.empty() || decodes_otherwise(cache.views());
  const std::vector<GroupView>& views = cache.views();
  const bool is_told = std::any_of(views.begin(), views.end(), [](const GroupView& view) { return view.beside.has_value(); });
  const Pattern* const beside = flows.all().size() == 1 ? flows.all().front()->plan().graph.beside() : nullptr;
  if (beside != nullptr && !is_told) limits.beside = *beside;  // else each group has what its program says
  limits.own_rows = flows.prompt_rows_wanted();
  limits.field_group = field_group;
  limits.views = cache.views();
  limits.most_positions = config.max_positions;
  return limits;
}

void check_tokens(std::span<const int32_t> tokens, int vocabulary) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    throw InputError(fmt::format("token {} is outside the model's vocabulary of {}", token, vocabulary));
  }
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
  // What the rows of the prompt give its tokens.
  if (graph.reads_mass() && graph.mass_rows > 0) floats += int64_t{graph.geometry.page} * graph.geometry.group * pages;
  int sparse = 0;
  for (int layer = 0; layer < config.layers; ++layer) sparse += graph.layers.is_sparse(layer, config.layers) ? 1 : 0;
  return floats * sparse * config.kv_heads * static_cast<int64_t>(sizeof(float));
}

/// What stands for a flow in the spaces of segments.
std::string key_of(const Plan& plan, const SegmentIndex& index) {
  const SegmentIndex::Digest digest = index.digest_of(to_text(plan));
  return {digest.begin(), digest.end()};
}

}  // namespace

Engine::State::State(Device& on, const Model& loaded, const Plan* plan, const EngineOptions& wanted)
    : device(on),
      model(loaded),
      config(loaded.config()),
      options(wanted),
      kv(cache_of(on, config, plan, wanted)),
      pool(kv->pool()),
      cache(kv->pages()),
      flows(on, config, plan, wanted, *kv),
      flow_key(flows.empty() || kv->segments() == nullptr ? "" : key_of(*plan, *kv->segments())),
      fields(field_plane_of(config, flows, *kv)),
      limits(choose_limits(config, wanted, flows, fields.group(), *kv)),
      scheduler(cache, limits),
      workspace(loaded.create_workspace(on, limits.max_pass_tokens, limits.max_logit_rows)),
      picks(on.create_picks(limits.max_logit_rows)),
      reuse_pick(on.create_picks(1)),
      runs_ahead(wanted.run_ahead.value_or(on.info().works_beside_host)),
      reuse_batch(std::vector<int>(static_cast<size_t>(std::max(fields.group(), 0)) + 1, cache.page())) {
  reuse_batch.set_field_group(fields.group());
  choices.reserve(static_cast<size_t>(limits.max_logit_rows));
  sampled.reserve(static_cast<size_t>(limits.max_logit_rows));
  for (RunningPass& pass : passes) {
    pass.entries.reserve(static_cast<size_t>(limits.max_batch));
    pass.ended_states.reserve(static_cast<size_t>(limits.max_batch));
  }
  if (!flows.empty()) {
    const size_t stride = static_cast<size_t>(limits.max_batch) * static_cast<size_t>(config.kv_heads);
    mass.resize(stride * static_cast<size_t>(config.layers));
    probes.resize(static_cast<size_t>(config.layers));
    for (size_t layer = 0; layer < probes.size(); ++layer) probes[layer].mass = mass.data() + layer * stride;
  }
  Device::Limits scratch;
  scratch.rows = limits.max_pass_tokens;
  scratch.sequences = limits.max_batch;
  // Where pages are given back, a sequence lists more than there are.
  const int64_t longest = has_lives(kv->views()) ? scheduler.longest() : int64_t{cache.pages()} * cache.page();
  scratch.pages_per_sequence = pages_for(static_cast<int>(std::min<int64_t>(config.max_positions, longest)), cache.page());
  if (scheduler.has_slots()) scratch.pages_per_sequence += pages_for(limits.max_pass_tokens, cache.page()) + 1;
  scratch.query_heads = config.query_heads;
  scratch.kv_heads = config.kv_heads;
  scratch.head_dim = config.head_dim;
  scratch.page = cache.page();
  scratch.groups = static_cast<int>(kv->views().size()) + (fields.group() < 0 ? 0 : 1);
  scratch.mask_words = scheduler.mask_words();
  for (const GroupView& view : kv->views())
    scratch.slot_heads = std::max(scratch.slot_heads, view.slots ? view.slots->heads() : 1);
  scratch.vocabulary = config.vocabulary;
  device.reserve(scratch);
  stats.overhead_bytes = workspace->bytes() + cache.bytes() + mass.size() * sizeof(float);
  stats.pool = &pool;
  stats.most_tokens = scheduler.longest();
  update_gauges();
}

Engine::State::~State() {
  if (running_passes > 0) {
    try {
      device.synchronize();            // a pass uses what is about to be freed
    } catch (const std::exception&) {  // then it has ended as well
    }
  }
  for (auto& [id, job] : jobs) scheduler.remove(*job);  // others may want their pages
}

void Engine::State::check(const Request& request) const {
  const size_t prompt = request.prompt.size();
  if (prompt == 0) throw InputError("the prompt is empty", "give at least one token");
  for (const auto* tokens : {&request.prompt, &request.given}) check_tokens(*tokens, config.vocabulary);
  if (request.max_tokens < 1) throw InputError(fmt::format("{} tokens to generate; at least 1 is wanted", request.max_tokens));
  if (request.given.size() > static_cast<size_t>(request.max_tokens)) {
    throw InputError(fmt::format("{} tokens are given, and {} are to be generated", request.given.size(), request.max_tokens));
  }
  if (request.likely > config.vocabulary) {
    throw InputError(fmt::format("log-probabilities of the {} most likely tokens of {}", request.likely, config.vocabulary));
  }
  if (request.likely > kMostLikely) {
    throw InputError(
        fmt::format("log-probabilities of the {} most likely tokens; at most {} can be had", request.likely, kMostLikely));
  }
  check_sampling(request.sampling);
  const int64_t tokens = most_tokens(request);
  if (tokens > config.max_positions) {
    throw InputError(fmt::format("a prompt of {} tokens and {} to generate exceed the model's {} positions", prompt,
                                 request.max_tokens, config.max_positions),
                     "shorten the prompt or generate less");
  }
  if (!scheduler.could_hold(static_cast<int>(tokens))) {
    const int64_t kept = scheduler.most_kept(static_cast<int>(tokens));
    std::string room = fmt::format("{} tokens", scheduler.longest());
    if (kept < tokens) {
      room = fmt::format("{} tokens: up to {} of this sequence are kept at a time, and one of {} tokens would fit",
                         int64_t{cache.pages()} * cache.page(), kept, scheduler.longest());
    } else if (has_lives(kv->views())) {
      room += ": the flow's patterns keep all tokens of a text that goes on";
    }
    throw InputError(fmt::format("a prompt of {} tokens and {} to generate exceed the page pool, which holds {}", prompt,
                                 request.max_tokens, room),
                     "make the pool larger, or shorten the prompt");
  }
  if (!flows.empty()) check_states(tokens, static_cast<int>(prompt));
  check_segments(request);
  if (request.want_snapshot && !kv->keeps_all())
    throw InputError("a snapshot of K and V that layers with a window or a pattern have not kept");
  if (!request.snapshot) return;
  if (!kv->takes_snapshots()) throw InputError("K and V of a prompt were given, and some layers do not keep all of them");
  check_snapshot(*request.snapshot, request.prompt, device, pool);
  if (request.want_logits || request.prompt_probabilities)
    throw InputError("the logits of every prompt token need the prompt computed, but its K and V were given");
}

void Engine::State::check_rule(const RecomputeRule& rule) const {
  const int layer = rule.rule().layer;
  if (rule.reads_layer() && layer >= config.layers)
    throw InputError(fmt::format("recompute: there is no layer {} in a model of {} layers", layer, config.layers));
  if (rule.rule().kind != Recompute::Kind::kSelected) return;
  const Geometry& geometry = rule.rule().graph.geometry;
  const bool fits = (!rule.reads_heads() || geometry.group == config.query_heads) &&
                    (kv->segments() == nullptr || geometry.page == cache.page());
  if (fits) return;
  throw InputError(fmt::format("recompute: the rule is for {} query heads and blocks of {}, and here are {} and {}",
                               geometry.group, geometry.page, config.query_heads, cache.page()));
}

void Engine::State::check_segments(const Request& request) const {
  int end = 0;
  for (const Segment& segment : request.segments) {
    if (segment.first < end || segment.end <= segment.first || segment.end > static_cast<int>(request.prompt.size())) {
      throw InputError(fmt::format("a segment of tokens {} to {}, in a prompt of {} of which {} are in others before it",
                                   segment.first, segment.end, request.prompt.size(), end),
                       "segments have tokens, in the order of the prompt, and do not overlap");
    }
    if (segment.extra_key.size() > kLongestExtraKey)
      throw InputError(fmt::format("an extra key of {} bytes; at most {} are taken", segment.extra_key.size(), kLongestExtraKey));
    end = segment.end;
  }
  if (request.recompute != nullptr) check_rule(*request.recompute);
  if (!request.freeze) return;
  if (kv->frozen() == nullptr) throw InputError("no text can be frozen here: segments of prompts are not reused");
  const bool is_whole = request.segments.size() == 1 && request.segments.front().first == 0 &&
                        request.segments.front().end == static_cast<int>(request.prompt.size());
  if (!is_whole || request.snapshot || request.copy_prefix) throw InputError("a frozen text is a prompt that is one segment");
  kv->frozen()->check(request.tenant, request.segments.front().extra_key, request.prompt);
}

// States are made at admission, beside the pool: a whole batch of such requests must leave memory for the rest.
void Engine::State::check_states(int64_t tokens, int prompt) const {
  constexpr int64_t kBeyondThePool = int64_t{1} << 30;
  const std::vector<int> pages = state_pages(static_cast<int>(tokens), prompt);
  int64_t bytes = 0;
  for (size_t i = 0; i < pages.size(); ++i) bytes += state_bytes(flows.all()[i]->plan().graph, config, pages[i]);
  const int64_t all =
      options.state_bytes > 0 ? static_cast<int64_t>(options.state_bytes) : static_cast<int64_t>(pool.bytes()) + kBeyondThePool;
  const int64_t most = all / limits.max_batch;
  if (bytes <= most) return;
  throw InputError(
      fmt::format("the states of flow \"{}\" take {} MiB for a request of {} tokens, and in a batch of {} each may take "
                  "{} MiB",
                  flows.all().front()->plan().graph.name, bytes >> 20, tokens, limits.max_batch, most >> 20),
      "make the flow's states smaller, the requests shorter or the batch smaller");
}

std::vector<int> Engine::State::state_pages(int tokens, int prompt) const {
  std::vector<int> pages;
  for (const auto& flow : flows.all())
    pages.push_back(scheduler.state_pages(pool.map().place_of(flows.first_layer(*flow)).group, tokens, prompt));
  return pages;
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
  job->prompt_logits = request.want_logits || request.prompt_probabilities;
  job->own_pages = request.copy_prefix;
  job->seed = mix(options.seed, request.sampling.seed);
  if (request.snapshot) {
    const int spared = std::max(0, job->stored_tokens() - limits.own_rows);
    job->given_tokens = std::min(static_cast<int>(request.snapshot->tokens.size()), spared);
  }
  job->request = std::move(request);
  job->result.id = job->id;
  job->result.tokens.reserve(static_cast<size_t>(job->request.max_tokens));
  if (job->request.prompt_probabilities && job->request.likely < 0) job->request.likely = 0;
  if (job->request.likely >= 0) {
    job->result.probabilities.reserve(static_cast<size_t>(job->request.max_tokens), job->request.likely);
    if (job->request.prompt_probabilities) {
      job->result.prompt_probabilities.reserve(job->tokens.size(), job->request.likely);
    }
  }
  if (job->request.probe_every > 0) job->result.mass.resize(static_cast<size_t>(config.layers));
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

bool Engine::keeps_texts() const {
  const FrozenPool* const frozen = state_->kv->frozen();
  return frozen != nullptr && !frozen->is_empty();
}

std::vector<FrozenText> Engine::frozen_texts() {
  FrozenPool* const frozen = state_->kv->frozen();
  return frozen == nullptr ? std::vector<FrozenText>{} : frozen->texts();
}

bool Engine::thaw(uint64_t id) {
  FrozenPool* const frozen = state_->kv->frozen();
  return frozen != nullptr && frozen->remove(id);
}

int Engine::cached_tokens(uint64_t id) const {
  const auto job = state_->jobs.find(id);
  if (job == state_->jobs.end()) return 0;
  const RequestResult& result = job->second->result;
  if (job->second->filling) return result.cached_tokens;
  return result.cached_tokens + result.copied_tokens - result.recomputed_tokens;
}

bool Engine::step() { return state_->step(); }

void Engine::settle() { state_->settle(); }

std::vector<RequestResult> Engine::take_finished() { return std::exchange(state_->finished, {}); }

std::vector<RequestResult> Engine::run_all() {
  while (step()) {
  }
  if (!state_->jobs.empty()) {
    throw InputError("requests wait for pages that another engine's requests have", "run that engine as well");
  }
  std::vector<RequestResult> results = take_finished();
  require_finite(results);
  return results;
}

double TokenProbabilities::sum() const {
  double sum = 0;
  for (const float each : of_tokens) sum += each;
  return sum;
}

void TokenProbabilities::reserve(size_t tokens, int likely_each) {
  likely_tokens = likely_each;
  of_tokens.reserve(tokens);
  likely.reserve(tokens * static_cast<size_t>(likely_each));
}

void TokenProbabilities::add(const RowProbabilities& row) {
  of_tokens.push_back(row.of_token);
  likely.insert(likely.end(), row.likely.begin(), row.likely.begin() + likely_tokens);
}

void require_finite(const std::vector<RequestResult>& results) {
  const auto is_not = [](const RequestResult& result) { return result.reason == FinishReason::kNotFinite; };
  if (std::none_of(results.begin(), results.end(), is_not)) return;
  throw InputError(
      "the model's logits are not finite (NaN or infinite): its weights are damaged or overflow, or its flow makes NaN",
      "try it without a flow; compare the checkpoint's files with where they came from");
}

void Engine::on_token(std::function<void(uint64_t id, const GeneratedToken& token)> callback) {
  state_->callback = std::move(callback);
}

EngineStats Engine::stats() const {
  EngineStats stats = state_->stats;
  stats.pages_free = state_->cache.available();  // others may share them
  if (state_->kv->frozen() != nullptr) stats.frozen_pages = state_->kv->frozen()->pages();
  const FlowCounters pages = state_->flows.counters();  // those of patterns alone are counted as passes begin
  stats.pages_attended += pages.pages_attended;
  stats.pages_available += pages.pages_available;
  return stats;
}

}  // namespace sluice
