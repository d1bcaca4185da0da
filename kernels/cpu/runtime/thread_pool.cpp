#include "kernels/cpu/runtime/thread_pool.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "scripting/base/error.h"

namespace sluice::cpu {
namespace {

constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kInside = kOpen - 1;
constexpr int kSpins = 4000;  // up to some 0.3 ms: longer than the gaps between the operations of one pass

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

int available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = available_cores();
  workers_.reserve(threads - 1);
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    stop();
    throw InputError(fmt::format("cannot start {} threads: {}", threads, error.what()), "use fewer threads");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_release);
  bell_.fetch_add(1, std::memory_order_release);
  bell_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_indices(int thread) {
  for (int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count_; i = next_.fetch_add(1, std::memory_order_relaxed)) {
    try {
      call_(context_, i, thread);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      next_.store(count_, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::run_erased(int most, int64_t count, Call call, void* context) {
  if (count <= 0) return;
  if (count == 1 || most == 1) {
    for (int64_t i = 0; i < count; ++i) call(context, i, 0);
    return;
  }
  call_ = call;
  context_ = context;
  most_ = most;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  const uint64_t generation = (gate_.load(std::memory_order_relaxed) >> 32) + 1;
  gate_.store(generation << 32 | kOpen, std::memory_order_release);
  bell_.fetch_add(1, std::memory_order_release);
  bell_.notify_all();

  take_indices(0);

  gate_.fetch_and(~kOpen, std::memory_order_relaxed);
  for (int spins = 0; (gate_.load(std::memory_order_acquire) & kInside) != 0; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      sched_yield();
    }
  }
  if (failed_.load()) {
    failed_.store(false);
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void ThreadPool::work(int thread) {
  uint64_t done = 0;  // the last generation that this worker took part in
  for (;;) {
    const uint32_t bell = bell_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_acquire)) return;
    uint64_t gate = gate_.load(std::memory_order_acquire);
    bool entered = false;
    for (int spins = 0; !entered; ++spins) {
      if ((gate & kOpen) != 0 && gate >> 32 != done) {
        entered = gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel, std::memory_order_acquire);
        continue;
      }
      if (spins >= kSpins || bell_.load(std::memory_order_relaxed) != bell) break;
      relax();
      gate = gate_.load(std::memory_order_acquire);
    }
    if (entered) {
      done = gate >> 32;
      if (thread < most_) take_indices(thread);
      gate_.fetch_sub(1, std::memory_order_release);
    } else {
      bell_.wait(bell, std::memory_order_acquire);
    }
  }
}

}  // namespace sluice::cpu
