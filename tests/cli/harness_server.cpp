#include "tests/cli/harness_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

namespace sluice::test {
namespace {

/// The address that a server tells in its first line, which it writes to the file `output`. Throws if it tells none.
std::string told_address(pid_t server, const std::string& output) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::string said;
  while (!said.ends_with('\n')) {
    if (::waitpid(server, nullptr, WNOHANG) != 0) throw std::runtime_error("the server has ended: " + said);
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    said = read_file(output);
  }
  const size_t address = said.find("http://");
  if (address != std::string::npos && said.ends_with('\n')) return said.substr(address, said.size() - address - 1);
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  throw std::runtime_error("the server has not started: " + said);
}

}  // namespace

HarnessServer::HarnessServer() {
  std::string token = run_sluice({"agent", "add", "ada", "--data", data()}).out;
  if (token.empty()) throw std::runtime_error("no agent");
  token.pop_back();  // the end of the line
  const std::string output = folder_.write("output", "");
  process_ = ::fork();
  if (process_ == 0) {
    ::dup2(::open(output.c_str(), O_WRONLY), STDOUT_FILENO);
    ::execl(SLUICE_PROGRAM, "sluice", "serve", "--data", data().c_str(), "--port", "0", "--suite", "verify", "--threads", "1",
            "--quiet", nullptr);
    ::_exit(127);
  }
  variables_ = {{"SLUICE_SERVER", told_address(process_, output)}, {"SLUICE_TOKEN", token}};
}

HarnessServer::~HarnessServer() {
  ::kill(process_, SIGTERM);
  ::waitpid(process_, nullptr, 0);
}

Ran HarnessServer::run(const std::string& line) const {
  std::string exports = "sluice() { \"$SLUICE\" \"$@\"; }; ";
  for (const auto& [name, value] : variables_) exports += fmt::format("export {}={}; ", name, value);
  return run_shell(exports + line);
}

}  // namespace sluice::test
