#include "agents/harness/store_pool.h"

#include <utility>

namespace sluice {

StorePool::Borrowed StorePool::borrow() {
  std::unique_ptr<store::Store> store;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      store = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (store == nullptr) store = std::make_unique<store::Store>(database_);
  return {*this, std::move(store)};
}

void StorePool::give_back(std::unique_ptr<store::Store> store) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(store));
}

}  // namespace sluice
