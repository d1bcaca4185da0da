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

}  // namespace
}  // namespace sluice::test
