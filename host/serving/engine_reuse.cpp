// What of a prompt that is partly copied is computed again. Copies are made as a request is admitted, or, where a layer behind
// the first is looked at, while the host chooses what is computed. What is computed is so beside the passes that the scheduler
// plans, as many rows a step as a pass takes: nobody waits for all.

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <tuple>
#include <utility>

#include "host/serving/engine_state.h"
#include "host/serving/sampler.h"
#include "kernels/device/open_pass.h"
#include "scripting/base/resource_error.h"

namespace sluice {
namespace {

/// Null where everything is computed again.
const RecomputeRule* rule_of(const EngineJob& job) { return job.request.recompute.get(); }

bool goes_by_a_layer(const RecomputeRule* rule) { return rule != nullptr && rule->reads_layer(); }

bool reads(const RecomputeRule* rule, std::initializer_list<CopyFact> facts) {
  return rule != nullptr && std::any_of(facts.begin(), facts.end(), [&](CopyFact fact) { return rule->reads(fact); });
}
bool reads_masses(const RecomputeRule* rule) { return reads(rule, {CopyFact::kMass}); }
bool reads_changes(const RecomputeRule* rule) { return reads(rule, {CopyFact::kKeyChange, CopyFact::kValueChange}); }

/// Keys of the first layer depend on nothing but a token and its position: those of copies are what would be computed.
bool looks_at_copies(const RecomputeRule* rule) {
  return goes_by_a_layer(rule) && !reads_changes(rule) && rule->rule().layer == 0;
}
/// Whether blocks are copied while the host chooses: up to the rule's layer all are computed.
bool copies_late(const RecomputeRule* rule) { return goes_by_a_layer(rule) && !reads_changes(rule) && !looks_at_copies(rule); }

/// Query heads that a rule tells apart; 1: it has sums over all.
int fact_heads_of(const RecomputeRule& rule, const ModelConfig& config) { return rule.sums_heads() ? 1 : config.query_heads; }

/// Tokens of the prompt that are filled: all that are stored, and the last if it is answered.
int filled_tokens(const EngineJob& job, const ReuseWork& work) { return job.stored_tokens() + (work.answers ? 1 : 0); }

int count_behind(int first, const std::vector<uint8_t>& copied) {
  return static_cast<int>(std::count(copied.begin() + std::min<ptrdiff_t>(first, std::ssize(copied)), copied.end(), 1));
}

/// Whether some block of a segment is new, so that others may look for it.
bool has_new_block(const EngineJob& job, const CopiedTokens& found) {
  return std::any_of(job.request.segments.begin(), job.request.segments.end(), [&](const Segment& segment) {
    for (int first = segment.first; first + found.block <= std::min(segment.end, job.stored_tokens()); first += found.block) {
      if (found.copied[static_cast<size_t>(first)] == 0) return true;
    }
    return false;
  });
}

}  // namespace

bool Engine::State::takes_segments(const EngineJob& job) const {
  return !job.request.segments.empty() && !job.request.freeze && kv->segments() != nullptr && !job.prompt_logits &&
         limits.own_rows == 0 && !job.request.snapshot && !job.request.want_snapshot && !job.own_pages;
}

void Engine::State::begin_reuse(EngineJob& job) {
  job.reuse.reset();
  job.turned.clear();
  job.result.copied_tokens = job.result.recomputed_tokens = 0;  // of before a preemption
  if (!takes_segments(job)) return;
  auto work = std::make_unique<ReuseWork>();
  CopiedTokens& found = work->tokens;
  found.copied.assign(static_cast<size_t>(job.stored_tokens()), 0);
  found.moved.assign(found.copied.size(), 0);
  found.begun = job.computed;
  found.block = kv->segments()->block();
  if (!has_memory_for(job, *work)) return;
  const RecomputeRule* const rule = rule_of(job);
  for (const Segment& segment : job.request.segments) {
    find_blocks(job, segment, *work);
    if (copies_late(rule)) continue;
    copy_blocks(job, *work, 0);  // while the host looks for the next
  }
  if (found.count() == 0) return;
  // Under a flow the last token is a decode step of its own.
  work->answers = !limits.decode_differs && static_cast<int>(job.tokens.size()) == job.prompt;
  if (!reserve_reuse(job, *work)) return;  // what is computed takes the copies' place
  job.filling = may_fill = true;
  note_copies(job, *work);
  work->looking = found.looking_rows(rule == nullptr ? kToEnd : rule->rule().rows);
  if (goes_by_a_layer(rule)) {
    work->looks = true;
    work->rows = rows_to_look_with(job, *work);
    if (work->copies.keys != nullptr) read_kept(job, rule->rule().layer, work->copies);
  } else {
    work->rows = rows_to_compute(found, rule, job.seed, work->looking, {});
    if (work->answers) work->rows.push_back(job.stored_tokens());
  }
  job.reuse = std::move(work);
  if (job.reuse->is_done()) end_reuse(job);
}

std::vector<int32_t> Engine::State::rows_to_look_with(const EngineJob& job, const ReuseWork& work) const {
  std::vector<int32_t> rows;
  if (!looks_at_copies(rule_of(job))) {
    rows.resize(static_cast<size_t>(filled_tokens(job, work) - work.tokens.begun));
    std::iota(rows.begin(), rows.end(), work.tokens.begun);
    return rows;
  }
  auto looking = work.looking.begin();
  for (int token = work.tokens.begun; token < job.stored_tokens(); ++token) {
    const bool looks = looking != work.looking.end() && *looking == token;
    if (looks) ++looking;
    if (looks || work.tokens.copied[static_cast<size_t>(token)] == 0) rows.push_back(token);
  }
  return rows;
}

void Engine::State::note_copies(EngineJob& job, const ReuseWork& work) {
  const CopiedTokens& tokens = work.tokens;
  const auto first = std::find(tokens.copied.begin(), tokens.copied.end(), 1);
  job.exact = first == tokens.copied.end() ? INT32_MAX : static_cast<int>(first - tokens.copied.begin());
  job.is_known_apart = job.request.answer_extra_key.has_value() || has_new_block(job, tokens);
  if (!work.blocks.empty()) return;  // they are still to be copied
  job.result.copied_tokens = count_behind(job.matched, tokens.copied);
}

bool Engine::State::has_memory_for(const EngineJob& job, const ReuseWork& work) const {
  const auto bytes_of = [&](const EngineJob& each, int begun) {
    const RecomputeRule* const rule = rule_of(each);
    const int64_t to_select = rule == nullptr ? 0 : static_cast<int64_t>(rule->bytes(each.stored_tokens() / cache.page()));
    if (!goes_by_a_layer(rule)) return to_select;
    int64_t of_token = 0;
    if (reads_masses(rule)) of_token += fact_heads_of(*rule, config);
    if (reads_changes(rule)) of_token += int64_t{4} * config.kv_heads * config.head_dim;  // copied and computed
    const int64_t of_stream = rule->rule().layer > 0 ? config.hidden : 0;
    const int64_t floats = int64_t{each.prompt - begun} * of_stream + each.prompt * of_token;
    return to_select + floats * static_cast<int64_t>(sizeof(float));
  };
  int64_t bytes = bytes_of(job, work.tokens.begun);
  constexpr int64_t kLeftFree = int64_t{256} << 20;  // for whatever else a pass may want
  constexpr int64_t kSmall = int64_t{16} << 20;      // beside that: asking a device takes longer than looking for segments
  if (bytes > kSmall && bytes > static_cast<int64_t>(device.free_bytes()) - kLeftFree) return false;
  for (const auto& [id, each] : jobs) {
    if (each->filling && (each->reuse->looks || each->reuse->stream != nullptr))
      bytes += bytes_of(*each, each->reuse->tokens.begun);
  }
  constexpr int64_t kBeyondThePool = int64_t{64} << 20;
  return bytes <= static_cast<int64_t>(pool.bytes()) / 2 + kBeyondThePool;
}

bool Engine::State::reserve_reuse(const EngineJob& job, ReuseWork& work) {
  const RecomputeRule* const rule = rule_of(job);
  if (!goes_by_a_layer(rule)) return true;
  const auto tokens = static_cast<size_t>(job.stored_tokens());
  const auto floats = [&](size_t count) { return device.allocate(count * sizeof(float)); };
  const size_t of_layer = tokens * static_cast<size_t>(config.kv_heads) * static_cast<size_t>(config.head_dim);
  try {
    const auto rows = static_cast<size_t>(filled_tokens(job, work) - work.tokens.begun);
    if (rule->rule().layer > 0) work.stream = floats(rows * static_cast<size_t>(config.hidden));
    work.fact_heads = fact_heads_of(*rule, config);
    const size_t masses = tokens * static_cast<size_t>(work.fact_heads);
    const bool is_spared = spare_masses != nullptr && spare_masses->bytes() >= masses * sizeof(float);
    if (reads_masses(rule)) work.masses = is_spared ? std::move(spare_masses) : floats(masses);
    if (reads_changes(rule)) {
      work.copies = {floats(of_layer), floats(of_layer)};
      work.computed = {floats(of_layer), floats(of_layer)};
    }
  } catch (const std::bad_alloc&) {
    return false;  // all of the prompt is computed
  } catch (const DeviceMemoryError&) {
    return false;
  }
  return true;
}

void Engine::State::read_kept(const EngineJob& job, int layer, const KeysAndValues& kept) const {
  pool.read_layer(layer, job.pages(), job.stored_tokens(), static_cast<float*>(kept.keys->data()),
                  static_cast<float*>(kept.values->data()));
}

bool Engine::State::advance_reuse() {
  if (!may_fill) return false;  // as at every step of those who only decode
  int room = limits.max_pass_tokens;
  bool any = false;
  // A request that has been filled may be gone.
  for (EngineJob* job = next_to_fill(); job != nullptr; job = next_to_fill()) {
    const auto rows = static_cast<int>(next_chunk(*job->reuse).size());
    if (any && rows > room) break;
    any = true;
    room -= rows;
    fill_chunk(*job);
  }
  may_fill = is_filling();
  if (any) update_gauges();
  return any;
}

EngineJob* Engine::State::next_to_fill() {
  EngineJob* next = nullptr;
  const auto turn_of = [&](uint64_t caller) {
    uint64_t last = 0;
    for (const auto& [id, job] : jobs) last = job->caller == caller ? std::max(last, job->filled_in_turn) : last;
    return last;
  };
  // Callers in turn, of those of the highest priority.
  const auto rank_of = [&](const EngineJob& job) { return std::tuple(-int64_t{job.priority}, turn_of(job.caller), job.id); };
  for (const auto& [id, job] : jobs) {
    if (!job->filling) job->reuse.reset();  // it had to give up its pages
    if (!job->filling) continue;
    const bool is_before = next == nullptr || rank_of(*job) < rank_of(*next);
    if (is_before) next = job.get();
  }
  return next;
}

std::span<const int32_t> Engine::State::next_chunk(const ReuseWork& work) const {
  const auto rows = std::span(work.rows).subspan(static_cast<size_t>(work.next));
  return rows.first(std::min(static_cast<size_t>(limits.max_pass_tokens), rows.size()));
}

void Engine::State::fill_chunk(EngineJob& job) {
  job.filled_in_turn = ++turns;
  ReuseWork& work = *job.reuse;
  if (work.looks) {
    // What looking takes depends on the prompt alone; computing rows takes what any pass does.
    try {
      look(job, work);
      if (next_chunk(work).empty()) choose_rows(job, work);
    } catch (const std::bad_alloc&) {
      return give_up_reuse(job);
    } catch (const DeviceMemoryError&) {
      return give_up_reuse(job);
    }
  } else {
    compute_rows(job, work);
  }
  if (work.is_done()) end_reuse(job);
}

void Engine::State::give_up_reuse(EngineJob& job) {
  job.filling = false;
  job.reuse.reset();
  job.exact = INT32_MAX;
  job.is_known_apart = false;
  job.result.copied_tokens = 0;
}

bool Engine::State::is_filling() const {
  return std::any_of(jobs.begin(), jobs.end(), [](const auto& job) { return job.second->filling; });
}

PassBatch Engine::State::batch_of(const EngineJob& job, std::span<const int32_t> positions) {
  reuse_batch.clear();
  reuse_batch.add_at(positions, {.seed = job.seed, .state = job.state});
  reuse_batch.keep(0, job.pages());
  if (fields.group() >= 0) reuse_batch.keep(fields.group(), job.kept[static_cast<size_t>(fields.group())].pages);
  return reuse_batch.batch();
}

Matrix Engine::State::stream_of(const EngineJob& job, const ReuseWork& work) const {
  const int64_t rows = filled_tokens(job, work) - work.tokens.begun;
  return {work.stream->data(), DataType::kF32, rows, config.hidden, config.hidden};
}

void Engine::State::look(const EngineJob& job, ReuseWork& work) {
  const std::span<const int32_t> rows = next_chunk(work);
  const OpenPass open(device, batch_of(job, rows), pool);
  Model::LayerPass pass;
  set_tokens(job, rows, pass);
  const Recompute& rule = rule_of(job)->rule();
  pass.end = rule.layer;
  if (work.stream != nullptr)
    pass.to = stream_of(job, work).slice_rows(rows.front() - work.tokens.begun, static_cast<int64_t>(rows.size()));
  pass.flows = flows.by_layer();
  std::vector<int32_t> looking;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (std::binary_search(work.looking.begin(), work.looking.end(), rows[i])) looking.push_back(static_cast<int32_t>(i));
  }
  pass.on_queries = [&](Matrix queries) {
    if (work.masses == nullptr) return;
    const auto tokens = static_cast<int64_t>(work.tokens.copied.size());
    work.weighed = device.add_row_masses({.layer = rule.layer,
                                          .query_heads = config.query_heads,
                                          .scale = 1 / std::sqrt(static_cast<float>(config.head_dim)),
                                          .rows = looking,
                                          .known = work.weighed},
                                         queries, {work.masses->data(), DataType::kF32, work.fact_heads, tokens, tokens});
  };
  model.run_layers(device, *workspace, pass);
  if (work.stream != nullptr) stats.prefill_tokens += rows.size();  // else those are counted that all layers compute
  work.next += static_cast<int>(rows.size());
}

void Engine::State::set_tokens(const EngineJob& job, std::span<const int32_t> rows, Model::LayerPass& pass) {
  reuse_rows.clear();
  for (const int32_t row : rows) reuse_rows.push_back(job.tokens[static_cast<size_t>(row)]);
  pass.tokens = reuse_rows;
}

void Engine::State::choose_rows(EngineJob& job, ReuseWork& work) {
  const RecomputeRule* const rule = rule_of(job);
  lose_taken_blocks(work);
  if (work.copies.keys != nullptr) read_kept(job, rule->rule().layer, work.computed);
  const auto fill = [&](CopyFact fact, std::span<float> numbers) {
    if (fact == CopyFact::kMass) {
      reuse_masses.resize(work.tokens.copied.size() * static_cast<size_t>(work.fact_heads));
      device.read(reuse_masses.data(), work.masses->data(), reuse_masses.size() * sizeof(float));
      if (copies_late(rule)) copy_blocks(job, work, rule->rule().layer + 1);  // while the host chooses
    }
    fill_layer_fact(work, fact, numbers);
  };
  work.rows = rows_to_compute(work.tokens, rule, job.seed, work.looking, fill);
  if (copies_late(rule)) note_copies(job, work);
  if (work.answers) work.rows.push_back(job.stored_tokens());
  // What is not spared stays until the end: giving memory back waits for the copies.
  constexpr size_t kMostSpare = size_t{16} << 20;
  const bool is_larger = work.masses != nullptr && (spare_masses == nullptr || spare_masses->bytes() < work.masses->bytes());
  if (is_larger && work.masses->bytes() <= kMostSpare) spare_masses = std::move(work.masses);
  work.copies = {};
  work.computed = {};
  work.looks = false;
  work.next = 0;
}

void Engine::State::fill_layer_fact(const ReuseWork& work, CopyFact fact, std::span<float> numbers) const {
  if (numbers.size() != static_cast<size_t>(work.tokens.count()) * static_cast<size_t>(work.fact_heads))
    throw InternalError("facts of copies: room for other tokens or heads than there are");
  if (fact == CopyFact::kMass) {
    fill_masses(work, numbers);
  } else {
    fill_changes(work, fact == CopyFact::kKeyChange ? &KeysAndValues::keys : &KeysAndValues::values, numbers);
  }
}

void Engine::State::fill_changes(const ReuseWork& work, std::unique_ptr<Memory> KeysAndValues::*which,
                                 std::span<float> numbers) const {
  const auto heads = static_cast<size_t>(work.fact_heads);
  const auto kv_heads = static_cast<size_t>(config.kv_heads);
  const size_t group = static_cast<size_t>(config.query_heads) / kv_heads;
  const auto matrix_of = [&](const KeysAndValues& of) {
    const int64_t columns = int64_t{config.kv_heads} * config.head_dim;
    return Matrix{(of.*which)->data(), DataType::kF32, std::ssize(work.tokens.copied), columns, columns};
  };
  std::vector<float> changes(work.tokens.copied.size() * kv_heads);  // [tokens, kv_heads]
  device.squared_distances(matrix_of(work.computed), matrix_of(work.copies), config.kv_heads, changes);
  float* to = numbers.data();
  for (const int32_t place : work.tokens.places()) {
    const float* const of_token = changes.data() + static_cast<size_t>(place) * kv_heads;
    for (size_t head = 0; head < heads; ++head, ++to)
      *to =
          heads == 1 ? static_cast<float>(group) * std::accumulate(of_token, of_token + kv_heads, 0.0F) : of_token[head / group];
  }
}

void Engine::State::fill_masses(const ReuseWork& work, std::span<float> numbers) const {
  const auto heads = static_cast<size_t>(work.fact_heads);
  const std::vector<int32_t> places = work.tokens.places();
  // Tokens whose masses by one head lie side by side: as many as the first-level cache has room for, by all heads.
  constexpr size_t kTogether = 128;
  for (size_t first = 0; first < places.size(); first += kTogether) {
    const size_t count = std::min(kTogether, places.size() - first);
    const int32_t last = places[first + count - 1];
    const bool are_beside = last - places[first] == static_cast<int32_t>(count) - 1 && last < work.weighed;
    for (size_t head = 0; head < heads; ++head) {
      const float* const of_head = reuse_masses.data() + head * work.tokens.copied.size();
      float* const to = numbers.data() + first * heads + head;
      if (are_beside) {
        for (size_t i = 0; i < count; ++i) to[i * heads] = of_head[static_cast<size_t>(places[first]) + i];
        continue;
      }
      for (size_t i = 0; i < count; ++i) to[i * heads] = places[first + i] < work.weighed ? of_head[places[first + i]] : 0;
    }
  }
}

void Engine::State::compute_rows(const EngineJob& job, ReuseWork& work) {
  const std::span<const int32_t> rows = next_chunk(work);
  const OpenPass open(device, batch_of(job, rows), pool);
  Model::LayerPass pass;
  if (work.stream != nullptr) {
    reuse_rows.clear();
    for (const int32_t row : rows) reuse_rows.push_back(row - work.tokens.begun);
    pass.first = rule_of(job)->rule().layer;
    pass.from = stream_of(job, work);
    pass.from_rows = reuse_rows;
  } else {
    set_tokens(job, rows, pass);
  }
  pass.end = config.layers;
  pass.flows = flows.by_layer();
  pass.wants_logits = work.answers && static_cast<size_t>(work.next) + rows.size() == work.rows.size();
  const Matrix logits = model.run_layers(device, *workspace, pass);
  if (work.stream == nullptr) stats.prefill_tokens += rows.size();
  work.next += static_cast<int>(rows.size());
  if (!pass.wants_logits) return;
  SampleRow choice = choose_sample(job.request.sampling, 0, 0);
  if (!job.request.given.empty()) choice.given = job.request.given.front();
  choice.likely = job.request.likely;
  device.sample(logits, {&choice, 1}, *reuse_pick);
}

void Engine::State::take_answer(EngineJob& job) {
  Sampled answer;
  device.take(*reuse_pick, {&answer, 1});
  stepping = true;
  begin_decoding(job);
  if (job.is_probed()) {
    for (double& share : job.result.mass) share += 1;  // dense layers see all
    ++job.probed_steps;
  }
  if (answer.sound) {
    accept(job, {.token = answer.token,
                 .probabilities = job.request.likely < 0 ? nullptr : &reuse_pick->probabilities(0),
                 .prompt = nullptr});
  } else {
    finish(job, FinishReason::kNotFinite);
  }
  stepping = false;
  if (any_cancelled) finish_cancelled();
}

void Engine::State::end_reuse(EngineJob& job) {
  const int stored = job.stored_tokens();
  const std::vector<int32_t>& rows = job.reuse->rows;
  job.turned = job.reuse->tokens.copied;
  stats.copied_tokens += static_cast<uint64_t>(job.reuse->tokens.count());
  for (const uint64_t text : job.reuse->frozen) kv->frozen()->count(text);
  for (const int32_t row : rows) {
    if (row < stored) job.turned[static_cast<size_t>(row)] = 0;
  }
  job.result.recomputed_tokens = job.result.copied_tokens - count_behind(job.matched, job.turned);
  const RecomputeRule* const rule = rule_of(job);
  if (rule == nullptr || rule->rule().kind == Recompute::Kind::kAll) job.exact = INT32_MAX;  // nothing is a copy's any more
  refresh_given(job, stored);
  const bool answers = job.reuse->answers;
  scheduler.given(job, filled_tokens(job, *job.reuse));
  job.filling = false;
  job.reuse.reset();
  if (answers) take_answer(job);
}

}  // namespace sluice
