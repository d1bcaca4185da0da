#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include "tests/cli/program.h"
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
  for (const std::string options : {"--layer 8", "--head 2", "--task nothing", "--tokens 0", "--prompt '' --task salad"}) {
    EXPECT_EQ(session("", options).exit_code, 1) << options;
  }
}

TEST(Repl, SavesWhatItLoads) {
  const Folder folder;
  const std::string file = folder.path("saved.lua");
  EXPECT_EQ(session(":load quest\n:save " + file + "\n:reset\n:load " + file + "\n", "--strict").exit_code, 0);
  EXPECT_EQ(run_sluice({"check", file}).exit_code, 0);
  EXPECT_EQ(session(":save " + folder.path("nowhere/saved.lua") + "\n", "--strict").exit_code, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path("")), {}), 1) << "nothing else is left";
}

/// The program on a terminal of its own.
class Terminal {
 public:
  explicit Terminal(const std::string& state_home, const char* tokens = "256") {
    winsize size{24, 100, 0, 0};
    process_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (process_ != 0) return;
    ::setenv("XDG_STATE_HOME", state_home.c_str(), 1);
    ::setenv("TERM", "xterm", 1);
    ::setenv("NO_COLOR", "1", 1);
    ::execl(SLUICE_PROGRAM, "sluice", "repl", "--tokens", tokens, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ~Terminal() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    ::close(terminal_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const {
    ASSERT_EQ(::write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  /// Reads until `text` has been printed since the last call; false if it is not within `most`.
  bool shows(const std::string& text, std::chrono::seconds most = std::chrono::minutes(1)) {
    const auto deadline = std::chrono::steady_clock::now() + most;
    while (std::chrono::steady_clock::now() < deadline) {
      if (const size_t at = seen_.find(text); at != std::string::npos) {
        seen_.erase(0, at + text.size());
        return true;
      }
      fd_set ready;
      FD_ZERO(&ready);
      FD_SET(terminal_, &ready);
      timeval wait{1, 0};
      if (::select(terminal_ + 1, &ready, nullptr, nullptr, &wait) <= 0) continue;
      char buffer[4096];
      const ssize_t count = ::read(terminal_, buffer, sizeof buffer);
      if (count <= 0) break;
      seen_.append(buffer, static_cast<size_t>(count));
    }
    return false;
  }
  const std::string& rest() const { return seen_; }

  /// Its exit code; none if it has not ended within a minute.
  std::optional<int> exit_code() {
    int status = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (::waitpid(process_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(milliseconds(20));
    }
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  int terminal_ = -1;
  pid_t process_ = 0;
  std::string seen_;
};

/// Sessions on a pseudo-terminal, where the machine has any.
class ReplTerminal : public ::testing::Test {
 protected:
  void SetUp() override {
    const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
    const char* name = master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0 ? ::ptsname(master) : nullptr;
    const bool usable = name != nullptr && ::access(name, R_OK | W_OK) == 0;
    if (master >= 0) ::close(master);
    if (!usable) GTEST_SKIP() << "this machine has no pseudo-terminals";
  }
};

/// 129 taps along a long axis, several times: with thousands of tokens it takes many seconds.
constexpr const char* kLongWork =
    "taps = {} for i = 1, 129 do taps[i] = 1 end  x = q * c.k  for i = 1, 7 do x = x:conv1d(taps, 'dim') end";

TEST_F(ReplTerminal, CompletesRecallsAndKeepsHistory) {
  const Folder state;
  {
    Terminal terminal(state.path(""));
    ASSERT_TRUE(terminal.shows("> ")) << terminal.rest();
    terminal.type(":sh\t q:dot(c.k:mea\t(\"tok\t\")):max(\"he\t\")\r");
    ASSERT_TRUE(terminal.shows("[page 16]")) << terminal.rest();
    terminal.type("q:extent(\"d\t\")\r");
    ASSERT_TRUE(terminal.shows("\n64\r")) << terminal.rest();
    terminal.type("\x1b[A\r");  // up
    ASSERT_TRUE(terminal.shows("\n64\r")) << terminal.rest();
    ASSERT_TRUE(terminal.shows("> ")) << "between prompts the terminal itself would take the end of the input";
    terminal.type("\x04");
    EXPECT_EQ(terminal.exit_code(), 0);
  }
  const std::string history = read_file(state.path("sluice/repl_history"));
  EXPECT_NE(history.find("extent"), std::string::npos) << history;
  Terminal again(state.path(""));
  ASSERT_TRUE(again.shows("> ")) << again.rest();
  again.type("\x1b[A\r");
  ASSERT_TRUE(again.shows("\n64\r")) << again.rest();
}

TEST_F(ReplTerminal, ReadsStatementsOfSeveralLines) {
  const Folder state;
  Terminal terminal(state.path(""));
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
  Terminal terminal(state.path(""), "4096");
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
