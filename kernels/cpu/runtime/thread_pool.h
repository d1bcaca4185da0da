#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::cpu {

/// Cores that this process may use (its affinity mask).
int available_cores();

/// Fork-join over an index range. The caller takes part; starting a range neither allocates nor locks. Idle workers spin
/// briefly, since the next operation of a pass comes within microseconds, and then sleep. One thread may call `run` at a
/// time, and not from within a body.
class ThreadPool {
 public:
  /// `threads` counts the caller; 0: all cores that this process may use. Throws InputError if the system refuses them.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls `body(index, thread)` once for every index in [0, count), thread in [0, threads()), in no order. Returns when
  /// all calls have; rethrows the first exception of a body.
  template <typename Body>
  void run(int64_t count, Body&& body) {
    run_within(threads(), count, std::forward<Body>(body));
  }

  /// The same on at most `most` threads, 1..threads(): thread in [0, most).
  template <typename Body>
  void run_within(int most, int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased(
        most, count, [](void* context, int64_t index, int thread) { (*static_cast<Plain*>(context))(index, thread); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, int64_t index, int thread);

  void run_erased(int most, int64_t count, Call call, void* context);
  void take_indices(int thread);
  void work(int thread);
  void stop();

  // The current range. Written only while no worker is inside it.
  Call call_ = nullptr;
  void* context_ = nullptr;
  int most_ = 1;
  int64_t count_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};

  // Generation of the range in the high half, then one bit that says whether it can be entered, then the number of
  // workers inside. A worker that wakes late finds the range closed and is not waited for.
  alignas(64) std::atomic<uint64_t> gate_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> bell_{0};  // changes with every range; sleepers wait on it
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace sluice::cpu
