#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace sluice::test {
namespace {

TEST(Eval, WritesATableAndJson) {
  const Folder folder;
  const std::string suite =
      folder.write("suite.json", R"([{"task": "needle_multikey", "tokens": 512, "samples": 4, "threshold": 0.5}])");
  const std::string json = folder.path("result.json");
  const Ran ran = run_sluice({"eval", "full", "--suite", suite, "--json", json, "--seed", "7"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.out.find("full"), std::string::npos);
  EXPECT_NE(ran.out.find("passed"), std::string::npos);
  EXPECT_EQ(ran.err.find('\x1b'), std::string::npos) << "no bar where there is no terminal";
  const auto result = nlohmann::json::parse(read_file(json));
  EXPECT_EQ(result["schema"], "sluice.eval/1");
  EXPECT_EQ(result["device"], "cpu");
  EXPECT_EQ(result["dialect"], "mini");
  EXPECT_EQ(result["seed"].get<std::string>().size(), 64U);
  EXPECT_EQ(result["flows"][0]["tasks"][0]["samples"], 4);
  EXPECT_GT(result["flows"][0]["speedup"]["ratio"], 0);
}

TEST(Eval, ABadFlowAmongOthersIsALineOfTheTable) {
  const Folder folder;
  const std::string suite = folder.write("suite.json", R"([{"task": "needle_single", "tokens": 256, "samples": 1}])");
  const std::string bad = folder.write("broken.lua", "return 7");
  const Ran ran = run_sluice({"eval", bad, "full", "absent", "--suite", suite});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  size_t rejected = 0;
  for (size_t at = ran.out.find("rejected_static"); at != std::string::npos; at = ran.out.find("rejected_static", at + 1))
    ++rejected;
  EXPECT_EQ(rejected, 2U) << ran.out;
  EXPECT_NE(ran.out.find("passed"), std::string::npos) << ran.out;
}

TEST(Help, OfEveryCommandHasAnExample) {
  for (const char* command : {"eval", "check", "plan", "run", "generate", "bench"}) {
    const Ran ran = run_sluice({command, "--help"});
    EXPECT_EQ(ran.exit_code, 0);
    EXPECT_NE(ran.out.find("sluice " + std::string(command)), std::string::npos) << ran.out;
  }
}

}  // namespace
}  // namespace sluice::test
