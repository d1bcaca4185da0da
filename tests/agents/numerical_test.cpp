#include "agents/evaluation/numerical.h"

#include <gtest/gtest.h>

#include "agents/evaluation/flow_files.h"
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
                         testing::Values("full", "streaming", "block_topk", "quest", "double_sparse", "nsa_topk", "h2o",
                                         "random"),
                         [](const auto& flow) { return flow.param; });

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
  wrong.nodes[wrong.selection].attributes.last += 1;
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
