#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/cli/program.h"
#include "tests/cli/terminal.h"
#include "tests/support/golden.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

/// A session whose standard input is `lines`.
Ran session(const std::string& lines, const std::string& options = "") {
  const Folder folder;
  return run_shell("\"$SLUICE\" repl --tokens 256 " + options + " < " + folder.write("lines", lines) + " 2>&1");
}

TEST(Repl, PipedSessionsPrintPlainResults) {
  const Ran ran = session(R"(c.hi = c.k:max("token")
:shape c.hi
:shape q * c.hi
q:extent("dim") * 2
"text"
{}
function best(x)
  return x:max("head")
end
:shape best(q:dot(c.hi))
:graph best(q:dot(c.hi))
q:dot(c.hi, "token")
topk(q)
s = = 1
:help where_ge
:help topq
return sluice.topk(best(q:dot(c.hi)), { k = 64 })
:page 32
:flow
:reset
:flow
)");
  EXPECT_EQ(ran.exit_code, 0);
  // It shows no number that differs between processors: the selection covers all pages.
  testing::expect_golden("repl/session.txt", ran.out);
}

TEST(Repl, StrictSessionsFailIfALineFailed) {
  EXPECT_EQ(session("1 + 1\n", "--strict").exit_code, 0);
  const Ran failed = session("q:max('bad')\n1 + 1\n", "--strict");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_NE(failed.out.find("2\n"), std::string::npos) << "the session goes on";
  EXPECT_EQ(session("q:max('bad')\n").exit_code, 0);
  EXPECT_EQ(session("function f()\n", "--strict").exit_code, 1) << "the input ends in the middle";
  EXPECT_EQ(session(":quit\nq:max('bad')\n", "--strict").exit_code, 0) << "nothing is read after the end";
}

TEST(Repl, OptionsAreChecked) {
  for (const std::string options :
       {"--layer 8", "--head 2", "--task nothing", "--tokens 0", "--prompt x --task salad", "--prompt ''"}) {
    EXPECT_EQ(session("", options).exit_code, 1) << options;
  }
}

TEST(Repl, SavesThroughLinksAndDevices) {
  const Folder folder;
  folder.write("real.lua", "earlier");
  folder.write("saved.lua.part", "another's");
  fs::create_symlink("real.lua", folder.path("link.lua"));
  const Ran ran =
      session(":load quest\n:save " + folder.path("link.lua") + "\n:save " + folder.path("saved.lua") + "\n:save /dev/null\n",
              "--strict");
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_TRUE(fs::is_symlink(folder.path("link.lua")));
  EXPECT_EQ(run_sluice({"check", folder.path("real.lua")}).exit_code, 0);
  EXPECT_EQ(read_file(folder.path("saved.lua.part")), "another's");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(session(":load quest\n:save -\n", "--strict").exit_code, 1);
}

TEST(Repl, SavesWhatItLoads) {
  const Folder folder;
  const std::string file = folder.path("saved.lua");
  EXPECT_EQ(session(":load quest\n:save " + file + "\n:reset\n:load " + file + "\n", "--strict").exit_code, 0);
  EXPECT_EQ(run_sluice({"check", file}).exit_code, 0);
  EXPECT_EQ(session(":save " + folder.path("nowhere/saved.lua") + "\n", "--strict").exit_code, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path("")), {}), 1) << "nothing else is left";
}

/// A session on a terminal.
Terminal repl_on_terminal(const std::string& state_home, const std::string& tokens = "256") {
  return Terminal({SLUICE_PROGRAM, "repl", "--tokens", tokens}, {{"XDG_STATE_HOME", state_home}});
}

using ReplTerminal = TerminalTest;

/// 129 taps along a long axis, several times: with thousands of tokens it takes many seconds.
constexpr const char* kLongWork =
    "taps = {} for i = 1, 129 do taps[i] = 1 end  x = q * c.k  for i = 1, 7 do x = x:conv1d(taps, 'dim') end";

TEST_F(ReplTerminal, CompletesRecallsAndKeepsHistory) {
  const Folder state;
  {
    Terminal terminal = repl_on_terminal(state.path(""));
    ASSERT_TRUE(terminal.shows("> ")) << terminal.rest();
    terminal.type(":sh\t q:dot(c.k:mea\t(\"tok\t\")):max(\"he\t\")\r");
    ASSERT_TRUE(terminal.shows("[page 16]")) << terminal.rest();
    terminal.type("q:extent(\"d\t\")\r");
    ASSERT_TRUE(terminal.shows("\n64\r")) << terminal.rest();
    terminal.type("\x1b[A\r");  // up
    ASSERT_TRUE(terminal.shows("\n64\r")) << terminal.rest();
    ASSERT_TRUE(terminal.shows("> ")) << "between prompts the terminal itself would take the end of the input";
    EXPECT_EQ(terminal.exit_code("\x15\x04"), 0) << "an end that came too early may stand in the line: it is dropped first";
  }
  const std::string history = read_file(state.path("sluice/repl_history"));
  EXPECT_NE(history.find("extent"), std::string::npos) << history;
  Terminal again = repl_on_terminal(state.path(""));
  ASSERT_TRUE(again.shows("> ")) << again.rest();
  again.type("\x1b[A\r");
  ASSERT_TRUE(again.shows("\n64\r")) << again.rest();
}

TEST_F(ReplTerminal, ReadsStatementsOfSeveralLines) {
  const Folder state;
  Terminal terminal = repl_on_terminal(state.path(""));
  ASSERT_TRUE(terminal.shows("> ")) << terminal.rest();
  terminal.type("function twice(x)\r");
  ASSERT_TRUE(terminal.shows(".. ")) << terminal.rest();
  terminal.type("return x * 2\r");
  terminal.type("end\r");
  terminal.type("twice(21)\r");
  ASSERT_TRUE(terminal.shows("\n42\r")) << terminal.rest();
  terminal.type("function dropped(\r");
  ASSERT_TRUE(terminal.shows(".. ")) << terminal.rest();
  terminal.type("\x03");  // drops what was begun
  ASSERT_TRUE(terminal.shows("^C")) << terminal.rest();
  terminal.type("twice(4)\r");
  ASSERT_TRUE(terminal.shows("\n8\r")) << terminal.rest();
}

TEST_F(ReplTerminal, CtrlCEndsAnEvaluationAndNotTheSession) {
  const Folder state;
  Terminal terminal = repl_on_terminal(state.path(""), "4096");
  ASSERT_TRUE(terminal.shows("> ")) << terminal.rest();
  terminal.type(std::string(kLongWork) + "\r");
  ASSERT_TRUE(terminal.shows("> ")) << terminal.rest();
  terminal.type("x\r");
  ASSERT_TRUE(terminal.shows("\n")) << terminal.rest();
  bool interrupted = false;
  for (int i = 0; i < 30 && !interrupted; ++i) {  // what comes before the evaluation has begun is only a key
    terminal.type("\x03");
    interrupted = terminal.shows("interrupted", std::chrono::seconds(2));
  }
  ASSERT_TRUE(interrupted) << terminal.rest();
  terminal.type("6 * 7\r");
  ASSERT_TRUE(terminal.shows("\n42\r")) << terminal.rest();
}

}  // namespace
}  // namespace sluice::test
