#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "store/store.h"

namespace sluice {

/// Connections to one database, for threads that need one for a moment. Those that nobody needed for `idle` are closed, one after
/// the other, as others come back: all who wait for verdicts need one at the same moment, again and again.
class StorePool {
 public:
  explicit StorePool(std::string database, std::chrono::milliseconds idle = std::chrono::seconds(30))
      : database_(std::move(database)), idle_time_(idle) {}

  /// A connection until this object ends.
  class Borrowed {
   public:
    Borrowed(StorePool& pool, std::unique_ptr<store::Store> store) : pool_(pool), store_(std::move(store)) {}
    ~Borrowed() { pool_.give_back(std::move(store_)); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    store::Store* operator->() const { return store_.get(); }
    store::Store& operator*() const { return *store_; }

   private:
    StorePool& pool_;
    std::unique_ptr<store::Store> store_;
  };

  /// Throws StoreError.
  Borrowed borrow();

 private:
  using Clock = std::chrono::steady_clock;
  struct Idle {
    std::unique_ptr<store::Store> store;
    Clock::time_point since;
  };

  void give_back(std::unique_ptr<store::Store> store);

  const std::string database_;
  const std::chrono::milliseconds idle_time_;
  std::mutex mutex_;
  std::deque<Idle> idle_;  // the one used last at the end, and borrowed first
};

}  // namespace sluice
