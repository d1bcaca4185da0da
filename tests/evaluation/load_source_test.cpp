// Who else is busy on this machine, and the wait until nobody is.
#include "agents/evaluation/load_source.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace sluice::test {
namespace {

constexpr double kWatched = 0.4;  // seconds
// Processor time is counted in ticks of a hundredth of a second or more.
constexpr double kUnsharp = 0.3;

/// A process that computes, until this object ends.
class BusyChild {
 public:
  BusyChild() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::atomic<unsigned> counter = 0;; ++counter) {
    }
  }
  ~BusyChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  BusyChild(const BusyChild&) = delete;
  BusyChild& operator=(const BusyChild&) = delete;

  bool is_running() const { return pid_ > 0; }

 private:
  pid_t pid_;
};

double seconds_of_this_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(LinuxLoad, SeesAnotherProcess) {
  LinuxLoad source;
  const BusyChild child;
  ASSERT_TRUE(child.is_running());
  const auto before = source.read();
  if (!before) GTEST_SKIP() << "/proc/stat cannot be read";
  source.sleep(kWatched);
  const auto others = load_of_others(between(*before, source.read().value()));
  if (!others) GTEST_SKIP() << "nothing counts here";
  EXPECT_GE(others->busy, std::min(1.0, others->cores) - kUnsharp) << "it, or others that do not let it compute";
  EXPECT_LE(others->busy, others->cores + kUnsharp);
}

// On all cores, so that what they do is more than there is, if it counts for others as well.
TEST(LinuxLoad, DoesNotCountThreadsOfThisProcess) {
  LinuxLoad source;
  const auto before = source.read();
  if (!before) GTEST_SKIP() << "/proc/stat cannot be read";
  std::atomic<bool> ends = false;
  std::vector<double> seconds(static_cast<size_t>(before->cores));
  std::vector<std::thread> threads;
  for (double& own : seconds) {
    threads.emplace_back([&] {
      while (!ends) {
      }
      own = seconds_of_this_thread();
    });
  }
  source.sleep(kWatched);
  ends = true;
  for (std::thread& thread : threads) thread.join();
  const ProcessorTime period = between(*before, source.read().value());
  double of_threads = 0;
  for (const double own : seconds) of_threads += own;
  EXPECT_GE(period.own, 0.9 * of_threads);
  const auto others = load_of_others(period);
  if (!others) GTEST_SKIP() << "nothing counts here";
  EXPECT_LE(others->busy + period.own / period.seconds, others->cores + kUnsharp * period.cores);
}

class LinuxLoadIn : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(root_.path()) / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  /// A text of /proc/stat of more cores than any machine has.
  static std::string many_cores() {
    std::string text = "cpu 1 0 0 1\n";
    for (int core = 0; core < 1024; ++core) text += "cpu" + std::to_string(core) + " 100 0 0 300\n";
    return text;
  }

  testing::TemporaryDirectory root_;
};

TEST_F(LinuxLoadIn, IsUnknownWithoutFiles) {
  LinuxLoad source(root_.path());
  EXPECT_FALSE(source.read());
  EXPECT_EQ(wait_for_quiet(source, 1, 1), 0);
  write("proc/stat", "cpu 1 2 3 4\nnonsense\n");
  EXPECT_FALSE(source.read());
}

TEST_F(LinuxLoadIn, KnowsTheGroupThatAllowsLeast) {
  write("proc/stat", many_cores());
  write("proc/self/cgroup", "0::/service/worker\n");
  write("sys/fs/cgroup/service/cpu.max", "50000 100000\n");
  write("sys/fs/cgroup/service/cpu.stat", "usage_usec 3000000\n");
  write("sys/fs/cgroup/service/worker/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/service/worker/cpu.stat", "usage_usec 1000000\n");
  const auto time = LinuxLoad(root_.path()).read();
  ASSERT_TRUE(time);
  EXPECT_DOUBLE_EQ(time->on_cores.busy, time->cores);
  EXPECT_DOUBLE_EQ(time->on_cores.all, 4 * time->cores);
  ASSERT_TRUE(time->group);
  EXPECT_DOUBLE_EQ(time->group->cores, 0.5);
  EXPECT_DOUBLE_EQ(time->group->seconds, 3);
}

TEST_F(LinuxLoadIn, KnowsNoGroupThatAllowsAll) {
  write("proc/stat", many_cores());
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "900000000 100000\n");
  write("sys/fs/cgroup/cpu.stat", "usage_usec 1000000\n");
  const auto time = LinuxLoad(root_.path()).read();
  ASSERT_TRUE(time);
  EXPECT_FALSE(time->group);
}

/// Two cores in a time of its own, in which others keep so many of them busy until a moment.
class PlayedLoad final : public LoadSource {
 public:
  PlayedLoad(double busy, double until) : busy_(busy), until_(until) {}

  std::optional<ProcessorTime> read() override {
    ++reads;
    if (is_blind) return {};
    return now_;
  }
  void sleep(double seconds) override {
    now_.seconds += seconds;
    now_.on_cores.all += 2 * seconds;
    if (now_.seconds <= until_) now_.on_cores.busy += busy_ * seconds;
  }

  int reads = 0;
  bool is_blind = false;

 private:
  double busy_;
  double until_;
  ProcessorTime now_ = {.seconds = 0, .own = 0, .cores = 2, .on_cores = {}, .group = {}};
};

TEST(WaitForQuiet, TakesOneLookWhereThereIsQuiet) {
  PlayedLoad source(0.1, 100);
  EXPECT_NEAR(wait_for_quiet(source, 2, 10), kOneLook, 1e-9);
}

TEST(WaitForQuiet, EndsOnceThereIsQuiet) {
  PlayedLoad source(1.5, 2.05);
  const double waited = wait_for_quiet(source, 1, 10);
  EXPECT_GT(waited, 2);
  EXPECT_LT(waited, 2.3);
}

TEST(WaitForQuiet, EndsWithItsPatience) {
  PlayedLoad source(1.5, 100);
  EXPECT_NEAR(wait_for_quiet(source, 2, 3), 3, kOneLook + 1e-9);
  EXPECT_NEAR(wait_for_quiet(source, 2, kOneLook), kOneLook, 1e-9);
}

TEST(WaitForQuiet, DoesNotWaitForWhatNobodyWants) {
  PlayedLoad source(0.9, 100);
  EXPECT_NEAR(wait_for_quiet(source, 1, 10), kOneLook, 1e-9) << "the other core is idle";
}

TEST(WaitForQuiet, DoesNotLookWithoutPatienceNorWhereNothingIsKnown) {
  PlayedLoad source(2, 100);
  EXPECT_EQ(wait_for_quiet(source, 2, 0), 0);
  EXPECT_EQ(wait_for_quiet(source, 2, -5), 0);
  EXPECT_EQ(source.reads, 0);
  source.is_blind = true;
  EXPECT_EQ(wait_for_quiet(source, 2, 10), 0);
}

}  // namespace
}  // namespace sluice::test
