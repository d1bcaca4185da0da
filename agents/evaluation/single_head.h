#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "host/serving/token_budget.h"
#include "kernels/device.h"
#include "kernels/device/batch_builder.h"
#include "kernels/device/open_pass.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// What a device gives for one decode step. Under a pattern pages are those that the step is shown: those with a token that it
/// sees, and its own.
struct HeadStep {
  std::vector<float> scores;      // [scored_selections(plan.graph), pages * scores_a_page(plan.graph)]
  std::vector<int32_t> selected;  // pages, or tokens; ascending; all pages where the flow selects nothing
  std::vector<float> output;      // [group, dim]
};

/// One layer, one KV head and one request on a device, driven as an engine drives it: among others. Another request shares every
/// pass, there are another KV head and another layer, and all of these hold the negative of what this one does, so that a device
/// that took one for the other would be found out.
class SingleHead {
 public:
  static constexpr int kLayer = 1;  // of two
  static constexpr int kHead = 1;   // of kHeads
  static constexpr int kHeads = 2;

  /// `prompt`: rows that come before the first decode step, if the flow evicts.
  SingleHead(Device& device, const Plan& plan, int max_tokens, uint64_t seed, int prompt = 0);

  /// Appends tokens of k, v [tokens, dim] without a query.
  void prefill(const std::vector<float>& keys, const std::vector<float>& values);
  /// Appends the last tokens of a prompt, or of a chunk of it, which is attended to with q [tokens, group, dim] and then ends.
  void end_prompt(const std::vector<float>& keys, const std::vector<float>& values, const std::vector<float>& queries);
  /// Appends one token and attends with q [group, dim]. `probed`: reports scores and what is selected; else the output alone, by
  /// the kernels that serve requests.
  HeadStep decode(const std::vector<float>& key, const std::vector<float>& value, const std::vector<float>& query,
                  bool probed = true);

  /// Of a flow that evicts: what it keeps of so many tokens.
  const TokenBudget& budget() const { return *budget_; }
  /// The values of this head in the first `slots` slots of the pages: [slots, dim].
  std::vector<float> values_in(int slots) const;

 private:
  /// A pass that appends `rows` tokens, and `other_rows` of the other request. `prompt_rows`: PassBatch::prompt_rows.
  OpenPass begin(int rows, int other_rows, bool decoding, int prompt_rows = 0);
  /// Attention in this layer with q [rows, group, dim] of this request; other heads, and the other request, ask with its numbers
  /// in falling order. What the last row gets: [group, dim].
  std::vector<float> attend(std::span<const float> queries, AttentionProbe* probe);
  /// Adds a sequence to the pass, and what it sees under the plan's first patterns of heads and beside its selection. Of the
  /// other request nobody leaves.
  void add(const BatchBuilder::Sequence& sequence, std::span<const int32_t> pages);
  void append(const std::vector<float>& keys, const std::vector<float>& values);
  /// Tokens [rows, dim] of one layer of the pass, [other rows + rows, heads, dim]: negated but for those of this head, and there,
  /// too, in the other layer.
  Matrix upload_tokens(const std::vector<float>& tokens, int layer);
  Matrix upload(const std::vector<float>& values, int64_t rows);

  Device& device_;
  const Plan& plan_;
  int tokens_ = 0;
  int other_tokens_ = 0;  // of the other request
  uint64_t seed_;
  size_t score_rows_ = 0;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<CompiledFlow> flow_;  // null: every layer is dense
  std::unique_ptr<RequestState> state_;
  std::unique_ptr<RequestState> other_state_;
  std::vector<std::unique_ptr<Memory>> uploads_;  // of the pass
  std::vector<int32_t> pages_;                    // the other request's, then this one's
  BatchBuilder batch_;
  int other_rows_ = 0;  // of the pass
  std::optional<TokenBudget> budget_;
  int prompt_;
};

}  // namespace sluice
