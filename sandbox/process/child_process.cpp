#include "sandbox/process/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "sandbox/process/file_descriptor.h"
#include "scripting/base/resource_error.h"

namespace sluice {

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what, int error) { throw_system_error(std::string("sandbox: ") + what, error); }

/// posix_spawn and its relatives return an error number.
void check(int error, const char* what) {
  if (error != 0) fail(what, error);
}

/// A file without a name that holds `content` and can no longer change. Unlike a pipe it takes any length at once.
FileDescriptor sealed_file(std::string_view content) {
  FileDescriptor file(memfd_create("sluice-request", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) fail("memfd_create", errno);
  size_t written = 0;
  while (written < content.size()) {
    const ssize_t more = pwrite(file.get(), content.data() + written, content.size() - written, static_cast<off_t>(written));
    if (more < 0 && errno != EINTR) fail("the request cannot be written", errno);
    if (more > 0) written += static_cast<size_t>(more);
  }
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) fail("seals", errno);
  return file;
}

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;

  Pipe() {
    std::array<int, 2> ends;
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe", errno);
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }
};

/// Descriptors of the child: three, whatever this process has open.
class FileActions {
 public:
  FileActions(int input, int output) {
    check(posix_spawn_file_actions_init(&actions_), "posix_spawn");
    check(posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO), "posix_spawn");
    check(posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO), "posix_spawn");
    check(posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0), "posix_spawn");
    check(posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1), "posix_spawn");
  }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

/// A session of its own, so that its group can be killed, and signals as a new process has them.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    check(posix_spawnattr_init(&attributes_), "posix_spawn");
    check(posix_spawnattr_setsigmask(&attributes_, &none), "posix_spawn");
    check(posix_spawnattr_setsigdefault(&attributes_, &all), "posix_spawn");
    check(posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF),
          "posix_spawn");
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

/// Words as C wants them; they must outlive what is returned.
std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// Only what the loader needs to find the program's libraries where they are not installed (./dev pack).
std::vector<std::string> child_environment() {
  constexpr const char* kLibraries = "LD_LIBRARY_PATH";
  const char* libraries = std::getenv(kLibraries);
  if (libraries == nullptr) return {};
  return {fmt::format("{}={}", kLibraries, libraries)};
}

/// A running child; none outlives this object.
class ChildProcess {
 public:
  ChildProcess(const std::vector<std::string>& words, const FileDescriptor& input, const FileDescriptor& output) {
    const std::vector<std::string> environment = child_environment();
    const FileActions actions(input.get(), output.get());
    const SpawnAttributes attributes;
    check(posix_spawn(&process_, words.front().c_str(), actions.get(), attributes.get(), pointers_to(words).data(),
                      pointers_to(environment).data()),
          "the child cannot be started");
  }
  ~ChildProcess() { end(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Kills what is left of the group and returns the child's status. A child that has ended or is ending keeps its own.
  int end() {
    if (process_ <= 0) return status_;
    kill(-process_, SIGKILL);
    while (waitpid(process_, &status_, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return status_;
  }

 private:
  pid_t process_ = -1;
  int status_ = 0;
};

/// Milliseconds for poll, rounded up; 0 when the time is over.
int time_left(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

/// Waits until something can be read or the other side has closed; false if the deadline comes first.
bool wait_for_output(const FileDescriptor& from, Clock::time_point deadline) {
  while (true) {
    const int left = time_left(deadline);
    pollfd watched = {from.get(), POLLIN, 0};
    const int ready = left == 0 ? 0 : poll(&watched, 1, left);
    if (ready > 0) return true;
    if (left == 0) return false;
    if (ready < 0 && errno != EINTR) fail("poll", errno);
  }
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

ChildOutcome::End read_output(const FileDescriptor& from, const ChildCommand& command, std::string& output) {
  std::array<char, size_t{16} << 10> buffer;
  Clock::time_point deadline = after(command.start_seconds);
  while (wait_for_output(from, deadline)) {
    const ssize_t size = read(from.get(), buffer.data(), buffer.size());
    if (size == 0) return ChildOutcome::End::kByItself;
    if (size < 0 && errno != EINTR) fail("the answer cannot be read", errno);
    if (size > 0 && output.empty()) deadline = after(command.seconds);
    if (size > 0) output.append(buffer.data(), static_cast<size_t>(size));
    if (output.size() > command.most_output) return ChildOutcome::End::kTooMuchOutput;
  }
  return ChildOutcome::End::kOutOfTime;
}

}  // namespace

ChildOutcome run_child(const ChildCommand& command) {
  FileDescriptor input = sealed_file(command.input);
  Pipe pipe;
  ChildProcess child(command.words, input, pipe.write_end);
  // Else the end of the child's output would never come.
  pipe.write_end.close();
  ChildOutcome outcome;
  outcome.end = read_output(pipe.read_end, command, outcome.output);
  outcome.status = child.end();
  return outcome;
}

}  // namespace sluice
