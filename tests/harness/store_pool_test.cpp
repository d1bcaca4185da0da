#include "agents/harness/store_pool.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/harness/harness_test.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

class Pool : public testing::HarnessTest {
 protected:
  /// How many connections of this process have the database's log open: SQLite shares and keeps its other files.
  int64_t connections() const {
    const std::filesystem::directory_iterator descriptors("/proc/self/fd");
    return std::count_if(begin(descriptors), end(descriptors), [&](const auto& descriptor) {
      std::error_code gone;
      return std::filesystem::read_symlink(descriptor, gone) == database_ + "-wal";
    });
  }

  /// Borrows so many at once, and gives them back. How many connections there were.
  int64_t borrowed_at_once(StorePool& pool, int count) {
    const auto store = pool.borrow();
    store->last_event();
    return count > 1 ? borrowed_at_once(pool, count - 1) : connections();
  }
};

TEST_F(Pool, ABurstLeavesNoConnectionsForLong) {
  StorePool pool(database_, 100ms);
  store_.reset();
  EXPECT_EQ(borrowed_at_once(pool, 40), 40);
  std::this_thread::sleep_for(150ms);
  for (int i = 0; i < 60; ++i) borrowed_at_once(pool, 1);
  EXPECT_LE(connections(), 1);
  EXPECT_EQ(borrowed_at_once(pool, 20), 20) << "others are made again";
}

TEST_F(Pool, BurstAfterBurstTakesTheSameConnections) {
  StorePool pool(database_);
  store_.reset();
  borrowed_at_once(pool, 40);
  for (int i = 0; i < 60; ++i) borrowed_at_once(pool, 1);
  EXPECT_EQ(connections(), 40);
}

}  // namespace
}  // namespace sluice
