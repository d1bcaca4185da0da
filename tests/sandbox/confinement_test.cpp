#include "sandbox/process/confinement.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "sandbox/process/child.h"
#include "sandbox/process/landlock.h"
#include "tests/sandbox/attempts.h"
#include "tests/sandbox/sandbox_limits.h"

namespace sluice::test {
namespace {

/// What `run` gives in a process of its own: an exit code, or 1000 and the signal.
template <typename Run>
int in_child(Run run) {
  const pid_t process = fork();
  if (process == 0) _exit(run());
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

class SystemCalls : public ::testing::TestWithParam<size_t> {};

TEST_P(SystemCalls, EndTheChild) {
  const Attempt& attempt = kAttempts[GetParam()];
  const SandboxLimits limits = limits_with({SLUICE_SANDBOX_PROBE, "try", std::to_string(GetParam())});
  const bool exists = attempt.name != k32BitCall || in_child([&] { return attempt.run(), 0; }) == 0;
  // To a kernel without that interface it is no call but a fault.
  const char* const wanted = exists ? "no flow may do" : "crashed";
  const std::string message = refusal("", limits);
  EXPECT_NE(message.find(wanted), std::string::npos) << attempt.name << ": " << message;
}

INSTANTIATE_TEST_SUITE_P(All, SystemCalls, ::testing::Range(size_t{0}, std::size(kAttempts)));

TEST(Confinement, ReportsItsLayers) {
  const SandboxLayers layers = sandbox_layers();
  EXPECT_TRUE(layers.seccomp);
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  EXPECT_EQ(layers.landlock > 0, version > 0) << "where the kernel has it, it is used";
}

TEST(Confinement, ChildIsBornWithThreeDescriptorsAndNoEnvironment) {
  // One that programs would inherit, and one at a high number.
  const int inherited = open("/dev/null", O_RDONLY);
  const int high = fcntl(inherited, F_DUPFD, 900);
  ASSERT_EQ(fcntl(inherited, F_GETFD), 0);
  ASSERT_EQ(setenv("SLUICE_SECRET", "token", 1), 0);
  ASSERT_EQ(unsetenv("LD_LIBRARY_PATH"), 0);
  const SandboxLimits limits = limits_with({SLUICE_SANDBOX_PROBE, "start"});
  EXPECT_EQ(refusal("", limits), "x.lua: 3 descriptors, variables (), own session");
  // Without it a program that came with its libraries could not start.
  ASSERT_EQ(setenv("LD_LIBRARY_PATH", "/nowhere", 1), 0);
  EXPECT_EQ(refusal("", limits), "x.lua: 3 descriptors, variables (LD_LIBRARY_PATH=/nowhere ), own session");
  ASSERT_EQ(unsetenv("LD_LIBRARY_PATH"), 0);
  close(inherited);
  close(high);
}

TEST(Confinement, LandlockAloneKeepsFilesShut) {
  const int result = in_child([] {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 2;
    if (deny_with_landlock() == 0) return 3;
    if (open("/etc/passwd", O_RDONLY) != -1 || errno != EACCES) return 4;
    return open("/tmp", O_TMPFILE | O_RDWR, 0600) == -1 && errno == EACCES ? 0 : 5;
  });
  if (result == 3) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(result, 0);
}

TEST(Confinement, ResourceLimitsAloneHold) {
  const ChildLimits limits = {size_t{256} << 20, 2};
  EXPECT_EQ(in_child([&] {
              limit_resources(limits);
              return open("/dev/null", O_RDONLY) == -1 && errno == EMFILE ? 0 : 1;
            }),
            0);
  EXPECT_EQ(in_child([&] {
              const int file = memfd_create("x", 0);
              limit_resources(limits);
              return static_cast<int>(write(file, "x", 1));
            }),
            1000 + SIGXFSZ);
  if (kIsSanitized) return;  // sanitizers reserve more than any limit allows
  EXPECT_EQ(in_child([&] {
              limit_resources(limits);
              void* block = mmap(nullptr, size_t{300} << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              return block == MAP_FAILED && errno == ENOMEM ? 0 : 1;
            }),
            0);
}

TEST(Confinement, ProcessorTimeEndsAChildWhoseParentSleeps) {
  EXPECT_EQ(in_child([] {
              limit_resources({size_t{256} << 20, 1});
              while (true) {
              }
              return 0;
            }),
            1000 + SIGXCPU);
}

/// Becomes a program that has `input` and `output` as its standard streams.
[[noreturn]] void become(std::vector<std::string> words, int input, int output) {
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(1);
}

TEST(Confinement, ChildDiesWithItsParent) {
  int requests[2];
  int answers[2];
  ASSERT_EQ(pipe2(requests, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(answers, O_CLOEXEC), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    std::vector<std::string> words = child_arguments({size_t{256} << 20, 100});
    words.insert(words.begin(), "/proc/self/exe");
    if (fork() == 0) become(words, requests[0], answers[1]);
    pause();
  }
  close(answers[1]);
  char bytes[4096];
  ASSERT_GT(read(answers[0], bytes, sizeof(bytes)), 0) << "the greeting";
  // The child waits for a request that never comes, since this process keeps the other end open.
  kill(parent, SIGKILL);
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
  pollfd watched = {answers[0], POLLIN, 0};
  ASSERT_EQ(poll(&watched, 1, 10000), 1) << "the child lives on";
  EXPECT_EQ(read(answers[0], bytes, sizeof(bytes)), 0);
  for (const int end : {requests[0], requests[1], answers[0]}) close(end);
}

}  // namespace
}  // namespace sluice::test
