#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "host/serving/engine_state.h"
#include "host/serving/kv_snapshot.h"
#include "host/serving/sampler.h"
#include "kernels/device/open_pass.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

double seconds_between(EngineJob::Clock::time_point begin, EngineJob::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Those of `pages` that are there.
std::vector<int32_t> present(std::span<const int32_t> pages) {
  std::vector<int32_t> found;
  std::copy_if(pages.begin(), pages.end(), std::back_inserter(found), [](int32_t page) { return page != PageCache::kMissing; });
  return found;
}

/// Whether a token follows from the entry's logits. Otherwise what follows is known already, or nothing is wanted.
bool is_sampled(const ScheduledPass::Entry& entry) {
  const auto& job = static_cast<const EngineJob&>(*entry.sequence);
  return entry.logit_rows > 0 && entry.first + entry.rows >= static_cast<int>(job.tokens.size()) && !job.complete;
}

/// Whether its rows of logits are part of a request's result.
bool keeps_logits(const ScheduledPass::Entry& entry) {
  return entry.logit_rows > 0 && static_cast<const EngineJob&>(*entry.sequence).request.want_logits;
}

/// Rows of the entry whose next token is of the prompt, and whose log-probabilities the request still wants: after a preemption
/// it has some already.
int prompt_rows(const ScheduledPass::Entry& entry) {
  const auto& job = static_cast<const EngineJob&>(*entry.sequence);
  if (!job.request.prompt_probabilities) return 0;
  const int known = static_cast<int>(job.result.prompt_probabilities.of_tokens.size());
  const int end = std::min(entry.first + entry.rows, job.prompt - 1);
  return std::max(0, end - std::max(entry.first, known));
}

}  // namespace

bool Engine::State::step() {
  const bool has_filled = advance_reuse();
  if (running_passes == 0 && !launch()) return has_filled || is_filling();
  if (can_run_ahead()) {
    scheduler.expect();
    launch();
  }
  end_pass();
  return true;
}

void Engine::State::settle() {
  if (running_passes > 0) end_pass();
}

const ScheduledPass& Engine::State::plan() {
  if (kv->frozen() != nullptr) kv->frozen()->stay();
  for (Sequence* sequence : scheduler.admit()) begin(static_cast<EngineJob&>(*sequence));
  return scheduler.plan();
}

bool Engine::State::launch() {
  const uint64_t preemptions = scheduler.preemptions();
  const ScheduledPass* planned = &plan();
  // The only one that ran may have given up its pages, and gets others.
  if (planned->empty() && scheduler.preemptions() > preemptions) planned = &plan();
  const ScheduledPass& pass = *planned;
  if (pass.empty()) {
    if (!jobs.empty() && !scheduler.waits_for_others() && !is_filling()) {
      throw InternalError(fmt::format("{} requests wait, but none can run", jobs.size()));
    }
    return false;
  }
  before_decode(pass);
  RunningPass& running = passes.at(static_cast<size_t>(running_passes));
  running.has_prefill = pass.has_prefill();
  running.rows = static_cast<int>(pass.tokens.size());
  running.begun = EngineJob::Clock::now();
  running.entries.clear();
  for (const ScheduledPass::Entry& entry : pass.entries) {
    running.entries.push_back({static_cast<EngineJob*>(entry.sequence), prompt_rows(entry), is_sampled(entry), entry.decoding});
    if (!entry.decoding) stats.prefill_tokens += static_cast<uint64_t>(entry.rows);
  }
  run(pass);
  ++running_passes;
  scheduler.complete();
  return true;
}

void Engine::State::count_pattern_pages(const PassBatch& batch) {
  for (size_t group = 0; group < kv->views().size(); ++group) {
    if (!kv->views()[group].pattern) continue;
    const std::vector<int>& layers = pool.map().group(static_cast<int>(group)).layers;
    const auto heads = layers.size() * static_cast<size_t>(config.kv_heads);
    const int window = config.window(layers.front());  // the same in all of them
    for (size_t s = 0; s < batch.decoding.size(); ++s) {
      if (batch.decoding[s] == 0) continue;
      const int before = batch.positions[static_cast<size_t>(batch.query_indptr[s])] + 1;
      const int by_dense = window > 0 ? std::min(window, before) : before;
      const auto shown = heads * static_cast<size_t>(pages_for(batch.groups[group].lengths[s], cache.page()));
      stats.pages_available += heads * static_cast<size_t>(pages_for(by_dense, cache.page()));
      if (flows.of(layers.front()) == nullptr) {
        stats.pages_attended += shown;
      } else {
        stats.pages_available -= shown;  // the flow counts them
      }
    }
  }
}

bool Engine::State::can_run_ahead() {
  if (!runs_ahead || running_passes != 1 || any_cancelled || !scheduler.can_plan_ahead()) return false;
  // What is reported of a step has to be fetched before the next one.
  const auto& entries = passes.front().entries;
  return std::none_of(entries.begin(), entries.end(),
                      [](const auto& entry) { return entry.job != nullptr && entry.job->request.probe_every > 0; });
}

void Engine::State::end_pass() {
  stepping = true;
  RunningPass& pass = passes.front();
  collect(pass);
  stepping = false;
  const auto now = EngineJob::Clock::now();
  if (pass.has_prefill) {
    scheduler.note_time(pass.rows, seconds_between(std::max(pass.begun, last_end), now));
  } else {
    ++stats.decode_passes;
  }
  last_end = now;
  pass.ended_states.clear();
  std::swap(passes.front(), passes.back());
  --running_passes;
  if (any_cancelled) finish_cancelled();
  update_gauges();
}

// The pages of `job` are there. The first time, so is its state made; after a preemption everything starts over.
void Engine::State::begin(EngineJob& job) {
  if (!job.prompt_logits) stats.prefix_hits += static_cast<uint64_t>(job.computed);
  if (!job.admitted) {
    job.admitted = true;
    job.admission = EngineJob::Clock::now();
    job.result.cached_tokens = job.matched;
    job.flow_state = flows.create_state(state_pages(job.most_tokens, job.prompt));
    job.state = job.flow_state.get();
    if (job.state != nullptr) stats.overhead_bytes += job.state->bytes();
    if (job.request.want_logits) {
      job.result.logits.resize(static_cast<size_t>(job.most_tokens) * static_cast<size_t>(config.vocabulary));
    }
  } else if (job.state != nullptr) {
    job.state->reset();
  }
  for (size_t group = 0; group < job.kept.size(); ++group) {
    const KeptPages& kept = job.kept[group];
    if (kept.copied.empty()) continue;
    pool.copy_pages(static_cast<int>(group), present(kept.copied),
                    present(std::span<const int32_t>(kept.pages).first(kept.copied.size())));
  }
  for (size_t group = 0; group < kv->views().size(); ++group) {
    const GroupView& view = kv->views()[group];
    if (view.slots || (view.lives_of_prompts() && job.computed == 0))
      pool.clear_pages(static_cast<int>(group), present(job.kept[group].pages));
  }
  refresh_stale(job);
  scheduler.filled(job);
  if (job.request.snapshot) import_snapshot(job);
  begin_reuse(job);
}

void Engine::State::refresh_stale(EngineJob& job) {
  if (fields.group() < 0) return;
  const KeptPages& kept = job.kept[static_cast<size_t>(fields.group())];
  if (kept.stale.empty()) return;
  std::vector<int32_t> pages;
  std::vector<int32_t> field_pages;
  for (const int32_t place : kept.stale) {
    pages.push_back(job.pages()[static_cast<size_t>(place)]);
    field_pages.push_back(kept.pages[static_cast<size_t>(place)]);
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!is_sparse(layer)) continue;
    device.refresh_pages(pool, layer,
                         {.pages = pages, .last_tokens = cache.page(), .field_group = fields.group(), .field_pages = field_pages},
                         *flows.of(layer));
  }
}

PagesByGroup Engine::State::pages_with(const EngineJob& job, int tokens) const {
  PagesByGroup pages;
  for (size_t group = 0; group < kv->views().size(); ++group) {
    const HeadSlots* const slots = kv->views()[group].slots.get();
    const int used = slots == nullptr ? tokens : slots->used(tokens);
    const std::vector<int32_t>& kept = job.kept[group].pages;
    std::vector<int32_t>& listed = pages.emplace_back(kept.begin(), kept.begin() + pages_for(used, cache.page()));
    // In place of those that are gone, of which nothing is read or written, any will do.
    const int32_t any = kept.empty() ? PageCache::kMissing : *std::max_element(kept.begin(), kept.end());
    if (any == PageCache::kMissing) listed.clear();
    std::replace(listed.begin(), listed.end(), PageCache::kMissing, any);
  }
  return pages;
}

SlotsByGroup Engine::State::slots_with(int tokens) const {
  SlotsByGroup slots(kv->views().size());
  for (size_t group = 0; group < slots.size(); ++group) slots[group] = scheduler.slots_of_tokens(static_cast<int>(group), tokens);
  return slots;
}

void Engine::State::refresh_given(const EngineJob& job, int given) {
  const auto count = static_cast<size_t>(pages_for(given, cache.page()));
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!is_sparse(layer)) continue;
    const auto first = [&](int group) { return std::span(job.kept[static_cast<size_t>(group)].pages).first(count); };
    const std::span<const int32_t> kept = first(pool.map().place_of(layer).group);
    const std::vector<int32_t> pages = present(kept);
    if (pages.empty()) continue;
    // Of tokens that nobody will read there may be no page.
    const bool has_last = kept.back() != PageCache::kMissing;
    Device::StalePages stale{.pages = pages, .last_tokens = has_last ? (given - 1) % cache.page() + 1 : cache.page()};
    if (fields.group() >= 0) {
      if (pages.size() != count) throw InternalError("pages with fields of their own are given back");
      stale.field_group = fields.group();
      stale.field_pages = first(fields.group());
    }
    device.refresh_pages(pool, layer, stale, *flows.of(layer));
  }
}

void Engine::State::import_snapshot(EngineJob& job) {
  const int given = job.given_tokens;
  // The prefix cache knew all of its full pages, or it is empty, or all of the prompt is to be computed.
  if (job.computed > 0 || given == 0) return;
  write_snapshot(*job.request.snapshot, given, pages_with(job, given), slots_with(given), pool);
  refresh_given(job, given);
  scheduler.given(job, given);
}

void Engine::State::before_decode(const ScheduledPass& pass) const {
  for (const ScheduledPass::Entry& entry : pass.entries) {
    auto& job = static_cast<EngineJob&>(*entry.sequence);
    if (entry.decoding && !job.decoded) begin_decoding(job);
  }
}

void Engine::State::begin_decoding(EngineJob& job) const {
  job.decoded = true;
  offer_segments(job);
  if (job.request.want_snapshot) {
    const auto stored = static_cast<size_t>(job.stored_tokens());
    job.result.snapshot =
        read_snapshot(std::span<const int32_t>(job.tokens).first(stored), pages_with(job, job.stored_tokens()), device, pool);
  }
  job.first_decode = EngineJob::Clock::now();
  job.result.prefill_seconds = seconds_between(job.admission, job.first_decode);
}

void Engine::State::run(const ScheduledPass& pass) {
  const bool probe =
      !flows.empty() && std::any_of(pass.entries.begin(), pass.entries.end(), [](const ScheduledPass::Entry& entry) {
        return entry.decoding && static_cast<const EngineJob&>(*entry.sequence).is_probed();
      });
  const PassBatch batch = pass.batch.batch();
  count_pattern_pages(batch);
  Model::ForwardPass forward;
  forward.tokens = pass.tokens;
  forward.picks = picks.get();
  forward.logit_rows = pass.logit_rows;
  forward.flows = flows.by_layer();
  forward.probes = probe ? probes.data() : nullptr;
  choose(pass);
  const bool keeps = std::any_of(pass.entries.begin(), pass.entries.end(), keeps_logits);
  const bool best = std::all_of(choices.begin(), choices.end(), [](const SampleRow& choice) { return choice.wants_best(); });
  forward.best = best && !keeps && !choices.empty() ? picks.get() : nullptr;
  for (size_t group = 0; group < pass.fresh.size(); ++group) {
    if (!pass.fresh[group].empty()) pool.clear_pages(static_cast<int>(group), pass.fresh[group]);
  }
  const OpenPass open(device, batch, pool);
  const Matrix logits = model.forward(device, *workspace, forward);
  keep_logits(pass, logits);
  if (forward.best != nullptr) {
    device.pick_best(logits, choices, *picks);
  } else if (!choices.empty()) {
    device.sample(logits, choices, *picks);
  }
  for (size_t group = 0; group < pass.moves.size(); ++group) {
    if (!pass.moves[group].empty()) pool.move_tokens(static_cast<int>(group), pass.moves[group]);
  }
}

void Engine::State::choose(const ScheduledPass& pass) {
  choices.clear();
  for (const ScheduledPass::Entry& entry : pass.entries) {
    const auto& job = static_cast<const EngineJob&>(*entry.sequence);
    const int wanted = prompt_rows(entry);
    const int end = std::min(entry.first + entry.rows, job.prompt - 1);
    for (int at = end - wanted; at < end; ++at) {
      choices.push_back({.row = entry.logit_row + at - entry.first,
                         .given = job.tokens[static_cast<size_t>(at) + 1],
                         .likely = job.request.likely});
    }
    if (!is_sampled(entry)) continue;
    const auto step = static_cast<uint64_t>(job.generated());
    choices.push_back(choose_sample(job.request.sampling, step, entry.logit_row + entry.logit_rows - 1));
    if (step < job.request.given.size()) choices.back().given = job.request.given[step];
    choices.back().likely = job.request.likely;
  }
}

void Engine::State::keep_logits(const ScheduledPass& pass, const Matrix& logits) const {
  const auto columns = static_cast<size_t>(logits.columns);
  for (const ScheduledPass::Entry& entry : pass.entries) {
    if (!keeps_logits(entry)) continue;
    auto& job = static_cast<EngineJob&>(*entry.sequence);
    device.read(job.result.logits.data() + static_cast<size_t>(entry.first) * columns, logits.row(entry.logit_row),
                static_cast<size_t>(entry.logit_rows) * columns * sizeof(float));
  }
}

void Engine::State::collect(RunningPass& pass) {
  int count = 0;
  for (const RunningPass::Entry& entry : pass.entries) count += entry.picks();
  sampled.resize(static_cast<size_t>(count));
  if (!sampled.empty()) device.take(*picks, sampled);
  size_t next = 0;
  for (size_t i = 0; i < pass.entries.size(); ++i) {
    const RunningPass::Entry& entry = pass.entries[i];
    const size_t first = next;
    next += static_cast<size_t>(entry.picks());
    if (entry.job == nullptr) continue;
    EngineJob& job = *entry.job;
    // A model may rule tokens out by -inf, but not all of them.
    const auto rows = std::span(sampled).subspan(first, static_cast<size_t>(entry.picks()));
    if (!std::all_of(rows.begin(), rows.end(), [](const Sampled& row) { return row.sound; })) {
      finish(job, FinishReason::kNotFinite);
      continue;
    }
    for (size_t row = first; row < first + static_cast<size_t>(entry.prompt_rows); ++row) {
      job.result.prompt_probabilities.add(picks->probabilities(row));
    }
    if (!entry.sampled) {
      if (job.complete && job.computed >= static_cast<int>(job.tokens.size())) finish(job, job.result.reason);
      continue;
    }
    if (entry.decoding && job.is_probed()) keep_mass(job, i);
    accept(job, {.token = rows.back().token,
                 .probabilities = job.request.likely < 0 ? nullptr : &picks->probabilities(next - 1),
                 .prompt =
                     job.request.prompt_probabilities && job.result.tokens.empty() ? &job.result.prompt_probabilities : nullptr});
  }
}

void Engine::State::keep_mass(EngineJob& job, size_t entry) {
  const auto heads = static_cast<size_t>(config.kv_heads);
  for (int layer = 0; layer < config.layers; ++layer) {
    double share = 1;
    if (is_sparse(layer)) {
      const float* row = probes[static_cast<size_t>(layer)].mass + entry * heads;
      share = 0;
      for (size_t head = 0; head < heads; ++head) share += static_cast<double>(row[head]) / static_cast<double>(heads);
    }
    job.result.mass[static_cast<size_t>(layer)] += share;
  }
  ++job.probed_steps;
}

void Engine::State::accept(EngineJob& job, const GeneratedToken& generated) {
  const int32_t token = generated.token;
  if (job.unknown > 0) {
    scheduler.learn(job, token);
  } else {
    job.tokens.push_back(token);
  }
  const bool is_given = job.result.tokens.size() < job.request.given.size();
  job.result.tokens.push_back(token);
  if (generated.probabilities != nullptr) job.result.probabilities.add(*generated.probabilities);
  job.result.decode_seconds = seconds_between(job.first_decode, EngineJob::Clock::now());
  if (callback) callback(job.id, generated);
  const auto is_in = [token](const std::vector<int32_t>& list) {
    return std::find(list.begin(), list.end(), token) != list.end();
  };
  const bool stops = !is_given && (is_in(job.request.stop_tokens) || (!job.request.ignore_eos && is_in(config.end_tokens)));
  if (!stops && job.generated() < job.request.max_tokens) return;
  const FinishReason reason = stops ? FinishReason::kStop : FinishReason::kLength;
  if (job.request.want_logits) {
    job.complete = true;
    job.result.reason = reason;
  } else {
    finish(job, reason);
  }
}

void Engine::State::finish(EngineJob& job, FinishReason reason) {
  RequestResult& result = job.result;
  result.reason = reason;
  result.preemptions = job.preemptions;
  result.logits.resize(job.request.want_logits && job.admitted ? job.tokens.size() * static_cast<size_t>(config.vocabulary) : 0);
  for (double& share : result.mass) share /= std::max(job.probed_steps, 1);
  if (job.state != nullptr) stats.overhead_bytes -= job.state->bytes();
  const bool is_sound = job.decoded && reason != FinishReason::kNotFinite;
  if (is_sound) offer_last_segments(job);
  if (is_sound && job.request.freeze && reason != FinishReason::kCancelled) {
    const auto prompt = std::span<const int32_t>(job.tokens).first(static_cast<size_t>(job.prompt));
    result.frozen = kv->frozen()->add(job.request.tenant, job.request.segments.front().extra_key, prompt, job.pages());
  }
  scheduler.remove(job);
  for (RunningPass& pass : passes) {
    for (RunningPass::Entry& entry : pass.entries) {
      if (entry.job == &job) entry.job = nullptr;
    }
  }
  if (running_passes > 0 && job.flow_state) {
    passes.at(static_cast<size_t>(running_passes - 1)).ended_states.push_back(std::move(job.flow_state));
  }
  finished.push_back(std::move(result));
  const uint64_t id = job.id;  // not a reference into what is erased
  jobs.erase(id);
}

void Engine::State::finish_cancelled() {
  any_cancelled = false;
  for (auto next = jobs.begin(); next != jobs.end();) {
    EngineJob& job = *(next++)->second;
    if (job.cancelled) finish(job, FinishReason::kCancelled);
  }
  update_gauges();
}

}  // namespace sluice
