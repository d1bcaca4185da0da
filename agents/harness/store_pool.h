#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/store.h"

namespace sluice {

/// Connections to one database, for threads that need one for a moment.
class StorePool {
 public:
  explicit StorePool(std::string database) : database_(std::move(database)) {}

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
  void give_back(std::unique_ptr<store::Store> store);

  const std::string database_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<store::Store>> idle_;
};

}  // namespace sluice
