#pragma once

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tests/host/serving/tiny_engine.h"
#include "tests/support/recompute_rules.h"
#include "tests/support/segment_prompts.h"

namespace sluice::testing {

/// A tiny model, prompts that have text in common, and rules.
class SegmentsTest : public TinyEngineTest {
 protected:
  SegmentsTest() : TinyEngineTest(4) {}

  /// Text `number` of so many tokens.
  std::vector<int32_t> text(int number, int tokens) const { return request(tokens, 1, number).prompt; }

  static Request prompt_of(const std::vector<std::vector<int32_t>>& parts, const std::string& extra_key = "docs") {
    return prompt_of_parts(parts, extra_key);
  }
  enum class Rule : uint8_t { kNone, kAll, kEdges, kSparseQ, kKeys };

  Request as(Request made, Rule rule, double share = 0.2, int boundary = 1) const {
    static constexpr std::array kNames = {"none", "all", "epic", "sparsex", "cacheblend"};
    ParameterValues values;
    if (rule != Rule::kNone && rule != Rule::kAll) values["page"] = "8";
    if (rule == Rule::kEdges) values["edge"] = "4";
    if (rule == Rule::kSparseQ || rule == Rule::kKeys) {
      values["share"] = fmt::format("{}", share);
      values["boundary"] = fmt::format("{}", boundary);
    }
    made.recompute = shipped_rule(kNames[static_cast<size_t>(rule)], model_->config().query_heads, values);
    return made;
  }
  static Request without_segments(Request made) {
    made.segments.clear();
    made.freeze = false;
    return made;
  }

  /// Of the tokens that were generated, beside those that computing the prompt gives.
  double distance(const RequestResult& result, const Request& made) {
    Engine plain(*device_, *model_, nullptr, options());
    Request forced = without_segments(made);
    forced.given = result.tokens;
    return largest_distance(result, run(plain, forced));
  }
};

}  // namespace sluice::testing
