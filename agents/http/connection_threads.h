#pragma once

#include <httplib.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice {

/// Threads for connections, one each. They are started as connections come that find none free, and kept. What finds none
/// although there are as many as there may be, or the system gives no more, runs in the thread that brings it, where it is to be
/// refused at once: a queue would hold connections that nobody serves.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(int most);

  void enqueue(std::function<void()> work) override;
  /// Waits for what runs.
  void shutdown() override;

 private:
  bool start_one();
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
  std::deque<std::function<void()>> waiting_;  // for a thread that is free
  int free_ = 0;                               // threads that nothing waits for
  bool stopping_ = false;
};

}  // namespace sluice
