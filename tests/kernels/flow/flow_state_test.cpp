#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "scripting/lua/trace.h"
#include "tests/support/flow_judge.h"

namespace sluice::testing {
namespace {

/// How states of one shape are declared, computed and scored.
struct Kind {
  const char* name;
  const char* axes;
  const char* fresh;  // a value of the state's shape that changes from step to step
  const char* score;  // [page] or scalar of a state x
};

constexpr Kind kKinds[] = {
    {"PageByPage", "{\"page\"}", "q:dot(c.m):max(\"head\")", "x"},
    {"HeadsOfPages", "{\"page\", \"head\"}", "sluice.fill(0, {\"page\"}) + q:dot(c.m)", "x:sum(\"head\")"},
    {"WithoutPages", "{\"head\", \"dim\"}", "1 * q", "x:dot(c.m):max(\"head\")"},
    {"Scalar", "{}", "q:max(\"head\", \"dim\")", "x * sluice.position()"},
    {"Tokens", "{\"page\", \"token\"}", "c.n * q:max(\"head\", \"dim\")", "x:sum(\"token\")"},
};

constexpr int kStates = 3;
constexpr int kFresh = kStates;  // a source that is no state

/// Saves state `order[i]`, for every i, from the state `sources[order[i]]`, as it was loaded, or from a fresh value. What the
/// flow scores is read before the saves or after them, and in a later phase too.
std::string exchange(const Kind& kind, const std::array<int, kStates>& sources, const std::array<int, kStates>& order) {
  std::string text =
      "local flow = sluice.flow { name = \"exchange\", page = 8, kv = \"f32\" }\n"
      "function flow.cache(c) c.m = c.k:mean(\"token\") c.n = c.k:max(\"dim\") end\n"
      "function flow.index(q, c)\n"
      "  local s = {}\n";
  for (int i = 0; i < kStates; ++i) {
    text += "  s[" + std::to_string(i) + "] = sluice.load(\"s" + std::to_string(i) + "\", { axes = " + kind.axes +
            ", init = " + std::to_string(i + 1) + " })\n";
  }
  text += std::string("  s[3] = ") + kind.fresh + "\n  local function score(x) return " + kind.score + " end\n";
  text += "  local early = score(s[0]) + 3 * score(s[1]) - 5 * score(s[2]) + 0.01 * sluice.position()\n";
  for (const int state : order)
    text += "  sluice.save(\"s" + std::to_string(state) + "\", s[" + std::to_string(sources[state]) + "])\n";
  text +=
      "  local late = score(s[0]) - 2 * score(sluice.load(\"s1\")) + 7 * score(s[2])\n"
      "  return sluice.topk(early + (late - early:mean(\"page\")), { k = 2, last = 1 })\n"
      "end\n"
      "return flow\n";
  return text;
}

class StatesSavedFromStates : public ::testing::TestWithParam<Kind> {};

TEST_P(StatesSavedFromStates, AgreesWithOracleInEveryOrder) {
  std::array<int, kStates> sources{};
  for (int mapping = 0; mapping < (kStates + 1) * (kStates + 1) * (kStates + 1); ++mapping) {
    for (int i = 0, left = mapping; i < kStates; ++i, left /= kStates + 1) sources[i] = left % (kStates + 1);
    std::array<int, kStates> order = {0, 1, 2};
    do {
      const std::string source = exchange(GetParam(), sources, order);
      const FlowGraph graph = trace(source, "exchange.lua", {.head_dim = 4, .group = 2});
      // Over a page boundary.
      const Verdict verdict = judge(graph, {.tokens = 30, .steps = 5});
      ASSERT_EQ(verdict.fault, "") << source;
      ASSERT_GT(verdict.known, 0);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, StatesSavedFromStates, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

/// Runs `index` as the index stage; the states a, b, c, d of a page begin as 1, 2, 3, 4.
void expect_agreement(const std::string& index) {
  const FlowGraph graph = trace(
      "local flow = sluice.flow { name = \"states\" }\n"
      "function flow.cache(c)\n"
      "  c.m = c.k:mean(\"token\")\n"
      "  c.a, c.b, c.c, c.d = sluice.cfill(1), sluice.cfill(2), sluice.cfill(3), sluice.cfill(4)\n"
      "end\n"
      "function flow.index(q, c)\n"
      "  local now = q:dot(c.m):max(\"head\")\n" +
          index + "\nend\nreturn flow\n",
      "states.lua", {.head_dim = 16, .group = 2});
  // More pages than a tile holds.
  for (const int tokens : {100, 6000}) EXPECT_EQ(judge(graph, {.tokens = tokens, .steps = 5}).fault, "") << index;
}

constexpr const char* kScore = "\nreturn sluice.topk(c.a + 2 * c.b - 3 * c.c + 5 * c.d + 0.001 * now, { k = 2, last = 1 })";

TEST(States, DelayLinesKeepEveryStepInEitherOrder) {
  expect_agreement(std::string("c.a:save(now) c.b:save(c.a) c.c:save(c.b) c.d:save(c.c)") + kScore);
  expect_agreement(std::string("c.d:save(c.c) c.c:save(c.b) c.b:save(c.a) c.a:save(now)") + kScore);
  expect_agreement(std::string("c.c:save(c.b) c.a:save(now) c.d:save(c.c) c.b:save(c.a)") + kScore);
}

TEST(States, SwapsAndLargerCirclesHandOnTheLastStep) {
  expect_agreement(std::string("c.a:save(c.b) c.b:save(c.a) c.c:save(c.d) c.d:save(c.c)") + kScore);
  expect_agreement(std::string("c.a:save(c.b) c.b:save(c.c) c.c:save(c.a) c.d:save(now)") + kScore);
  expect_agreement(std::string("c.a:save(c.b) c.b:save(c.c) c.c:save(c.d) c.d:save(c.a)") + kScore);
  // A branch hangs off a circle.
  expect_agreement(std::string("c.a:save(c.b) c.b:save(c.a) c.c:save(c.a) c.d:save(c.c)") + kScore);
  // Passes turn these into loads.
  expect_agreement(std::string("local a, b = 1 * c.a, 1 * c.b c.a:save(b) c.b:save(a) c.c:save(now) c.d:save(c.d)") + kScore);
}

TEST(States, CirclesOfComputedValuesHandOnTheLastStep) {
  expect_agreement(std::string("c.a:save(0.5 * c.b) c.b:save(c.a + now) c.c:save(c.b) c.d:save(c.d:softmax())") + kScore);
}

}  // namespace
}  // namespace sluice::testing
