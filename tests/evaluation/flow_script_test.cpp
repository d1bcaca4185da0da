// Flows as commands are given them.
#include "agents/evaluation/flow_script.h"

#include <gtest/gtest.h>

#include "scripting/base/error.h"

namespace sluice {
namespace {

TEST(FlowReference, SetsParametersInBrackets) {
  const FlowReference reference = parse_flow_reference("luka_choices[refined=1/16,bias=none]");
  EXPECT_EQ(reference.flow, "luka_choices");
  EXPECT_EQ(reference.parameters, (ParameterValues{{"refined", "1/16"}, {"bias", "none"}}));
  EXPECT_TRUE(parse_flow_reference("quest").parameters.empty());
  EXPECT_TRUE(parse_flow_reference("quest[]").parameters.empty());
  for (const char* bad : {"quest[a]", "quest[=1]", "quest[a=1,a=2]", "quest[a=1,,b=2]"})
    EXPECT_THROW(parse_flow_reference(bad), InputError) << bad;
  const FlowScript script = read_flow("luka_choices[bias=none]");
  EXPECT_EQ(script.trace({}).sources.at(1).bias, kNoNode) << "through the sandbox";
  EXPECT_NE(read_flow("luka_choices").trace({}).sources.at(1).bias, kNoNode);
  EXPECT_THROW(read_flow("luka_choices[biass=none]").trace({}), FlowError);
  EXPECT_THROW(read_flow_as_written("luka_choices[bias=none]"), InputError);
}

}  // namespace
}  // namespace sluice
