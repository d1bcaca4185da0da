#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "store/store.h"

namespace sluice {

/// Tells threads that something happened in a store, whichever process did it: one thread looks at the number of the last event
/// while anybody waits, instead of each of them at the database. Any number of threads may use it.
class StoreWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StoreWatch(const std::string& database);
  ~StoreWatch();
  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;

  /// A number that rises with what happens. Ask for it before you read the database: then nothing is missed that `wait` is to
  /// tell of.
  uint64_t version() const;
  /// Waits until the version is another one than `seen`, or for `deadline`. The version.
  uint64_t wait(uint64_t seen, Clock::time_point deadline);
  /// This process has written: those that wait need not wait for the next look.
  void wake();

 private:
  void look();
  int64_t last_event();

  store::Store store_;  // of the thread
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for those that wait
  std::condition_variable wanted_;   // for the thread
  uint64_t version_ = 0;
  int waiting_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace sluice
