#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cpu/flow/eviction.h"
#include "kernels/device.h"

namespace sluice::cpu {

/// Scratch of one thread for running flows; sized once, so that a decode step allocates nothing.
class FlowScratch {
 public:
  virtual ~FlowScratch() = default;
  virtual size_t bytes() const = 0;
};

/// A request's pages of one layer and KV head, oldest first: page p of the pool starts at base + p * stride.
struct PageTable {
  const std::byte* base = nullptr;
  size_t stride = 0;  // bytes
  std::span<const int32_t> pages;

  const std::byte* page(int position) const { return base + static_cast<size_t>(pages[position]) * stride; }
};

/// One request x KV head at one decode step, as the index stage sees it.
struct FlowRow {
  const float* query = nullptr;  // [group, dim]
  PageTable tokens;              // K and V
  PageTable fields;              // the same where fields lie with K and V
  int last_tokens = 0;           // tokens in the last page, 1..page
  uint64_t seed = 0;             // of the request
  int layer = 0;
  int kv_head = 0;
  int64_t step = 0;               // tokens in the cache: the same for a step however it was batched
  RequestState* state = nullptr;  // null if the flow keeps none
  float* scores = nullptr;        // [scored_selections(graph), score_stride] or null: what they rank by, before any are forced
  int64_t score_stride = 0;

  /// B.
  int pages() const { return static_cast<int>(tokens.pages.size()); }
};

/// What a source of attention has in a row.
struct SourcePages {
  std::span<const int32_t> selected;  // positions that its selection has, ascending
  std::span<const int32_t> opened;    // those of which it opens the groups
  /// Its keys and values where these are states, [pages, entries, dim], as the last step left them; null: they are fields.
  const float* keys = nullptr;
  const float* values = nullptr;
  const float* logits = nullptr;  // [pages, group] products of the query and the source's keys, not scaled, or null
  const float* bias = nullptr;    // [pages, bias_heads] or null
  int bias_heads = 1;
};

/// What an after stage ends.
enum class Ending : uint8_t { kStep, kPrompt };

/// A plan compiled for the CPU: page-tiled, fused, SIMD by run-time dispatch.
class Flow {
 public:
  virtual ~Flow() = default;
  virtual const Plan& plan() const = 0;
  /// State for one request of at most `max_pages` pages; null if the flow keeps none.
  virtual std::unique_ptr<RequestState> create_state(int max_pages) const = 0;
  virtual std::unique_ptr<FlowScratch> create_scratch(int max_pages) const = 0;
  /// Recomputes every cached field of one page (of one KV head) that holds `tokens` tokens, 1..page. `fields` is where its fields
  /// lie: the page itself, or another.
  virtual void refresh_page(const std::byte* page, std::byte* fields, int tokens, FlowScratch& scratch) const = 0;
  /// Runs the index stage; writes positions among the row's pages (not pool ids), ascending, to `selected` (at least B entries)
  /// and returns their number. If the budget covers every page and no state is kept, writes all positions without scoring
  /// (unless `row.scores` is asked for).
  virtual int select(const FlowRow& row, FlowScratch& scratch, int32_t* selected) const = 0;
  /// Of a plan that selects tokens, once `select` has run for a row: a bit for each token of the pages that it gave, one page
  /// behind the other. Valid until it runs again.
  virtual std::span<const uint32_t> selected_tokens(FlowScratch& scratch) const = 0;
  /// Of the source at place `source` of a plan that is not plain, once `select` has run for `row`. Valid until it runs again.
  virtual SourcePages source_pages(size_t source, const FlowRow& row, FlowScratch& scratch) const = 0;
  /// Runs the after stage of a plan that has one, on what attention gave: `masses` [pages, page, group], null if the plan does
  /// not read them. Ends the step that `select` has begun for `row`, and saves what both stages save; or a prompt, of which `row`
  /// has the last query, and saves what this stage does.
  virtual void run_after(const FlowRow& row, Ending ending, float* masses, FlowScratch& scratch) const = 0;
  /// Where `state` sums what the rows of a prompt gave its tokens: [pages, page, group], of pages that are new 0. Null if the
  /// plan does not read it. Different layers and heads may be used by different threads.
  virtual float* prompt_masses(RequestState& state, int layer, int kv_head, int pages) const = 0;
  /// Of a plan that evicts: finds who of `held` tokens leaves a KV head before `rows` come, and keeps what the state has of the
  /// others. `held.scores` and `held.positions` are the state's own and are not read. The moves that are left to do are valid
  /// until the scratch is used again.
  virtual std::span<const SlotMove> evict(RequestState& state, int layer, int kv_head, int tokens, HeldTokens held,
                                          std::span<const int32_t> rows, FlowScratch& scratch) const = 0;
};

/// Compiles `plan`. Throws FlowError if the CPU has no way to run it.
std::unique_ptr<Flow> compile_flow(const Plan& plan, int layers, int kv_heads);

}  // namespace sluice::cpu
