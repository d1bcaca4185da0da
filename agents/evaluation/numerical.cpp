#include "agents/evaluation/numerical.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "agents/evaluation/evicted_tokens.h"
#include "agents/evaluation/single_head.h"
#include "kernels/reference/judge.h"
#include "kernels/reference/oracle.h"
#include "kernels/reference/schedule.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"

namespace sluice {
namespace {

enum class Numbers : uint8_t {
  kNormal,
  kFew,       // two different ones: ties
  kEqual,     // one, not zero: what a query makes of it is the same for every page
  kSpecials,  // normal ones, and among them infinities and NaN
};

/// Keys and values of one case.
struct Case {
  const char* name;
  int pages;        // full ones before the first step
  int more_tokens;  // in a page of their own
  Numbers keys;
  bool many = false;  // as many pages more as it takes for the flow to leave out some
};

constexpr int kSteps = 3;
constexpr int kMostTokens = 1 << 15;  // that a case is given beyond its own pages; more would take seconds
constexpr int kMostPromptRows = 12;   // whose masses are summed, likewise
constexpr Case kCases[] = {
    {"random keys", 70, 3, Numbers::kNormal, true}, {"a ragged last page of one token", 33, 0, Numbers::kNormal},
    {"one token", 0, 0, Numbers::kNormal},          {"ties", 70, 1, Numbers::kFew, true},
    {"all keys equal", 40, 5, Numbers::kEqual},     {"infinities and NaN", 50, 2, Numbers::kSpecials},
};

/// Numbers that bfloat16 holds exactly, as queries are on some devices. K and V are compared as their type holds them.
float exact_in_bf16(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000U); }

std::vector<float> numbers(size_t count, Numbers wanted, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  const float specials[] = {INFINITY, -INFINITY, NAN};
  std::vector<float> result(count, 0.5F);
  if (wanted == Numbers::kEqual) return result;
  for (float& number : result) {
    number = wanted == Numbers::kFew ? static_cast<float>(random() % 2) * 0.5F : exact_in_bf16(normal(random));
    if (wanted == Numbers::kSpecials && random() % 97 == 0) number = specials[random() % 3];
  }
  return result;
}

/// Pages that the largest selection of the graph may take.
int64_t budget_of(const FlowGraph& graph) {
  int64_t budget = 0;
  for (const Node& node : graph.nodes) {
    const Attributes& attributes = node.attributes;
    if (is_selection(node.op))
      budget = std::max<int64_t>({budget, int64_t{attributes.k} + attributes.first + attributes.last, attributes.max_pages});
  }
  return budget;
}

/// Pages that a step of the reference takes a quarter of a second and a quarter of a gigabyte for, at most. `dear`: eight times
/// as long, if that is enough for pages that are not selected.
int affordable_pages(const FlowGraph& graph, bool dear) {
  constexpr int64_t kMostWork = int64_t{1} << 24;
  constexpr int64_t kMostNumbers = (int64_t{1} << 28) / static_cast<int64_t>(sizeof(oracle::Bounded));
  constexpr int64_t kLeastPages = 3;
  const oracle::Cost cost = oracle::cost_a_page(graph, oracle::roots_of(graph));
  const int64_t by_work = kMostWork / std::max<int64_t>(cost.work, 1);
  const int64_t by_memory = kMostNumbers / std::max<int64_t>(cost.numbers, 1);
  const int64_t enough = budget_of(graph) + 2;
  const int64_t leaves_out = dear && enough <= 8 * kMostWork / std::max<int64_t>(cost.work, 1) ? enough : 0;
  return static_cast<int>(std::clamp<int64_t>(std::min(std::max(by_work, leaves_out), by_memory), kLeastPages, kMostTokens));
}

/// Tokens of the largest budget that the reference can afford.
int affordable_budget(const FlowGraph& graph) {
  constexpr int kMost = 512;
  return std::min(kMost, std::max(8, affordable_pages(graph, false) * graph.geometry.page / 3));
}

/// Full pages before the first step. Where many are wanted, about twice what the flow selects, or keeps.
int pages_of(const FlowGraph& graph, const Case& wanted) {
  // What a pattern keeps has no proportion: of a budget beyond what can be afforded nobody leaves.
  if (graph.eviction && wanted.many)
    return static_cast<int>(2 * std::min<int64_t>(graph.eviction->budget, 2 * affordable_budget(graph)) / graph.geometry.page +
                            1);
  if (!wanted.many) return std::min(wanted.pages, affordable_pages(graph, false));
  const int64_t beyond = std::min<int64_t>(kMostTokens / graph.geometry.page, 2 * budget_of(graph) + 3);
  return std::min(static_cast<int>(std::max<int64_t>(wanted.pages, beyond)),
                  affordable_pages(graph, wanted.keys == Numbers::kNormal));
}

/// The same rule with a budget of no more tokens, and its other numbers in proportion.
void bound_budget(FlowGraph& graph, int budget) {
  if (!graph.eviction || graph.eviction->keep) return;  // what is kept has no proportion
  Eviction& eviction = *graph.eviction;
  if (eviction.budget <= budget) return;
  const auto part = [&](int tokens) { return static_cast<int>(int64_t{tokens} * budget / eviction.budget); };
  eviction.first = part(eviction.first);
  eviction.recent = std::max(1, part(eviction.recent));
  eviction.chunk = eviction.chunk == 0 ? 0 : std::max(1, part(eviction.chunk));
  eviction.budget = std::max(budget, eviction.first + std::max(eviction.recent, eviction.chunk));
}

std::vector<float> slice(const std::vector<float>& values, int first, int count, int dim) {
  const auto begin = values.begin() + static_cast<ptrdiff_t>(first) * dim;
  return {begin, begin + static_cast<ptrdiff_t>(count) * dim};
}

/// Share of the largest output by which others may differ. Devices may round the weights of the softmax to bfloat16, and some
/// their outputs. What is attended to in a field of 8 bits may have been rounded to the next number there is.
double output_tolerance(const DeviceInfo& device, const FlowGraph& graph) {
  const auto is_coarse = [&](const std::string& name) {
    const Field* field = graph.find_field(name);
    return field != nullptr && size_of(field->type) == 1;
  };
  const bool coarse = std::any_of(graph.sources.begin(), graph.sources.end(), [&](const AttentionSource& source) {
    return is_coarse(source.keys) || is_coarse(source.values);
  });
  return device.activation == DataType::kBF16 || coarse ? 2e-2 : 1e-3;
}

/// One case on one device, under the flow's first patterns of heads if it has any, twice: by the kernels that report what they
/// select, and by those that serve requests, which may be others.
class CaseRun {
 public:
  CaseRun(Device& device, const FlowGraph& traced, const Plan& plan, const Case& wanted, uint64_t seed)
      : traced_(traced),
        plan_(plan),
        wanted_(wanted),
        seed_(seed),
        random_(seed),
        before_(pages_of(traced, wanted) * plan.layout.page + wanted.more_tokens),
        prompt_rows_(std::min(before_, traced.saves_in(Stage::kAfter) ? traced.mass_rows : 0)),
        tolerance_(output_tolerance(device.info(), traced)),
        keys_(numbers(static_cast<size_t>(before_ + kSteps) * dim(), wanted.keys, random_)),
        values_(numbers(keys_.size(), Numbers::kNormal, random_)),
        stored_keys_(oracle::round_all_to(plan.layout.kv, keys_)),
        stored_values_(oracle::round_all_to(plan.layout.kv, values_)),
        probed_(device, plan, before_ + kSteps, seed, before_),
        serving_(device, plan, before_ + kSteps, seed, before_) {
    if (traced.eviction) held_.emplace(traced, probed_.budget(), before_);
  }

  std::string run() {
    // A prompt has one chunk where nobody is evicted.
    for (int first = 0; first < before_;) {
      const int end = traced_.eviction ? traced_.eviction->chunk_end(first, before_) : before_;
      const std::string fault = run_chunk(first, end);
      if (!fault.empty()) return fmt::format("{}, {} tokens of a prompt: {}", wanted_.name, end, fault);
      first = end;
    }
    for (int at = before_; at < before_ + kSteps && !may_open_others_; ++at) {
      const std::string fault = step(at);
      if (!fault.empty()) return fmt::format("{}, {} tokens: {}", wanted_.name, at + 1, fault);
    }
    return {};
  }

 private:
  int dim() const { return plan_.graph.geometry.head_dim; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(dim())); }

  /// Rows of a prompt; those whose masses are summed have queries, and end it.
  std::string run_chunk(int first, int end) {
    const int rows = std::min(prompt_rows_, end - first);
    const std::vector<float> queries =
        numbers(static_cast<size_t>(rows * traced_.geometry.group) * dim(), Numbers::kNormal, random_);
    for (SingleHead* head : {&probed_, &serving_}) {
      if (end - rows > first)
        head->prefill(slice(keys_, first, end - rows - first, dim()), slice(values_, first, end - rows - first, dim()));
      if (rows == 0) continue;
      head->end_prompt(slice(keys_, end - rows, rows, dim()), slice(values_, end - rows, rows, dim()), queries);
    }
    std::string fault = held_ ? follow(first, end - first, false) : "";
    if (fault.empty() && rows > 0) end_prompt(first, end, queries);
    return fault;
  }

  /// Who is there once rows have come on the device that is probed, and on the other.
  std::string follow(int first, int rows, bool decoding) {
    const std::vector<int32_t> seen = positions_in(probed_.values_in(held_->staying(first)));
    std::string fault = held_->follow(seen, first, rows, decoding, states_);
    if (!fault.empty() || may_differ_) return fault;
    may_differ_ = positions_in(serving_.values_in(held_->staying(first))) != seen;
    return {};
  }

  /// Whose values these are, which no two tokens have in common; -1: nobody's.
  std::vector<int32_t> positions_in(const std::vector<float>& values) const {
    std::vector<int32_t> positions;
    const auto of_token = static_cast<ptrdiff_t>(dim());
    for (auto at = values.begin(); at != values.end(); at += of_token) {
      int32_t found = -1;
      for (int32_t token = 0; found < 0 && token < before_ + kSteps; ++token) {
        if (std::equal(at, at + of_token, stored_values_.begin() + token * of_token)) found = token;
      }
      positions.push_back(found);
    }
    return positions;
  }

  /// In the reference.
  void end_prompt(int first, int end, const std::vector<float>& given) {
    const std::vector<int32_t> tokens = held_ ? held_->positions() : tokens_before(end);
    // Rows that do not count have no query.
    std::vector<float> queries(static_cast<size_t>((end - first) * dim()) * static_cast<size_t>(traced_.geometry.group));
    std::copy(given.begin(), given.end(), queries.end() - static_cast<ptrdiff_t>(given.size()));
    const std::vector<float> keys = of_tokens(tokens, keys_);
    const std::vector<float> values = of_tokens(tokens, values_);
    const oracle::Prompt prompt{.queries = queries,
                                .keys = keys,
                                .values = values,
                                .seed = seed_,
                                .layer = SingleHead::kLayer,
                                .kv_head = SingleHead::kHead,
                                .step = held_ ? end : 0};
    oracle::end_prompt(traced_, prompt, scale(), states_);
  }

  std::string step(int at) {
    const Numbers kind = wanted_.keys == Numbers::kFew ? Numbers::kFew : Numbers::kNormal;
    const std::vector<float> query = numbers(static_cast<size_t>(plan_.graph.geometry.group) * dim(), kind, random_);
    const std::vector<float> key = slice(keys_, at, 1, dim());
    const std::vector<float> value = slice(values_, at, 1, dim());
    const HeadStep seen = probed_.decode(key, value, query);
    const std::vector<float> served = serving_.decode(key, value, query, false).output;
    if (held_) {
      std::string fault = follow(at, 1, true);
      if (!fault.empty()) return fault;
    }
    const std::vector<int32_t> positions = held_ ? held_->positions() : tokens_of(pages_shown(at), at);
    bool open = false;
    bool opens_others = false;
    std::vector<double> attended;
    if (traced_.selection() != kNoNode) {
      const std::vector<float> keys = of_tokens(positions, keys_);
      const std::vector<float> values = of_tokens(positions, values_);
      const auto tokens = static_cast<int>(positions.size());
      const std::vector<uint8_t> sees = seen_of(positions, at);
      const oracle::Row row{.query = query,
                            .keys = keys,
                            .values = values,
                            .tokens = tokens,
                            .seed = seed_,
                            .layer = SingleHead::kLayer,
                            .kv_head = SingleHead::kHead,
                            .positions = positions,
                            .sees = sees,
                            .step = held_ ? at + 1 : 0};
      const oracle::Result expected = oracle::run(traced_, row, states_);
      std::string fault = oracle::fault_of(traced_, plan_.graph, {seen.scores, scores_stride(at), seen.selected}, expected);
      if (!fault.empty()) return fault;
      open = oracle::leaves_open(traced_, expected);
      opens_others = oracle::leaves_groups_open(traced_, expected);
      may_open_others_ = opens_others && traced_.saves_in(Stage::kAfter);
      if (!traced_.attends_plainly()) {
        const auto numbers = static_cast<size_t>(at + 1) * static_cast<size_t>(dim());
        const oracle::Row stored{query, std::span(stored_keys_).first(numbers), std::span(stored_values_).first(numbers), tokens};
        attended = oracle::attention(traced_, stored, oracle::with_selected(traced_, expected, seen.selected), scale());
      }
      oracle::end_step(traced_, row, oracle::with_selected(traced_, expected, seen.selected), scale(), states_);
    }
    if (wanted_.keys == Numbers::kSpecials || opens_others) return {};
    if (traced_.attends_plainly()) attended = oracle::attention(query, entries_of(seen, positions, at), scale());
    std::string fault = oracle::fault_of_output(seen.output, attended, tolerance_);
    // What another selection is given, a state keeps.
    may_differ_ = open || (may_differ_ && traced_.saves_in(Stage::kAfter));
    if (!fault.empty() || may_differ_) return fault;
    fault = oracle::fault_of_output(served, attended, tolerance_);
    return fault.empty() ? fault : "where nobody asks what is selected, " + fault;
  }

  /// Of a row of scores: a place for every page that there is, or for each of its tokens.
  size_t scores_stride(int at) const {
    return static_cast<size_t>(pages_for(at + 1, plan_.layout.page)) * static_cast<size_t>(scores_a_page(traced_));
  }

  /// What the head that is judged sees; null: all.
  const Pattern* pattern() const {
    return traced_.patterns.empty() ? nullptr : &traced_.patterns.patterns.front().of_head(SingleHead::kHead);
  }
  bool is_seen_by_any_head(int at, int token) const {
    if (traced_.patterns.empty()) return true;
    const HeadPatterns& heads = traced_.patterns.patterns.front();
    for (int head = 0; head < SingleHead::kHeads; ++head) {
      if (heads.of_head(head).sees(at, token)) return true;
    }
    return false;
  }

  /// The pages that the step at a position is shown: all, or those of which the pattern of any head has a token, and its own.
  std::vector<int> pages_shown(int at) const {
    const int page = plan_.layout.page;
    std::vector<int> shown;
    for (int place = 0; place <= at / page; ++place) {
      bool is_shown = place == at / page;
      for (int token = place * page; !is_shown && token < (place + 1) * page; ++token) is_shown = is_seen_by_any_head(at, token);
      if (is_shown) shown.push_back(place);
    }
    return shown;
  }

  /// Some tokens of `numbers` [tokens, dim].
  std::vector<float> of_tokens(const std::vector<int32_t>& tokens, const std::vector<float>& numbers) const {
    std::vector<float> some;
    for (const int32_t token : tokens) {
      const auto begin = numbers.begin() + static_cast<ptrdiff_t>(token) * dim();
      some.insert(some.end(), begin, begin + dim());
    }
    return some;
  }
  static std::vector<int32_t> tokens_before(int end) {
    std::vector<int32_t> tokens(static_cast<size_t>(end));
    std::iota(tokens.begin(), tokens.end(), 0);
    return tokens;
  }

  /// The positions of the tokens of some pages, up to that of the step.
  std::vector<int32_t> tokens_of(const std::vector<int>& pages, int at) const {
    const int page = plan_.layout.page;
    std::vector<int32_t> tokens;
    for (const int place : pages) {
      for (int token = place * page; token < std::min(at + 1, (place + 1) * page); ++token) tokens.push_back(token);
    }
    return tokens;
  }
  /// Which of them the head that is judged sees.
  std::vector<uint8_t> seen_of(const std::vector<int32_t>& positions, int at) const {
    std::vector<uint8_t> sees;
    for (const int32_t token : positions) sees.push_back(pattern() == nullptr || pattern()->sees(at, token) ? 1 : 0);
    return sees;
  }

  /// What is to be attended to where the device has selected this, whatever the reference would have, of the tokens that it is
  /// shown.
  std::vector<oracle::Entry> entries_of(const HeadStep& seen, const std::vector<int32_t>& shown, int at) const {
    const bool takes_all = traced_.selection() == kNoNode;
    const bool of_tokens = !takes_all && is_of_tokens(traced_, traced_.selection());
    const auto page = static_cast<size_t>(of_tokens ? 1 : plan_.layout.page);
    std::vector<bool> is_selected(shown.size() / page + 1, takes_all);
    for (const int32_t place : seen.selected) {
      if (!takes_all) is_selected.at(static_cast<size_t>(place)) = true;
    }
    std::vector<oracle::Entry> entries;
    const auto channels = static_cast<size_t>(dim());
    for (size_t i = 0; i < shown.size(); ++i) {
      const int32_t token = shown[i];
      const bool is_beside = traced_.beside() != nullptr && traced_.beside()->sees(at, token);
      if (!is_selected[i / page] && !is_beside) continue;
      if (pattern() != nullptr && !pattern()->sees(at, token)) continue;
      const size_t first = static_cast<size_t>(token) * channels;
      entries.push_back(
          {std::span(stored_keys_).subspan(first, channels), std::span(stored_values_).subspan(first, channels), {}});
    }
    return entries;
  }

  const FlowGraph& traced_;
  const Plan& plan_;
  const Case& wanted_;
  uint64_t seed_;
  std::mt19937_64 random_;
  int before_;       // tokens that no step appends
  int prompt_rows_;  // of them whose masses are summed, in each chunk
  double tolerance_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<float> stored_keys_;
  std::vector<float> stored_values_;
  oracle::States states_;
  bool may_differ_ = false;       // the serving kernels may have selected other pages, in a step whose masses are kept
  bool may_open_others_ = false;  // groups of pages than the reference, and what follows from that no device tells
  SingleHead probed_;
  SingleHead serving_;
  std::optional<EvictedTokens> held_;  // of a flow that evicts
};

/// The flow's patterns, one for each layer and head that has another: those of the head that is judged, and of the one before it.
std::vector<LayerPatterns> patterns_of_heads(const LayerPatterns& patterns) {
  std::vector<LayerPatterns> all;
  for (const HeadPatterns& heads : patterns.patterns) {
    for (int head = 0; head < heads.size(); ++head) {
      LayerPatterns judged = patterns;
      judged.layers.clear();
      judged.rest = 0;
      judged.patterns = {heads};
      if (!heads.is_same()) judged.patterns = {HeadPatterns::of({heads.of_head(head + 1), heads.of_head(head)})};
      if (std::find(all.begin(), all.end(), judged) == all.end()) all.push_back(std::move(judged));
    }
  }
  return all;
}

}  // namespace

std::optional<std::string> check_against_reference(Device& device, const FlowGraph& traced, const Plan& plan) {
  for (size_t i = 0; i < plan.variants.size(); ++i) {
    Plan alone = plan.variants[i];
    alone.program = 0;
    if (i >= traced.variants.size()) return "a program is there that nobody asked for";
    if (const auto fault = check_against_reference(device, traced.variants[i], alone))
      return fmt::format("variant {}, {}", traced.variants[i].variant, *fault);
  }
  // What the flow does in the layers that it runs in; here are only two, and one of them attends.
  FlowGraph graph = traced;
  Plan single = plan;
  graph.variants.clear();
  single.variants.clear();
  if (graph.selection() != kNoNode) graph.layers = single.graph.layers = LayerChoice{};
  const int budget = affordable_budget(graph);
  for (FlowGraph* each : {&graph, &single.graph}) {
    each->mass_rows = std::min(each->mass_rows, kMostPromptRows);
    bound_budget(*each, budget);
  }
  const std::vector<LayerPatterns> patterns = patterns_of_heads(traced.patterns);
  const std::vector<LayerPatterns> planned = patterns_of_heads(plan.graph.patterns);
  const size_t runs = std::max(std::size(kCases), patterns.size());  // so that each has a case at least
  for (size_t run = 0; run < runs; ++run) {
    if (!patterns.empty()) graph.patterns = patterns[run % patterns.size()];
    if (!planned.empty()) single.graph.patterns = planned[run % planned.size()];
    // Another case for each pattern in every round.
    const size_t at = patterns.empty() ? run : run + run / patterns.size();
    std::string fault = CaseRun(device, graph, single, kCases[at % std::size(kCases)], run + 1).run();
    if (!fault.empty()) return fault;
  }
  return std::nullopt;
}

}  // namespace sluice
