#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace sluice::test {
namespace {

TEST(CheckAndPlan, TakeTheNamesOfShippedFlows) {
  for (const std::string command : {"check", "plan"}) {
    const Ran ran = run_sluice({command, "quest"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_NE(ran.out.find("quest"), std::string::npos);
  }
}

TEST(CheckAndPlan, TakeFlowsFromPipes) {
  const std::string quest = SLUICE_SOURCE_DIR "/scripting/flows/quest.lua";
  for (const std::string command : {"check", "plan"}) {
    for (const std::string& arguments : {" - < " + quest, " /dev/stdin < " + quest, " <(cat " + quest + ")"}) {
      const Ran ran = run_shell("\"$SLUICE\" " + command + arguments);
      EXPECT_EQ(ran.exit_code, 0) << arguments << ": " << ran.err;
      EXPECT_NE(ran.out.find("quest"), std::string::npos);
    }
  }
  const Ran bad = run_shell("echo 'return 7' | \"$SLUICE\" check -");
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_EQ(bad.err.rfind("error: standard input: ", 0), 0U) << bad.err;
}

TEST(CheckAndPlan, EndOnUnionsOfUnions) {
  const Folder folder;
  const std::string path = folder.write("unions.lua", R"(
    local flow = sluice.flow { name = "unions" }
    function flow.index(q, c)
      local a, b = sluice.window { last = 1 }, sluice.window { first = 1 }
      for _ = 1, 200 do a, b = sluice.union(a, b), a end
      return a
    end
    return flow)");
  for (const std::string command : {"check", "plan"}) {
    const Ran ran = run_sluice({command, path});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_LT(ran.seconds, 2);
  }
}

}  // namespace
}  // namespace sluice::test
