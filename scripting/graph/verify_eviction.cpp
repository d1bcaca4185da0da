// Who leaves a cache that forgets.

#include <fmt/format.h>

#include <algorithm>

#include "scripting/graph/verify.h"
#include "scripting/graph/verify_parts.h"

namespace sluice::verifying {

namespace {

void verify_numbers(const Eviction& eviction) {
  const auto check = [&](const char* name, int value, int least) {
    if (value >= least && value <= GraphLimits::kTokens) return;
    refuse(eviction.where, fmt::format("evict: {} = {} is not a number of tokens", name, value));
  };
  check("budget", eviction.budget, 1);
  check("first", eviction.first, 0);
  check("recent", eviction.recent, 1);
  check("chunk", eviction.chunk, 0);
  if (int64_t{eviction.first} + eviction.recent > eviction.budget) {
    refuse(eviction.where,
           fmt::format("evict: a budget of {} tokens has no room for first = {} and recent = {}", eviction.budget, eviction.first,
                       eviction.recent),
           "these never leave: a larger budget, or fewer of them");
  }
  if (int64_t{eviction.first} + eviction.chunk > eviction.budget) {
    refuse(eviction.where,
           fmt::format("evict: a budget of {} tokens has no room for first = {} and a chunk of {} rows", eviction.budget,
                       eviction.first, eviction.chunk),
           "a smaller chunk, or a larger budget");
  }
}

void verify_score(const FlowGraph& graph) {
  const Eviction& eviction = *graph.eviction;
  const State* state = graph.find_state(eviction.score);
  const Shape wanted = {{Axis::kPage, kDynamic}, {Axis::kToken, graph.geometry.page}};
  if (state == nullptr || state->shape != wanted)
    refuse(eviction.where, fmt::format("evict: \"{}\" is no state [page, token]", eviction.score));
  const bool is_saved = std::any_of(graph.saves.begin(), graph.saves.end(), [&](NodeId save) {
    const Node& node = graph.nodes[static_cast<size_t>(save)];
    return node.stage == Stage::kAfter && node.attributes.field == eviction.score;
  });
  if (!is_saved) refuse(eviction.where, fmt::format("evict: flow.after does not save \"{}\"", eviction.score));
}

/// Tokens that move from slot to slot.
void verify_slots(const FlowGraph& graph) {
  const SourceLocation& where = graph.eviction->where;
  constexpr const char* kKeep = "sluice.evict(score, {keep = pattern}) keeps the tokens that a pattern still reads";
  if (!graph.patterns.empty()) refuse(where, "evict: flow.pattern hides tokens by their positions, and slots have none", kKeep);
  if (graph.beside() != nullptr)
    refuse(where, "evict: tokens of a pattern beside a selection have positions, and slots have none", kKeep);
  if (!graph.attends_plainly()) {
    refuse(where, "evict: attention to summaries of pages, and tokens that leave them one by one", "use one of the two");
  }
  for (const NodeId id : graph.saves) {
    const Node& save = graph.nodes[static_cast<size_t>(id)];
    if (save.attributes.last == 0) continue;
    refuse(save, "a tail has the newest pages, and where tokens are evicted they lie in slots, in no order",
           "save the state whole: c.NAME:save(x)");
  }
  for (const State& state : graph.states) {
    if (!has_axis(state.shape, Axis::kPage) || has_axis(state.shape, Axis::kToken)) continue;
    refuse(state.where,
           fmt::format("state \"{}\" is kept by page, and where tokens are evicted a page has other tokens at each step",
                       state.name),
           "keep it by page and token: it then stays with its token");
  }
}

}  // namespace

void verify_eviction(const FlowGraph& graph) {
  if (!graph.eviction) return;
  const Eviction& eviction = *graph.eviction;
  verify_numbers(eviction);
  verify_score(graph);
  verify_slots(graph);
  if (graph.mass_rows == 0) {
    refuse(eviction.where, "evict: prompt_mass = \"none\" leaves the tokens of a prompt without scores",
           "\"all\" rows of a prompt, or the last so many");
  }
  if (eviction.keep) verify_cost(eviction.where, HeadPatterns(*eviction.keep), "the pattern that is kept");
}

}  // namespace sluice::verifying
