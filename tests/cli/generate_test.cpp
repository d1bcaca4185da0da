#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace sluice::test {
namespace {

TEST(Generate, StreamsTheTextThatJsonGivesWhole) {
  const std::vector<std::string> arguments = {
      "generate", "--prompt", "<bos> key acorn = amber ask acorn =", "--max-tokens", "40", "--ignore-eos"};
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  const Ran whole = run_sluice(with_json);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const std::string text = nlohmann::json::parse(whole.out).at("text");
  EXPECT_GT(text.size(), 40U);
  EXPECT_EQ(run_sluice(arguments).out, text + "\n");
}

TEST(Generate, ReadsPromptsAndIdsFromFilesAndPipes) {
  const Folder folder;
  const std::string text = "<bos> key acorn = amber ask acorn =";
  const std::string prompt = folder.write("prompt", text + "\n");
  const std::string wanted = run_sluice({"generate", "--prompt", text, "--max-tokens", "4"}).out;
  ASSERT_FALSE(wanted.empty());
  EXPECT_EQ(run_sluice({"generate", "--prompt-file", prompt, "--max-tokens", "4"}).out, wanted);
  EXPECT_EQ(run_shell("\"$SLUICE\" generate --prompt-file - --max-tokens 4 < " + prompt).out, wanted);
  const std::string ids = run_sluice({"generate", "--ids", "1,20,30", "--max-tokens", "4"}).out;
  EXPECT_EQ(run_shell("\"$SLUICE\" generate --ids-file <(echo 1, 20; echo 30) --max-tokens 4").out, ids);
  EXPECT_EQ(run_sluice({"generate", "--ids", "1,20", "--ids", "30", "--max-tokens", "4"}).out, ids);
}

}  // namespace
}  // namespace sluice::test
