#include "agents/harness/store_watch.h"

#include <atomic>
#include <thread>
#include <vector>

#include "agents/harness/store_events.h"
#include "tests/harness/harness_test.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

StoreWatch::Clock::time_point in(std::chrono::milliseconds time) { return StoreWatch::Clock::now() + time; }

class Watch : public testing::HarnessTest {
 protected:
  void happen() { store_->append_event("progress", std::nullopt, "{}"); }

  /// Waits until nothing new is told.
  static uint64_t settled(StoreWatch& watch) {
    uint64_t version = watch.wait(0, in(30s));  // the first look tells of all that was there
    for (uint64_t seen = version; (version = watch.wait(seen, in(100ms))) != seen; seen = version) {
    }
    return version;
  }
};

TEST_F(Watch, WakesAllWhoWaitWhenAnotherConnectionWrites) {
  StoreWatch watch(database_);
  const uint64_t seen = settled(watch);
  std::atomic<int> woken = 0;
  std::vector<std::thread> waiting;
  for (int i = 0; i < 20; ++i) {
    waiting.emplace_back([&] { woken += watch.wait(seen, in(30s)) != seen ? 1 : 0; });
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(woken, 0);
  happen();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(woken, 20);
}

TEST_F(Watch, WakesAtOnceWhenThisProcessWrites) {
  StoreWatch watch(database_);
  const uint64_t seen = settled(watch);
  std::thread later([&] { watch.wake(); });
  EXPECT_NE(watch.wait(seen, in(30s)), seen);
  later.join();
}

TEST_F(Watch, TellsOfWhatHappenedWhileNobodyWaited) {
  StoreWatch watch(database_);
  const uint64_t seen = settled(watch);
  happen();
  std::this_thread::sleep_for(100ms);
  EXPECT_NE(watch.wait(seen, in(30s)), seen);
}

TEST_F(Watch, WaitsNoLongerThanItIsTold) {
  StoreWatch watch(database_);
  const uint64_t seen = settled(watch);
  const auto started = StoreWatch::Clock::now();
  EXPECT_EQ(watch.wait(seen, in(100ms)), seen);
  EXPECT_GE(StoreWatch::Clock::now() - started, 100ms);
}

TEST_F(Watch, MissesNothingUnderManyWrites) {
  StoreWatch watch(database_);
  constexpr int kEvents = 300;
  std::vector<std::thread> readers;
  std::atomic<int> told = 0;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      StoreEvents events(database_, watch, 0);
      int lines = 0;
      const auto deadline = in(30s);
      while (lines < kEvents && StoreWatch::Clock::now() < deadline) {
        const std::string text = events.next(50ms).value();
        for (size_t at = text.find("event: progress"); at != std::string::npos; at = text.find("event: progress", at + 1))
          ++lines;
      }
      told += lines;
    });
  }
  for (int i = 0; i < kEvents; ++i) happen();
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(told, 4 * kEvents);
}

TEST_F(Watch, AStreamFromANumberThatIsNotReachedTellsWhatComesNext) {
  happen();
  StoreWatch watch(database_);
  StoreEvents events(database_, watch, 1'000'000);  // of a store that was restored from a backup
  EXPECT_EQ(events.next(0ms), "id: 1\n\n");
  EXPECT_EQ(events.next(0ms), "");
  happen();
  EXPECT_NE(events.next(30s).value().find("event: progress"), std::string::npos);
}

TEST_F(Watch, EndsCleanlyWhileNobodyWaits) {
  for (int i = 0; i < 20; ++i) {
    StoreWatch watch(database_);
    if (i % 2 == 0) watch.wait(watch.version(), in(1ms));
  }
}

}  // namespace
}  // namespace sluice
