#include "agents/evaluation/numerical.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/memory_limit.h"
#include "scripting/base/error.h"
#include "scripting/lua/trace.h"

namespace sluice::test {
namespace {

FlowGraph shipped(const std::string& name) { return trace_file(SLUICE_SOURCE_DIR "/scripting/flows/" + name + ".lua"); }

class ShippedFlow : public testing::TestWithParam<std::string> {};

TEST_P(ShippedFlow, AgreesWithTheReferenceOnTheCpu) {
  const auto device = create_cpu_device({1});
  const FlowGraph traced = shipped(GetParam());
  EXPECT_EQ(check_against_reference(*device, traced, compile(traced).plan), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Flows, ShippedFlow,
                         testing::Values("full", "streaming", "block_topk", "quest", "double_sparse", "nsa_topk", "h2o", "random",
                                         "patterns/nsa_window", "covers/luka", "covers/luka_mixed", "covers/luka_near",
                                         "eviction/pyramid", "masses/heavy_hitters", "masses/heavy_tokens", "eviction/h2o_tokens",
                                         "eviction/snapkv", "eviction/tova", "eviction/keydiff", "eviction/rocket",
                                         "eviction/h2o_quest"),
                         [](const auto& flow) { return flow.param.substr(flow.param.find('/') + 1); });

// A device that computes something else than the script says is as good as a plan of another script.
TEST(CheckAgainstReference, FindsOtherScores) {
  const auto device = create_cpu_device({1});
  const auto fault = check_against_reference(*device, shipped("quest"), compile(shipped("block_topk")).plan);
  ASSERT_TRUE(fault.has_value());
  EXPECT_NE(fault->find("score"), std::string::npos) << *fault;
}

TEST(CheckAgainstReference, FindsOtherPages) {
  const auto device = create_cpu_device({1});
  FlowGraph wrong = shipped("streaming");
  wrong.nodes[wrong.selection()].attributes.last += 1;
  EXPECT_TRUE(check_against_reference(*device, shipped("streaming"), compile(wrong).plan).has_value());
}

TEST(CheckAgainstReference, FindsAFieldThatIsOffByLittle) {
  const auto device = create_cpu_device({1});
  const auto flow = [](const std::string& factor) {
    return trace("local f = sluice.flow{name='f', page=16, kv='f32'} function f.cache(c) c.m = c.k:mean('token') * " + factor +
                     " end function f.index(q, c) return sluice.topk((q * c.m):sum('dim'):max('head'), {k=4, first=1, last=1}) "
                     "end return f",
                 "f.lua");
  };
  EXPECT_EQ(check_against_reference(*device, flow("1"), compile(flow("1")).plan), std::nullopt);
  EXPECT_TRUE(check_against_reference(*device, flow("1"), compile(flow("1.02")).plan).has_value());
}

FlowGraph flow_of(const std::string& index, const std::string& cache = "c.m = c.k:mean('token')") {
  return trace("local f = sluice.flow{name='f', page=8, kv='f32'} function f.cache(c) " + cache + " end function f.index(q, c) " +
                   index + " end return f",
               "f.lua");
}

std::optional<std::string> fault_of(const FlowGraph& traced, const FlowGraph& run) {
  const auto device = create_cpu_device({1});
  return check_against_reference(*device, traced, compile(run).plan);
}

// Whatever the pattern, for pages of every size.
TEST(CheckAgainstReference, KnowsTokensBesideASelection) {
  for (const char* pattern : {"window(1)", "window(200)", "sink(3) | sluice.pattern.window(9)", "dilated(20, 7)",
                              "strided(5, 33)", "diag{offset = 40}", "rect{at = {0, 17}, size = {math.huge, 30}}"}) {
    for (const int page : {8, 16, 32, 64, 128}) {
      for (const char* selection : {"sluice.topk((q * c.m):sum('dim'):max('head'), {k = 3})", "sluice.window{first = 1}"}) {
        const FlowGraph graph = trace(std::string("local f = sluice.flow{name='f', kv='f32', page=") + std::to_string(page) +
                                          "} function f.cache(c) c.m = c.k:mean('token') end function f.index(q, c) return " +
                                          "sluice.union(" + selection + ", sluice.pattern." + pattern + ") end return f",
                                      "f.lua");
        EXPECT_EQ(fault_of(graph, graph), std::nullopt) << pattern << ", page " << page << ", " << selection;
        FlowGraph other = graph;
        other.sources.front().beside = Pattern::window(2);
        EXPECT_TRUE(fault_of(graph, other).has_value()) << pattern << ", page " << page << ", " << selection;
      }
    }
  }
}

// An index stage is shown the pages that its pattern has a token of, and sees no other token of them.
TEST(CheckAgainstReference, KnowsAPatternAroundASelection) {
  for (const char* pattern : {"window(70)", "sink(3) | sluice.pattern.window(50)", "dilated(20, 17)", "strided(5, 133)",
                              "by_head{sluice.pattern.window(70), sluice.pattern.dilated(20, 17)}", "diag{offset = 40}",
                              "rect{at = {0, 17}, size = {math.huge, 30}}"}) {
    for (const int page : {8, 32, 128}) {
      for (const char* selection :
           {"sluice.topk((q * c.m):sum('dim'):max('head'), {k = 3})",
            "sluice.union(sluice.topk((q * c.m):sum('dim'):max('head'), {k = 2, first = 1}), sluice.pattern.window(60))"}) {
        const auto flow = [&](const std::string& around) {
          return trace(std::string("local f = sluice.flow{name='f', kv='f32', page=") + std::to_string(page) + "} " + around +
                           " function f.cache(c) c.m = c.k:mean('token') end function f.index(q, c) return " + selection +
                           " end return f",
                       "f.lua");
        };
        const FlowGraph graph = flow(std::string("f.pattern = sluice.pattern.") + pattern);
        EXPECT_EQ(fault_of(graph, graph), std::nullopt) << pattern << ", page " << page << ", " << selection;
        EXPECT_TRUE(fault_of(graph, flow("")).has_value()) << pattern << ", page " << page << ", " << selection;
      }
    }
  }
}

TEST(CheckAgainstReference, JudgesFlowsThatAreAPattern) {
  const auto flow = [](const std::string& pattern) {
    return trace("local p = sluice.pattern local f = sluice.flow{name='f', kv='f32'} f.pattern = " + pattern + " return f",
                 "f.lua");
  };
  for (const char* pattern : {"p.window(70)", "p.strided(5, 33)", "p.dilated(20, 7)", "p.by_head{p.window(70), p.dilated(20, 7)}",
                              "{[0] = p.dilated(20, 7), [1] = p.by_head{p.window(70), p.sink(9), p.strided(5, 33)}}"}) {
    EXPECT_EQ(fault_of(flow(pattern), flow(pattern)), std::nullopt) << pattern;
    EXPECT_TRUE(fault_of(flow(pattern), flow("p.window(71)")).has_value()) << pattern;
  }
  // Whichever layer or head is another.
  EXPECT_TRUE(fault_of(flow("p.by_head{p.window(70), p.window(50)}"), flow("p.by_head{p.window(50), p.window(70)}")).has_value());
  EXPECT_TRUE(fault_of(flow("p.by_head{p.window(70), p.window(50)}"), flow("p.by_head{p.window(70), p.window(51)}")).has_value());
  EXPECT_TRUE(fault_of(flow("{[0] = p.sink(3), [1] = p.window(50)}"), flow("{[0] = p.sink(3), [1] = p.window(49)}")).has_value());
}

const std::string kScore = "local s = (q * c.m):sum('dim'):max('head') ";

TEST(CheckAgainstReference, FindsOtherPagesOfALargeBudget) {
  const FlowGraph traced = flow_of(kScore + "return sluice.topk(s, {k=90})");
  EXPECT_EQ(fault_of(traced, traced), std::nullopt);
  EXPECT_TRUE(fault_of(traced, flow_of(kScore + "return sluice.topk(s, {k=91})")).has_value());
}

TEST(CheckAgainstReference, HoldsAnApproximateSelectionToItsBudgetAndTolerance) {
  const FlowGraph traced = flow_of(kScore + "return sluice.approx_topk(s, {k=16, first=1, last=2, tolerate=0.05})");
  EXPECT_EQ(fault_of(traced, traced), std::nullopt);
  const auto more = fault_of(traced, flow_of(kScore + "return sluice.approx_topk(s, {k=17, first=1, last=2, tolerate=0.05})"));
  ASSERT_TRUE(more.has_value());
  EXPECT_NE(more->find("20 pages are selected, not 19"), std::string::npos) << *more;
  // A few scores far above the others leave those in one bin, from which a tolerant selection takes any.
  const auto peaked = [](const std::string& tolerate) {
    return flow_of(kScore + "return sluice.approx_topk(sluice.exp(s * 2), {k=16, first=1, last=2, tolerate=" + tolerate + "})");
  };
  EXPECT_EQ(fault_of(peaked("0.05"), peaked("0.05")), std::nullopt);
  EXPECT_EQ(fault_of(peaked("0.95"), peaked("0.95")), std::nullopt);
  const auto worse = fault_of(peaked("0.05"), peaked("0.95"));
  ASSERT_TRUE(worse.has_value());
  EXPECT_NE(worse->find("of the 19 best pages are selected, where 5% may be missed"), std::string::npos) << *worse;
}

// Scores that depend on the query only where a whole page has equal keys.
TEST(CheckAgainstReference, AsksEqualKeysWithARealQuery) {
  const std::string cache = "c.m = c.k:mean('token') c.spread = (c.k:max('token') - c.k:min('token')):max('dim')";
  const auto flow = [&](const std::string& equal) {
    return flow_of(
        "local s = (q * c.m):sum('dim'):max('head') "
        "local full = sluice.where_gt(sluice.position(), 0, 1, 0) * sluice.where_lt(sluice.position(), 30, 1, 0) "
        "return sluice.topk(sluice.where_eq(c.spread, 0, " +
            equal + ", 1) * full, {k=4})",
        cache);
  };
  EXPECT_EQ(fault_of(flow("s"), flow("s")), std::nullopt);
  const auto fault = fault_of(flow("s"), flow("s * 2"));
  ASSERT_TRUE(fault.has_value());
  EXPECT_NE(fault->find("all keys equal"), std::string::npos) << *fault;
}

// Each part passes by itself; float32 cannot tell the scores of one of them apart.
TEST(CheckAgainstReference, JudgesEachPartOfAUnionByItsOwnScores) {
  const std::string parts[] = {"sluice.topk(s, {k = 6})", "sluice.topk(1 + s * 1e-8, {k = 6})", "sluice.topk(-s, {k = 3})",
                               "sluice.topk(sluice.random(), {k = 2})"};
  for (const std::string& left : parts) {
    for (const std::string& right : parts) {
      const FlowGraph flow = flow_of(kScore + "return sluice.union(" + left + ", " + right + ", " + left + ")");
      EXPECT_EQ(fault_of(flow, flow), std::nullopt) << left << ", " << right;
    }
  }
}

// The union's parts were merged into their equals, which no selection asks for, in another order.
TEST(CheckAgainstReference, TakesPartsThatEqualWhatIsNotUsed) {
  for (const std::string unused :
       {"s.topk(p, {k=6}) s.topk(r, {k=3})", "s.topk(p, {k=6})", "s.threshold(p, {above=2}) s.topk(p, {k=6})"}) {
    const FlowGraph traced = flow_of("local s, p, r = sluice, sluice.position(), sluice.random() " + unused +
                                     " return s.union(s.topk(r, {k=3}), s.union(s.topk(p, {k=6}), s.threshold(p, {above=2})))");
    EXPECT_EQ(fault_of(traced, traced), std::nullopt) << unused;
  }
}

TEST(CheckAgainstReference, FindsAPartOfAUnionThatIsLost) {
  const std::string whole = "return sluice.union(sluice.topk(s, {k = 6}), sluice.topk(-s, {k = 3}))";
  const FlowGraph traced = flow_of(kScore + whole);
  EXPECT_EQ(fault_of(traced, traced), std::nullopt);
  for (const std::string part : {"return sluice.topk(s, {k = 6})", "return sluice.topk(-s, {k = 3})",
                                 "return sluice.union(sluice.topk(s, {k = 6}), sluice.topk(s, {k = 3}))"}) {
    EXPECT_TRUE(fault_of(traced, flow_of(kScore + part)).has_value()) << part;
  }
}

// The reference once kept every value of every page: 9 GiB for this one.
TEST(CheckAgainstReference, NeedsLittleMemory) {
  const FlowGraph flow = flow_of(
      "local x = sluice.fill(1, {'page', {'sub', 65536}}) * sluice.position() for i = 1, 20 do x = x * 1.5 end "
      "return sluice.topk(x:max('sub'), {k = 1000})");
  const pid_t child = ::fork();
  if (child == 0) {
    MemoryLimit().allow(size_t{512} << 20);
    ::_exit(fault_of(flow, flow).has_value() ? 1 : 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// The bound is NaN, which no score exceeds, not even an infinite one.
TEST(CheckAgainstReference, TakesABoundThatNothingPasses) {
  const FlowGraph traced = flow_of(kScore + "s = s * 1e30 * 1e30 return sluice.threshold(s, {above=s:mean('page'), last=1})");
  EXPECT_EQ(fault_of(traced, traced), std::nullopt);
}

// What underflows may be zero in float32, of which the logarithm is infinite.
TEST(CheckAgainstReference, LeavesOpenWhatALogarithmMayNotHave) {
  const FlowGraph traced = trace(
      "local f = sluice.flow{name='f', page=16} function f.cache(c) c.m = c.k:mean('token') end function f.index(q, c) return "
      "sluice.topk(sluice.log(q:mean('head'):dot(c.m) * 1e-30 * 1e-14), {k=9}) end return f",
      "f.lua", {.head_dim = 64, .group = 7});
  EXPECT_EQ(fault_of(traced, traced), std::nullopt);
}

// exp(88.8) has no place in float32, so that what divides by it is 0 there and not subnormal.
TEST(CheckAgainstReference, LeavesOpenWhatASigmoidLosesBelowTheSmallestNumbers) {
  for (const std::string score : {"(s * 100):sigmoid()", "(s * -40):sigmoid()", "(s * -50):silu()", "(s * -100):sigmoid():log()",
                                  "1 / (s * 80):sigmoid()", "(s * 100):sigmoid() * 1e38"}) {
    const FlowGraph traced = flow_of(kScore + "s = " + score + " return sluice.topk(s, {k=3, last=1})");
    EXPECT_EQ(fault_of(traced, traced), std::nullopt) << score;
  }
}

// Terms that are equal, or of few values, round the same way again and again.
TEST(CheckAgainstReference, KnowsHowFarLongSumsDrift) {
  for (const std::string term : {"0.1", "1.1"}) {
    const std::string fill = "local x = sluice.fill(" + term + ", {'page', {'sub', 8}}) + sluice.position() * 0 ";
    for (const std::string score : {"x:sum('page')", "x:mean('page')", "x:normalize('page')"}) {
      const FlowGraph traced = flow_of(fill + "return sluice.topk((" + score + "):max('sub') + sluice.position(), {k=2045})");
      EXPECT_EQ(fault_of(traced, traced), std::nullopt) << term << ", " << score;
    }
  }
  const std::string least = "c.lo = c.k:min('token')";
  for (const std::string score : {"(q * c.lo * 0.125):sum('dim'):softmax('page'):max('head')",
                                  "(q * (c.lo:exp() - c.lo:exp():mean('page'))):sum('dim'):max('head')"}) {
    const FlowGraph traced = flow_of("return sluice.topk(" + score + ", {k=1400})", least);
    EXPECT_EQ(fault_of(traced, traced), std::nullopt) << score;
  }
}

TEST(CheckAgainstReference, LeavesOpenWhichZeroIsTheLarger) {
  for (const std::string score : {"1 / sluice.maximum(sluice.fill(0, {'page'}), -0.0)",
                                  "1 / sluice.minimum(sluice.fill(0, {'page'}), -0.0)", "1 / sluice.fill(-0.0, {'page'}):relu()",
                                  "(1 / sluice.maximum(c.m, -0.0)):min('dim')", "(1 / (c.m * 0 - 0.0):min('dim'))"}) {
    const FlowGraph traced = flow_of("return sluice.topk(" + score + " + sluice.position() * 0, {k=3})");
    EXPECT_EQ(fault_of(traced, traced), std::nullopt) << score;
  }
}

TEST(CheckAgainstReference, LeavesOpenInfinitiesThatMeetWhatOverflows) {
  const FlowGraph traced = flow_of(
      "local x = sluice.where_ge(c.m, 0, -3e38, -3e38) + c.m "
      "return sluice.topk(x:mask_slice('dim', 0, 63, math.huge):sum('dim') + sluice.position() * 0, {k=3})");
  EXPECT_EQ(fault_of(traced, traced), std::nullopt);
}

// Equal thresholds may be merged; these have equal scores, but not equal bounds.
TEST(CheckAgainstReference, FindsAThresholdThatIsMergedWithAnother) {
  const std::string low = "sluice.threshold(s, {above=s:mean('page'), last=1})";
  const std::string high = "sluice.threshold(s, {above=s:mean('page') + 1, last=1})";
  const FlowGraph traced = flow_of(kScore + "return sluice.union(" + high + ", " + low + ")");
  EXPECT_EQ(fault_of(traced, traced), std::nullopt);
  const auto fault = fault_of(traced, flow_of(kScore + "return " + high));
  ASSERT_TRUE(fault.has_value());
  EXPECT_NE(fault->find("is missing"), std::string::npos) << *fault;
  const FlowGraph twice = flow_of(kScore + "return sluice.union(" + high + ", " + high + ")");
  EXPECT_EQ(fault_of(twice, twice), std::nullopt);
}

// 2^22 operations a page: the reference affords four pages in a quarter of a second, all of which would be selected.
TEST(CheckAgainstReference, LeavesOutPagesOfADearFlow) {
  const auto flow = [](int k) {
    return flow_of(
        "local x = sluice.fill(1, {'page', {'sub', 65536}}) * sluice.position() for i = 1, 60 do x = x * 1.5 end "
        "return sluice.topk((q * c.m):sum('dim'):max('head') + x:max('sub') * 0, {k=" +
        std::to_string(k) + "})");
  };
  EXPECT_EQ(fault_of(flow(6), flow(6)), std::nullopt);
  EXPECT_TRUE(fault_of(flow(6), flow(5)).has_value());
  EXPECT_TRUE(fault_of(flow(6), flow(7)).has_value());
}

TEST(FindFlow, KnowsShippedNamesAndPathsOnly) {
  EXPECT_EQ(shipped_flows().size(), 8U);
  EXPECT_NE(find_flow("quest").find("scripting/flows/quest.lua"), std::string::npos);
  EXPECT_EQ(find_flow(find_flow("quest")), find_flow("quest"));
  try {
    find_flow("qest");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(error.hint().find("quest"), std::string::npos);
  }
  EXPECT_THROW(find_flow("../quest"), InputError);
  EXPECT_THROW(find_flow("/"), InputError);
}

}  // namespace
}  // namespace sluice::test
