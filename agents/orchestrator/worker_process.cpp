#include "agents/orchestrator/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "scripting/base/resource_error.h"

namespace sluice {
namespace {

/// Of the environment; nothing else, so that no secret of the server's reaches a candidate.
bool is_passed_on(std::string_view variable) {
  for (const std::string_view name :
       {"PATH=", "HOME=", "LD_LIBRARY_PATH=", "XDG_CACHE_HOME=", "TMPDIR=", "SLUICE_MODEL=", "SLUICE_CACHE_DIR="}) {
    if (variable.starts_with(name)) return true;
  }
  return variable.starts_with("CUDA_") || variable.starts_with("NVIDIA_") || variable.starts_with("LC_");
}

/// The name and the sign behind it.
std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=') + 1); }

/// `variables`, and of this process's what is passed on.
std::vector<std::string> environment_with(std::vector<std::string> variables) {
  const size_t given = variables.size();
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const auto is_same = [&](const std::string& other) { return name_of(other) == name_of(*variable); };
    if (is_passed_on(*variable) && std::none_of(variables.begin(), variables.begin() + static_cast<ptrdiff_t>(given), is_same)) {
      variables.emplace_back(*variable);
    }
  }
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  int read = -1;
  int write = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_system_error("pipe", errno);
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

class SpawnPlan {
 public:
  SpawnPlan(const Pipe& in, const Pipe& out) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_adddup2(&actions_, in.read, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, out.write, STDOUT_FILENO);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  pid_t spawn(std::vector<std::string> arguments, std::vector<std::string> environment) const {
    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, arguments.at(0).c_str(), &actions_, &attributes_, pointers_to(arguments).data(),
                                    pointers_to(environment).data());
    if (error != 0) throw_system_error("cannot start " + arguments.at(0), error);
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

WorkerProcess::WorkerProcess(const std::string& program, const std::vector<std::string>& arguments,
                             const std::vector<std::string>& variables)
    : reader_(-1, kMostMessageBytes) {
  Pipe in;
  Pipe out;
  std::vector<std::string> line{program};
  line.insert(line.end(), arguments.begin(), arguments.end());
  pid_ = SpawnPlan(in, out).spawn(std::move(line), environment_with(variables));
  in_ = std::exchange(in.write, -1);
  ::fcntl(in_, F_SETFL, ::fcntl(in_, F_GETFL) | O_NONBLOCK);  // a worker that does not read must not hold anybody up
  out_ = std::exchange(out.read, -1);
  reader_ = LineReader(out_, kMostMessageBytes);
}

WorkerProcess::~WorkerProcess() {
  kill();
  ::close(in_);
  ::close(out_);
}

bool WorkerProcess::is_running() const {
  siginfo_t ended{};
  return pid_ > 0 && ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
}

bool WorkerProcess::send(const WorkerJob& job, Deadline deadline) { return pid_ > 0 && write_line(in_, to_line(job), deadline); }

WorkerProcess::Outcome WorkerProcess::next(WorkerMessage& message, Deadline deadline) {
  std::string line;
  try {
    switch (reader_.next(line, deadline)) {
      case LineReader::Outcome::kEnd:
        return Outcome::kEnded;
      case LineReader::Outcome::kDeadline:
        return Outcome::kDeadline;
      case LineReader::Outcome::kLine:
        break;
    }
    message = parse_message(line);
    return Outcome::kMessage;
  } catch (const InputError&) {
    kill();
    return Outcome::kEnded;
  }
}

std::string WorkerProcess::kill() {
  if (pid_ <= 0) return {};
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // before it has its group
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFEXITED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

ExecutorFactory worker_processes(WorkerCommand command) {
  return [command = std::move(command)](int slot) -> std::unique_ptr<Executor> {
    std::vector<std::string> variables;
    if (!command.gpus.empty()) variables.push_back("CUDA_VISIBLE_DEVICES=" + command.gpus.at(static_cast<size_t>(slot)));
    return std::make_unique<WorkerProcess>(command.program, command.arguments, variables);
  };
}

}  // namespace sluice
