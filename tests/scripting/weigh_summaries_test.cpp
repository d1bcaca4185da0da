// The pass that gives attention the products of the query and the keys of summaries.
#include <gtest/gtest.h>

#include "scripting/graph/plan.h"
#include "scripting/graph/verify.h"
#include "tests/scripting/planned_flow.h"

namespace sluice {
namespace {

using testing::count;
using testing::flow_of;
using testing::plan_of;

// The products of the query and the keys of summaries, which attention wants, are those that the script scores by.
TEST(WeighSummaries, SummariesAreWeighedByProductsThatTheIndexStageComputesOnce) {
  const std::string cache = "c.a = c.k:mean('token') c.b = c.v:mean('token')";
  const std::string refine = "refine = sluice.topk(s, {k = 2}), k = c.a, v = c.b}";
  for (const char* product : {"q:dot(c.a)", "c.a:dot(q)"}) {
    const Plan plan = plan_of(std::string("local s = ") + product + ":max('head') return sluice.cover{" + refine, cache);
    EXPECT_EQ(count(plan.graph, Op::kContract), 1) << product;
    const NodeId logits = plan.attend.sources.at(1).logits;
    ASSERT_NE(logits, kNoNode);
    EXPECT_EQ(plan.graph.nodes[static_cast<size_t>(logits)].op, Op::kContract);
    EXPECT_EQ(plan.attend.sources.at(0).logits, kNoNode);
  }
  const FlowGraph with_after = trace("local flow = sluice.flow{name = 'x'} function flow.cache(c) " + cache +
                                         " end function flow.index(q, c) local s = sluice.load('m', {axes = {'page'}}) "
                                         "return sluice.cover{" +
                                         refine +
                                         " end function flow.after(q, c, mass) "
                                         "sluice.save('m', mass:sum('token'):sum('head')) end return flow",
                                     "x.lua");
  EXPECT_NE(compile(with_after).plan.attend.sources.at(1).logits, kNoNode);
  const Plan other = plan_of("local s = c.a:l2norm('dim') return sluice.cover{" + refine, cache);
  EXPECT_EQ(count(other.graph, Op::kContract), 1);
  // Without the pass, or where there is no room for its operators, devices compute them.
  EXPECT_EQ(plan_of("local s = c.a:l2norm('dim') return sluice.cover{" + refine, cache, {"weigh_summaries"})
                .attend.sources.at(1)
                .logits,
            kNoNode);
}

TEST(WeighSummaries, NothingElseStandsForTheProductsOfSummaries) {
  FlowGraph graph = compile(flow_of("local s = q:dot(c.a):max('head') return sluice.cover{refine = sluice.topk(s, {k = 2}), "
                                    "k = c.a, v = c.b}",
                                    "c.a = c.k:mean('token') c.b = c.v:mean('token')"))
                        .plan.graph;
  verify(graph);
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    FlowGraph forged = graph;
    forged.sources[1].logits = static_cast<NodeId>(id);
    const bool is_right = graph.sources[1].logits == static_cast<NodeId>(id);
    if (is_right) {
      EXPECT_NO_THROW(verify(forged));
    } else {
      EXPECT_THROW(verify(forged), FlowError) << id;
    }
  }
  graph.sources[1].logits = static_cast<NodeId>(graph.nodes.size());
  EXPECT_THROW(verify(graph), FlowError);
}

}  // namespace
}  // namespace sluice
