#include "host/serving/block_pool.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {

BlockPool::BlockPool(int pages) : users_(static_cast<size_t>(pages), 0) {
  free_.reserve(users_.size());
  add(0, pages);
}

BlockPool BlockPool::empty(int limit) {
  BlockPool pool;
  pool.users_.resize(static_cast<size_t>(limit), 0);
  pool.free_.reserve(pool.users_.size());
  return pool;
}

void BlockPool::add(int32_t first, int count) {
  for (int32_t page = first + count - 1; page >= first; --page) free_.push_back(page);
}

void BlockPool::withdraw(int32_t first, int count) {
  const auto is_one = [=](int32_t page) { return page >= first && page < first + count; };
  const auto withdrawn = std::erase_if(free_, is_one);
  if (withdrawn != static_cast<size_t>(count)) {
    throw InternalError(fmt::format("of pages {} to {} only {} are free", first, first + count - 1, withdrawn));
  }
}

int32_t BlockPool::allocate() {
  if (free_.empty()) return -1;
  const int32_t page = free_.back();
  free_.pop_back();
  users_[static_cast<size_t>(page)] = 1;
  return page;
}

void BlockPool::retain(int32_t page) { ++users_[static_cast<size_t>(page)]; }

int BlockPool::release(int32_t page) {
  int32_t& users = users_[static_cast<size_t>(page)];
  if (users <= 0) throw InternalError(fmt::format("page {} was released without a user", page));
  return --users;
}

void BlockPool::recycle(int32_t page) {
  if (users(page) != 0) throw InternalError(fmt::format("page {} was recycled with {} users", page, users(page)));
  if (free_.size() == users_.size()) throw InternalError(fmt::format("page {} was recycled twice", page));
  free_.push_back(page);
}

}  // namespace sluice
