#include "agents/http/connection_threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <latch>
#include <set>
#include <string>

#include "tests/support/sanitized.h"

namespace sluice::test {
namespace {

/// What came of `count` pieces of work that last until all have been brought: how many ran in the thread that brought them.
int run_in_caller(ConnectionThreads& threads, int count) {
  std::latch brought(1);
  std::atomic<int> in_caller = 0;
  const auto caller = std::this_thread::get_id();
  for (int i = 0; i < count; ++i) {
    threads.enqueue([&] {
      if (std::this_thread::get_id() == caller) {
        ++in_caller;
      } else {
        brought.wait();
      }
    });
  }
  brought.count_down();
  threads.shutdown();
  return in_caller;
}

TEST(ConnectionThreads, AreAsManyAsWorkThatLastsAndNoMoreThanTheyMayBe) {
  ConnectionThreads four(4);
  EXPECT_EQ(run_in_caller(four, 3), 0);
  ConnectionThreads again(4);
  EXPECT_EQ(run_in_caller(again, 10), 6);
  ConnectionThreads none(0);
  EXPECT_EQ(run_in_caller(none, 2), 2);
}

TEST(ConnectionThreads, ServeOneAfterTheOther) {
  ConnectionThreads threads(3);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> done = 0;
  for (int i = 0; i < 1000; ++i) {
    threads.enqueue([&] {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
      ++done;
    });
  }
  threads.shutdown();
  EXPECT_EQ(done, 1000);
  EXPECT_LE(seen.size(), 4U) << "three, and the one that brings";
}

TEST(ConnectionThreads, WorkRunsInTheCallerWhereTheSystemGivesNoThreads) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers reserve more than any limit";
  const pid_t process = fork();
  if (process == 0) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (size_t{40} << 20);  // a few stacks
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    ConnectionThreads threads(200);
    const int in_caller = run_in_caller(threads, 200);
    _exit(in_caller > 100 && in_caller < 200 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace sluice::test
