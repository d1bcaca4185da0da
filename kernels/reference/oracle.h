#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/reference/bounded.h"
#include "scripting/graph/graph.h"

// The judge of devices: a plain float64 evaluator of flow graphs. It reads the graph as traced, before any pass, on
// contiguous keys and values, and shares no code with devices.
namespace sluice::oracle {

inline constexpr int kAxes = 5;

/// A dense tensor with all extents known, axes in the order of `shape`.
struct Tensor {
  Shape shape;
  std::vector<Bounded> values;
};

/// One request x KV head at one decode step.
struct Row {
  std::span<const float> query;   // [group, dim]
  std::span<const float> keys;    // [tokens, dim]
  std::span<const float> values;  // [tokens, dim]
  int tokens = 0;                 // in the cache
  uint64_t seed = 0;
  int layer = 0;
  int kv_head = 0;
  /// Under a pattern, which shows the row some pages alone: where their tokens stand, and whether the row sees each. [tokens];
  /// empty: one behind the other, and all.
  std::span<const int32_t> positions = {};
  std::span<const uint8_t> sees = {};
  int64_t step = 0;  // what it is counted by where tokens have left: its position and 1; 0: `tokens`
};

/// States as the last step saved them, by name.
using States = std::map<std::string, Tensor>;

/// What a selection ranks pages by, or tokens.
struct Scores {
  NodeId selection = kNoNode;
  std::vector<Bounded> values;   // [pages], or [tokens] of a topk_tokens
  std::optional<Bounded> bound;  // of a threshold
};

/// What a source of attention (FlowGraph::sources) has in a step.
struct Attended {
  std::vector<int32_t> pages;   // ascending
  std::vector<int32_t> tokens;  // in their place, of a selection of tokens; ascending
  std::vector<int32_t> opened;  // pages whose groups are open; ascending
  Tensor bias;                  // [page] or [page, head] of all pages of the row; without values: none
  Tensor keys;                  // [page, ...] where they are a state, as the last step left it; without values: they are not
  Tensor values;
};

struct Result {
  int pages = 0;                  // of the row
  int tokens = 0;                 // of the row
  std::vector<Scores> scores;     // of scored_selections(graph), in its order
  std::vector<int32_t> selected;  // of the first source, or all; pages or tokens; ascending; an approx_topk is taken as exact
  std::vector<Attended> sources;  // as many as the graph has
  States saved;                   // by the index stage, where an after stage is still to run
};

/// The tokens of `pages`, of a row of `tokens`.
std::vector<int32_t> tokens_of_pages(const FlowGraph& graph, std::span<const int32_t> pages, int tokens);

/// The number of pages that hold `tokens` tokens.
int pages_of(const FlowGraph& graph, int tokens);

/// Called often while something is computed; may throw to end it. May be empty.
using Pace = std::function<void()>;

/// Runs the index stage, page by page (kernels/reference/schedule.h); `states` is read, and updated unless the flow has an after
/// stage: then `end_step` does that.
Result run(const FlowGraph& graph, const Row& row, States& states, const Pace& pace = {});

/// What attention, which multiplies q . k by `scale`, gives each token of `row`, of which `result` is what `run` gave:
/// [page, token, head], 0 for tokens that it does not attend to.
Tensor masses(const FlowGraph& graph, const Row& row, const Result& result, double scale);

/// Ends the step of which `run` gave `result`: runs the after stage, if there is one, and updates `states`.
void end_step(const FlowGraph& graph, const Row& row, const Result& result, double scale, States& states, const Pace& pace = {});

/// The rows of a prompt before its first decode step, in one KV head; or, where a flow evicts, those of one of its chunks.
struct Prompt {
  std::span<const float> queries;             // [rows, group, dim]
  std::span<const float> keys;                // [tokens, dim]: those of the rows are the last
  std::span<const float> values;              // [tokens, dim]
  const Pattern* pattern = nullptr;           // that they are computed under; null: densely
  std::span<const int32_t> pages_shown = {};  // to the after stage, ascending; empty: all
  uint64_t seed = 0;
  int layer = 0;
  int kv_head = 0;
  int64_t step = 0;  // as Row has it, of the last row
};

/// What the rows that count (FlowGraph::mass_rows) give each token of the pages shown, summed: [page, token, head].
Tensor masses(const FlowGraph& graph, const Prompt& prompt, double scale);

/// Runs the after stage for a prompt, unless the flow says that it does not run, and updates `states`.
void end_prompt(const FlowGraph& graph, const Prompt& prompt, double scale, States& states, const Pace& pace = {});

/// Tokens of one KV head whose flow evicts (FlowGraph::eviction), by slot.
struct HeldTokens {
  std::vector<int32_t> positions;
  std::vector<Bounded> scores;  // as the last step saved them
};

/// Those who may leave before rows from `first_row` on come, of which `newest` is the last of their chunk. `last_readers`: by
/// position, of Eviction::keep.
std::vector<int32_t> may_leave(const Eviction& eviction, const HeldTokens& held, int first_row, int newest,
                               std::span<const int32_t> last_readers = {});
/// The slots of the `count` of them who leave first, ascending.
std::vector<int32_t> leaving(const HeldTokens& held, std::vector<int32_t> candidates, int count);
/// The slot that each slot gets its token from once those at `gone`, ascending, have left.
std::vector<int32_t> closed_up(int held, std::span<const int32_t> gone);
/// States whose tokens have moved so, and of the tokens behind them what a new one has, for as many pages as `slots` slots take.
void move_tokens(const FlowGraph& graph, std::span<const int32_t> from, int slots, States& states);

/// A tensor, or the pages of a selection, ascending; or its tokens.
struct NodeValue {
  Tensor tensor;
  std::vector<int32_t> pages;
};

/// The value of `node`, of the index stage or of the after stage, which reads `masses`. `states` is read.
NodeValue value_of(const FlowGraph& graph, NodeId node, const Row& row, States& states, const Pace& pace = {},
                   const Tensor* masses = nullptr);

/// The fields of the page that holds `tokens` tokens of k, v [tokens, dim], by index in the graph, rounded to their types.
std::vector<Tensor> cached_fields(const FlowGraph& graph, std::span<const float> keys, std::span<const float> values, int tokens);

/// The number of storage `type` nearest to `x`, ties to even.
double round_to(DataType type, double x);
/// The same for all of `numbers`.
std::vector<float> round_all_to(DataType type, std::span<const float> numbers);

/// kTopK by sorting: higher score first, ties to the lower page, NaN last.
std::vector<int32_t> top_k(std::span<const double> scores, const Attributes& attributes);

/// One of the keys that attention runs over, its value, and what is added to the logit of each head.
struct Entry {
  std::span<const float> key;    // [dim]
  std::span<const float> value;  // [dim]
  std::vector<double> bias;      // [group]; empty: nothing
};

/// Attention of q [group, dim] over `entries`: softmax of scale * q.k + bias: [group, dim]. Zeros without entries.
std::vector<double> attention(std::span<const float> query, std::span<const Entry> entries, double scale);

/// `expected`, which `run` gave, but for what the first source's selection has: that which a device has selected.
Result with_selected(const FlowGraph& graph, Result expected, std::span<const int32_t> selected);

/// What a layer that runs the flow gives for `row`, of which `result` is what `run` gave: one softmax over the entries of all
/// sources, or dense attention without any. [group, dim].
std::vector<double> attention(const FlowGraph& graph, const Row& row, const Result& result, double scale);

/// Attention of q [group, dim] over the tokens of `pages` (k, v [tokens, dim]), softmax of scale * q.k: [group, dim].
std::vector<double> attention(std::span<const float> query, std::span<const float> keys, std::span<const float> values,
                              int tokens, int dim, int page, std::span<const int32_t> pages, double scale);

}  // namespace sluice::oracle
