#include "agents/harness/store_watch.h"

#include <spdlog/spdlog.h>

#include <exception>

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kPeriod{25};
constexpr std::chrono::seconds kAfterError{1};

}  // namespace

StoreWatch::StoreWatch(const std::string& database) : store_(database), thread_([this] { look(); }) {}

StoreWatch::~StoreWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wanted_.notify_all();
  thread_.join();
}

uint64_t StoreWatch::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

uint64_t StoreWatch::wait(uint64_t seen, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (++waiting_ == 1) wanted_.notify_all();
  changed_.wait_until(lock, deadline, [&] { return version_ != seen; });
  --waiting_;
  return version_;
}

void StoreWatch::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++version_;
  }
  changed_.notify_all();
}

/// The number of the last event; -1 if it cannot be read just now.
int64_t StoreWatch::last_event() {
  try {
    return store_.last_event();
  } catch (const std::exception& error) {
    spdlog::error("watching the store: {}", error.what());
    return -1;
  }
}

void StoreWatch::look() {
  int64_t last = -1;
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [&] { return stopping_ || waiting_ > 0; });
    if (stopping_) return;
    lock.unlock();
    const int64_t now = last_event();
    lock.lock();
    if (now != last && now >= 0) {
      last = now;
      ++version_;
      changed_.notify_all();
    }
    wanted_.wait_for(lock, now < 0 ? Clock::duration(kAfterError) : Clock::duration(kPeriod), [&] { return stopping_; });
  }
}

}  // namespace sluice
