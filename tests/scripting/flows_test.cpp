#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "scripting/graph/ops.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "tests/scripting/flow_files.h"

namespace sluice {
namespace {

class ValidFlow : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(ValidFlow, PrintsTheGoldenGraphAndPlan) {
  const FlowGraph graph = testing::trace_by_name(GetParam());
  testing::expect_golden("flows/" + GetParam().stem().string() + ".txt", to_text(graph) + "\n" + to_text(compile(graph).plan));
}

TEST_P(ValidFlow, TracesToTheSameGraphEveryTime) {
  EXPECT_EQ(to_text(testing::trace_by_name(GetParam())), to_text(testing::trace_by_name(GetParam())));
}

TEST_P(ValidFlow, CompilesForOtherGeometries) {
  for (const auto& [head_dim, group] : {std::pair{128, 1}, {128, 4}, {64, 16}, {96, 5}}) {
    TraceOptions options;
    options.head_dim = head_dim;
    options.group = group;
    const Plan plan = compile(testing::trace_by_name(GetParam(), options)).plan;
    EXPECT_EQ(plan.graph.geometry.head_dim, head_dim);
    EXPECT_EQ(plan.graph.geometry.group, group);
  }
}

INSTANTIATE_TEST_SUITE_P(Flows, ValidFlow, ::testing::ValuesIn(testing::valid_flows()), testing::name_of_flow);

TEST(ValidFlows, CoverEveryOperatorAndComparison) {
  std::set<Op> seen;
  std::set<Compare> compared;
  for (const auto& path : testing::valid_flows()) {
    for (const Node& node : testing::trace_by_name(path).nodes) {
      seen.insert(node.op);
      if (node.op == Op::kWhere) compared.insert(node.attributes.compare);
    }
  }
  for (const OpInfo& info : all_ops()) EXPECT_TRUE(seen.count(info.op)) << "no flow uses " << info.name;
  EXPECT_EQ(compared.size(), 6u);
}

class BadFlow : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(BadFlow, GetsTheGoldenDiagnosticWithinTwoSeconds) {
  const auto start = std::chrono::steady_clock::now();
  try {
    verify_readers(testing::trace_by_name(GetParam()));
    FAIL() << "the flow was accepted";
  } catch (const FlowError& error) {
    testing::expect_golden("diagnostics/" + GetParam().stem().string() + ".txt",
                           std::string(error.what()) + (error.hint().empty() ? "" : "\n  hint: " + error.hint()) + "\n");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

INSTANTIATE_TEST_SUITE_P(Flows, BadFlow, ::testing::ValuesIn(testing::flows_in("tests/flows/fail")), testing::name_of_flow);

TEST(TraceFile, SaysWhichFileCannotBeRead) {
  for (const std::string path : {"/nowhere/flow.lua", "/tmp"}) {
    try {
      trace_file(path);
      FAIL() << path << " was accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace sluice
