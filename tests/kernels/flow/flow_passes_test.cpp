// Passes on a device: what they leave gives the bits of what was written.

#include <gtest/gtest.h>

#include <bit>

#include "scripting/lua/trace.h"
#include "tests/support/flow_judge.h"
#include "tests/support/head_cache.h"

namespace sluice::testing {
namespace {

/// Scores of one page, as bits: with pass `name` and without it.
std::pair<uint32_t, uint32_t> scores_of(const std::string& expression, const std::string& name) {
  const FlowGraph graph = trace("local flow = sluice.flow { name = \"x\" }\nfunction flow.index(q, c) return sluice.topk(" +
                                    expression + " + sluice.fill(-0.0, { \"page\" }), { k = 1 }) end\nreturn flow",
                                "x.lua");
  std::array<uint32_t, 2> bits{};
  for (const bool with : {false, true}) {
    CompileOptions options;
    if (!with) options.disabled_passes = {name};
    const Plan plan = compile(graph, options).plan;
    const auto flow = judged_on_cpu(plan, 1, 1);
    std::mt19937_64 random(1);
    const auto numbers = random_numbers(static_cast<size_t>(graph.geometry.head_dim) * graph.geometry.group, random);
    flow->append(std::span(numbers).first(graph.geometry.head_dim), std::span(numbers).first(graph.geometry.head_dim));
    float score = NAN;
    flow->select(numbers, {&score, 1});
    bits[with ? 1 : 0] = std::bit_cast<uint32_t>(score);
  }
  return {bits[0], bits[1]};
}

TEST(FlowPasses, FoldConstantsIntoTheBitsOfTheDevice) {
  std::vector<std::string> expressions;
  for (const std::string op : {"relu", "sigmoid", "silu", "exp", "log", "abs", "sqrt"}) {
    for (const std::string x : {"0.0", "-0.0", "1", "-1", "10.9", "-100", "-87.5", "88.9", "3e-39", "math.huge", "-math.huge"}) {
      expressions.push_back("sluice." + op + "(" + x + ")");
      expressions.push_back("1 / sluice." + op + "(" + x + ")");
    }
  }
  for (const std::string op : {"add", "sub", "mul", "div", "maximum", "minimum"}) {
    for (const std::string operands : {"0.0, 0.0", "0.0, -0.0", "-0.0, 0.0", "-0.0, -0.0", "1, 3", "3, 1", "0.1, -0.3"}) {
      expressions.push_back("1 / sluice." + op + "(" + operands + ")");
    }
  }
  for (const std::string& expression : expressions) {
    const auto [without, with] = scores_of(expression, "fold_constants");
    const bool nan = std::isnan(std::bit_cast<float>(without)) && std::isnan(std::bit_cast<float>(with));
    EXPECT_TRUE(nan || without == with) << expression << ": " << std::hex << without << " became " << with;
  }
}

TEST(FlowPasses, MergeOnlyWhatHasTheSameBits) {
  for (const std::string op : {"maximum", "minimum"}) {
    // 1 / x tells 0 from -0.
    const std::string expression = "(1 / sluice." + op + "(a, b)) + 0.5 * (1 / sluice." + op + "(b, a))";
    const auto [without, with] = scores_of(
        "(function() local a, b = sluice.position(), -sluice.position() return " + expression + " end)()", "merge_common");
    const bool nan = std::isnan(std::bit_cast<float>(without)) && std::isnan(std::bit_cast<float>(with));
    EXPECT_TRUE(nan || without == with) << op << ": " << std::hex << without << " became " << with;
  }
}

}  // namespace
}  // namespace sluice::testing
