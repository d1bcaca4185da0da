#include "host/serving/block_pool.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {

BlockPool::BlockPool(int pages) : users_(static_cast<size_t>(pages), kFree) {
  free_.reserve(users_.size());
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
}

int32_t BlockPool::allocate() {
  if (free_.empty()) return -1;
  const int32_t page = free_.back();
  free_.pop_back();
  users_[static_cast<size_t>(page)] = 1;
  return page;
}

void BlockPool::retain(int32_t page) {
  int32_t& users = users_[static_cast<size_t>(page)];
  if (users == kFree) throw InternalError(fmt::format("page {} is free, and was to have a user more", page));
  ++users;
}

int BlockPool::release(int32_t page) {
  int32_t& users = users_[static_cast<size_t>(page)];
  if (users <= 0) throw InternalError(fmt::format("page {} was released without a user", page));
  return --users;
}

void BlockPool::recycle(int32_t page) {
  int32_t& users = users_[static_cast<size_t>(page)];
  if (users == kFree) throw InternalError(fmt::format("page {} was recycled twice", page));
  if (users != 0) throw InternalError(fmt::format("page {} was recycled with {} users", page, users));
  users = kFree;
  free_.push_back(page);
}

}  // namespace sluice
