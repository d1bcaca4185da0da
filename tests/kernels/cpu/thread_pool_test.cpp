#include "kernels/cpu/runtime/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <stdexcept>

namespace sluice::cpu {
namespace {

TEST(ThreadPool, CallsEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t count : {0, 1, 2, 3, 100, 4097}) {
      std::vector<int> calls(count);
      std::atomic<int> outside{0};
      pool.run(count, [&](int64_t index, int thread) {
        ++calls[index];
        if (thread < 0 || thread >= threads) ++outside;
      });
      EXPECT_EQ(calls, std::vector<int>(count, 1));
      EXPECT_EQ(outside, 0);
    }
  }
}

TEST(ThreadPool, SeesWhatTheRangeBeforeWrote) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> next(values.size());
    pool.run(static_cast<int64_t>(values.size()), [&](int64_t i, int) { next[i] = values[(i + 1) % values.size()] + 1; });
    values = next;
  }
  EXPECT_EQ(values, std::vector<int64_t>(64, 2001));
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> calls{0};
    pool.run(50, [&](int64_t, int) { ++calls; });
    EXPECT_EQ(calls, 50);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(ThreadPool, UsesSeveralThreads) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  // Each of the two bodies waits for the other, so one thread alone would never end.
  pool.run(2, [&](int64_t, int) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, KeepsARangeWithinSomeThreads) {
  ThreadPool pool(4);
  for (int most = 1; most <= 4; ++most) {
    for (int round = 0; round < 50; ++round) {
      std::vector<int> calls(200);
      std::atomic<int> outside{0};
      pool.run_within(most, 200, [&](int64_t index, int thread) {
        ++calls[index];
        if (thread >= most) ++outside;
      });
      EXPECT_EQ(calls, std::vector<int>(200, 1));
      EXPECT_EQ(outside, 0);
    }
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.run(100,
                          [](int64_t index, int) {
                            if (index % 10 == 3) throw std::runtime_error("three");
                          }),
                 std::runtime_error);
    std::atomic<int> calls{0};
    pool.run(100, [&](int64_t, int) { ++calls; });
    EXPECT_EQ(calls, 100);
  }
}

TEST(ThreadPool, TakesTheCoresOfTheProcess) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_EQ(ThreadPool().threads(), available_cores());
}

}  // namespace
}  // namespace sluice::cpu
