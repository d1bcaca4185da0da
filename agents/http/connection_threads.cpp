#include "agents/http/connection_threads.h"

#include <system_error>
#include <utility>

namespace sluice {

ConnectionThreads::ConnectionThreads(int most) { threads_.reserve(static_cast<size_t>(most)); }

bool ConnectionThreads::start_one() {
  if (threads_.size() == threads_.capacity()) return false;
  try {
    threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error&) {
    return false;  // a limit of the process, or no memory for a stack
  }
  ++free_;
  return true;
}

void ConnectionThreads::enqueue(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (free_ > 0 || start_one()) {
      --free_;
      waiting_.push_back(std::move(work));
      work = nullptr;
    }
  }
  if (work) return work();
  changed_.notify_one();
}

void ConnectionThreads::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    lock.lock();
    ++free_;
  }
}

void ConnectionThreads::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace sluice
