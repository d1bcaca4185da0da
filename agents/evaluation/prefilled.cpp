#include "agents/evaluation/prefilled.h"

#include <sodium.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "agents/tasks/text_windows.h"
#include "scripting/base/error.h"
#include "scripting/graph/text.h"

namespace sluice {
namespace {

constexpr int kDensePage = 16;
constexpr int kPassTokens = 512;

size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b, size_t limit) {
  size_t length = 0;
  const size_t end = std::min({a.size(), b.size(), limit});
  while (length < end && a[length] == b[length]) ++length;
  return length;
}

/// The graph with numbers in place of names.
FlowGraph without_names(FlowGraph graph) {
  std::map<std::string, std::string> fields;
  std::map<std::string, std::string> states;
  for (Field& field : graph.fields) field.name = fields[field.name] = std::to_string(fields.size());
  for (State& state : graph.states) state.name = states[state.name] = std::to_string(states.size());
  for (Node& node : graph.nodes) {
    if (node.op == Op::kField) node.attributes.field = fields.at(node.attributes.field);
    if (node.op == Op::kLoad || node.op == Op::kSave) node.attributes.field = states.at(node.attributes.field);
  }
  for (AttentionSource& source : graph.sources) {
    for (std::string* name : {&source.keys, &source.values}) {
      if (const auto field = fields.find(*name); field != fields.end()) {
        *name = field->second;
      } else if (const auto state = states.find(*name); state != states.end()) {
        *name = state->second;
      }
    }
  }
  if (graph.eviction) graph.eviction->score = states.at(graph.eviction->score);
  graph.name.clear();
  return graph;
}

/// Follows from everything that a flow computes, and from nothing that it does not: neither names nor comments. Otherwise the
/// numbers that a flow draws would be the same for every flow, and would tell the questions of a seed apart: who has seen how one
/// flow fared by them could write another that knows which questions to answer well.
uint64_t seed_of_draws(const Plan& plan) {
  std::string text;
  for (const Plan* program : plan.programs()) text += to_text(without_names(program->graph));
  uint64_t seed = 0;
  crypto_generichash(reinterpret_cast<unsigned char*>(&seed), sizeof seed, reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  return seed;
}

/// K and V of each of `prompts` but its last token; `plan` null: by dense attention, else under its patterns.
std::vector<std::shared_ptr<const KvSnapshot>> prefill_all(std::vector<PrefilledPrompt> prompts, Device& device,
                                                           const Model& model, const Plan* plan, const BatchRoom& room) {
  constexpr int kLongPass = 4096;  // fills a GPU
  if (prompts.empty()) return {};
  for (PrefilledPrompt& prompt : prompts) prompt.max_tokens = 1;
  EngineOptions options = engine_options(prompts, model.config(), plan, room);
  options.forget_unread = false;
  if (device.info().works_beside_host) options.max_pass_tokens = kLongPass;
  Engine engine(device, model, plan, options);
  std::vector<uint64_t> ids;
  for (PrefilledPrompt& prompt : prompts) {
    Request request;
    request.prompt = std::move(prompt.tokens);
    request.max_tokens = 1;
    request.ignore_eos = true;
    request.want_snapshot = true;
    request.snapshot = std::move(prompt.snapshot);
    ids.push_back(engine.submit(std::move(request)));
  }
  std::vector<std::shared_ptr<const KvSnapshot>> snapshots(ids.size());
  for (RequestResult& result : engine.run_all()) {
    snapshots.at(static_cast<size_t>(std::find(ids.begin(), ids.end(), result.id) - ids.begin())) = std::move(result.snapshot);
  }
  for (const auto& snapshot : snapshots) {
    if (snapshot == nullptr) throw InternalError("the engine gave no snapshot");
  }
  return snapshots;
}

/// Of K and V as they are kept by default.
size_t token_bytes(const ModelConfig& config) {
  return size_t{2} * static_cast<size_t>(config.layers * config.kv_heads * config.head_dim) * size_of(EngineOptions().kv);
}

}  // namespace

std::shared_ptr<const KvSnapshot> KnownBeginnings::find(std::span<const int32_t> tokens) const {
  constexpr size_t kLeastShare = 4;  // less than a fourth is not worth a copy
  std::shared_ptr<const KvSnapshot> best;
  for (const Snapshots* snapshots : {&last_, &texts_}) {
    for (const auto& snapshot : *snapshots) {
      const size_t length = snapshot->tokens.size();
      if (length > tokens.size() || kLeastShare * length < tokens.size() || (best && best->tokens.size() >= length)) continue;
      if (std::equal(snapshot->tokens.begin(), snapshot->tokens.end(), tokens.begin())) best = snapshot;
    }
  }
  return best;
}

void KnownBeginnings::add(std::shared_ptr<const KvSnapshot> snapshot, bool is_text) {
  constexpr size_t kMostBytes = size_t{768} << 20;
  if (is_text) {
    size_t bytes = snapshot->bytes();
    std::erase_if(texts_, [&](const auto& shorter) {
      const bool begins_it = shorter->tokens.size() <= snapshot->tokens.size() &&
                             std::equal(shorter->tokens.begin(), shorter->tokens.end(), snapshot->tokens.begin());
      bytes += begins_it ? 0 : shorter->bytes();
      return begins_it;
    });
    // Windows of all lengths come in the same order: those that came first are kept, for the first of the next length.
    if (bytes <= kMostBytes) texts_.push_back(snapshot);
  }
  last_.push_back(std::move(snapshot));
}

PrefilledPrompt prompt_of(const Job& job, const Tokenizer& tokenizer) {
  PrefilledPrompt prompt;
  prompt.tokens = job.sample.tokens.empty() ? tokenizer.encode(job.sample.prompt) : job.sample.tokens;
  prompt.given = job.sample.given;
  if (prompt.tokens.empty()) throw InputError("a prompt without tokens");
  prompt.sampling = job.sampling;
  prompt.max_tokens = job.sample.max_tokens;
  prompt.stop = job.sample.stop;
  if (job.sample.must_end && job.sample.scoring == Scoring::kExact) prompt.expected = tokenizer.encode(job.sample.answer);
  return prompt;
}

size_t EngineBatch::bytes() const {
  std::set<const KvSnapshot*> snapshots;
  size_t bytes = 0;
  for (const PrefilledPrompt& prompt : prompts) {
    bytes += prompt.tokens.size() * sizeof(int32_t);
    if (prompt.snapshot == nullptr || !snapshots.insert(prompt.snapshot.get()).second) continue;
    bytes += prompt.snapshot->bytes();
  }
  return bytes;
}

BatchRoom room_on(const Device& device) {
  BatchRoom room;
  if (!device.info().works_beside_host) return room;
  constexpr size_t kMost = size_t{8} << 30;
  room.pool_bytes = std::clamp(device.free_bytes() / 16, room.pool_bytes, kMost);
  room.prompts = 32;
  return room;
}

int prompts_together(const ModelConfig& config, int tokens, const BatchRoom& room) {
  const size_t prompts = room.pool_bytes / (token_bytes(config) * static_cast<size_t>(std::max(1, tokens)));
  return static_cast<int>(std::clamp<size_t>(prompts, 1, static_cast<size_t>(room.prompts)));
}

EngineOptions engine_options(const std::vector<PrefilledPrompt>& prompts, const ModelConfig& config, const Plan* plan,
                             const BatchRoom& room) {
  EngineOptions options;
  options.page = plan != nullptr ? plan->layout.page : kDensePage;
  options.max_batch = static_cast<int>(std::min<size_t>(prompts.size(), static_cast<size_t>(room.prompts)));
  options.max_pass_tokens = kPassTokens;
  options.prefix_cache = false;  // each prompt brings its K and V along
  options.keep_all = true;
  if (plan != nullptr) options.seed = seed_of_draws(*plan);
  // Fields come on top: a flow that has some shall not need two rounds where dense attention needs one. But they take no more
  // than K and V.
  size_t page_bytes = token_bytes(config) * static_cast<size_t>(options.page);
  if (plan != nullptr) {
    const size_t with_fields = plan->layout.bytes * static_cast<size_t>(config.layers * config.kv_heads);
    page_bytes = std::max(page_bytes, with_fields / 2);
  }
  size_t longest = 0;
  size_t all = 0;
  for (const PrefilledPrompt& prompt : prompts) {
    const size_t pages = (prompt.tokens.size() + prompt.max_tokens + options.page - 1) / options.page + 1;
    longest = std::max(longest, pages);
    all += pages;
  }
  options.pages = static_cast<int>(std::max(longest, std::min(all, room.pool_bytes / page_bytes)));
  return options;
}

std::unique_ptr<EngineBatch> prefill_documents(const std::vector<JobDocument>& documents, Device& device, const Model& model,
                                               const Tokenizer& tokenizer, KnownBeginnings& known, const BatchRoom& room) {
  auto batch = std::make_unique<EngineBatch>();
  struct Part {
    size_t first = 0;
    size_t end = 0;
    size_t shared = SIZE_MAX;
    bool is_text = false;                               // as it goes on, which is then scored
    std::shared_ptr<const KvSnapshot> known = nullptr;  // of much of it
  };
  std::vector<Part> parts;
  for (const JobDocument& document : documents) {
    Part& part = parts.emplace_back(Part{batch->prompts.size(), batch->prompts.size() + document.size()});
    part.is_text = document.size() == 1 && document.front().sample.given.size() == kScoredOfText;
    for (const Job& job : document) batch->prompts.push_back(prompt_of(job, tokenizer));
    // The last token of a prompt is a decode step of whoever answers it.
    const std::vector<int32_t>& begin = batch->prompts[part.first].tokens;
    for (size_t i = part.first; i < part.end; ++i) {
      const auto& tokens = batch->prompts[i].tokens;
      part.shared = std::min(part.shared, common_prefix(tokens, begin, tokens.size() - 1));
    }
    part.known = known.find(std::span(begin).first(part.shared));
  }
  known.forget_last();  // before more is made
  std::vector<PrefilledPrompt> beginnings;
  for (Part& part : parts) {
    if (part.shared == 0) continue;
    // A snapshot leaves out the last token of the prompt, so one more is asked for.
    const auto begin = batch->prompts[part.first].tokens.begin();
    PrefilledPrompt& beginning = beginnings.emplace_back();
    beginning.tokens.assign(begin, begin + static_cast<ptrdiff_t>(part.shared) + 1);
    beginning.snapshot = std::move(part.known);
  }
  const auto snapshots = prefill_all(std::move(beginnings), device, model, nullptr, room);
  size_t next = 0;
  for (const Part& part : parts) {
    if (part.shared == 0) continue;
    const auto& snapshot = snapshots.at(next++);
    for (size_t i = part.first; i < part.end; ++i) batch->prompts[i].snapshot = snapshot;
    known.add(snapshot, part.is_text);
  }
  return batch;
}

EngineBatch without_snapshots(const EngineBatch& batch) {
  EngineBatch own;
  own.prompts = batch.prompts;
  for (PrefilledPrompt& prompt : own.prompts) prompt.snapshot = nullptr;
  return own;
}

EngineBatch prefill_under(const Plan& plan, const EngineBatch& batch, Device& device, const Model& model, const BatchRoom& room) {
  EngineBatch own;
  own.prompts = batch.prompts;
  std::vector<PrefilledPrompt> beginnings;
  std::map<const KvSnapshot*, size_t> places;
  for (const PrefilledPrompt& prompt : batch.prompts) {
    if (prompt.snapshot == nullptr || !places.emplace(prompt.snapshot.get(), beginnings.size()).second) continue;
    const auto begin = prompt.tokens.begin();
    beginnings.emplace_back().tokens.assign(begin, begin + static_cast<ptrdiff_t>(prompt.snapshot->tokens.size()) + 1);
  }
  const auto snapshots = prefill_all(std::move(beginnings), device, model, &plan, room);
  for (PrefilledPrompt& prompt : own.prompts) {
    if (prompt.snapshot != nullptr) prompt.snapshot = snapshots.at(places.at(prompt.snapshot.get()));
  }
  return own;
}

}  // namespace sluice
