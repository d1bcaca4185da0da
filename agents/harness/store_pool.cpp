#include "agents/harness/store_pool.h"

#include <utility>

namespace sluice {

StorePool::Borrowed StorePool::borrow() {
  std::unique_ptr<store::Store> store;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      store = std::move(idle_.back().store);
      idle_.pop_back();
    }
  }
  if (store == nullptr) store = std::make_unique<store::Store>(database_);
  return {*this, std::move(store)};
}

void StorePool::give_back(std::unique_ptr<store::Store> store) {
  std::unique_ptr<store::Store> unused;  // is closed without the lock
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  idle_.push_back({std::move(store), now});
  if (now - idle_.front().since < idle_time_) return;
  unused = std::move(idle_.front().store);
  idle_.pop_front();
}

}  // namespace sluice
