#include "tests/cli/terminal.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace sluice::test {
namespace {

constexpr std::chrono::minutes kPatience{2};  // sanitizers are slow

}  // namespace

Terminal::Terminal(std::vector<std::string> command, const std::map<std::string, std::string>& variables) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  winsize size{24, 100, 0, 0};
  process_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
  if (process_ != 0) return;
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  ::setenv("TERM", "xterm", 1);
  ::setenv("NO_COLOR", "1", 1);
  ::execv(arguments.front(), arguments.data());
  ::_exit(127);
}

Terminal::~Terminal() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ::close(terminal_);
}

void Terminal::type(const std::string& keys) const {
  ASSERT_EQ(::write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

bool Terminal::shows(const std::string& text, std::chrono::seconds most) {
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

std::optional<int> Terminal::exit_code(const std::string& key) {
  constexpr int kTries = 50;  // a second
  int status = 0;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (int attempt = 0; ::waitpid(process_, &status, WNOHANG) == 0; ++attempt) {
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
    if (attempt % kTries == 0 && !key.empty()) type(key);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  process_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void TerminalTest::SetUp() {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  const char* name = master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0 ? ::ptsname(master) : nullptr;
  const bool usable = name != nullptr && ::access(name, R_OK | W_OK) == 0;
  if (master >= 0) ::close(master);
  if (!usable) GTEST_SKIP() << "this machine has no pseudo-terminals";
}

}  // namespace sluice::test
