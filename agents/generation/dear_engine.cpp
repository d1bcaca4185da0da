#include "agents/generation/dear_engine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <utility>

namespace sluice {
namespace {

constexpr const char* kFailed = "the engine failed; the server's log tells more";

/// The calling thread, and those that it starts, run when others leave time.
void give_way() {
  constexpr int kNice = 10;  // a tenth of what a usual thread gets beside it
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

}  // namespace

DearEngine::DearEngine(std::string flow, int threads, const Make& make, std::function<void()> changed)
    : flow_(std::move(flow)), changed_(std::move(changed)) {
  std::promise<void> made;
  std::future<void> ready = made.get_future();
  thread_ = std::thread([this, threads, &make, made = std::move(made)]() mutable {
    std::unique_ptr<Device> device;
    std::unique_ptr<EngineSlot> slot;
    try {
      give_way();
      device = create_device("cpu", threads);
      slot = make(*device);
      report(*slot);
    } catch (...) {
      made.set_exception(std::current_exception());
      return;
    }
    made.set_value();
    run(*slot);
    slot.reset();  // before its device
  });
  try {
    ready.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

DearEngine::~DearEngine() {
  if (thread_.joinable()) fail_all(status_, message_);
}

bool DearEngine::busy() const {
  const std::lock_guard lock(mutex_);
  return !unended_.empty();
}

GenerationClock::time_point DearEngine::last_used() const {
  const std::lock_guard lock(mutex_);
  return last_used_;
}

EngineStats DearEngine::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void DearEngine::submit(LiveTask& live) {
  const std::lock_guard lock(mutex_);
  last_used_ = GenerationClock::now();
  unended_.push_back(live.id);
  mail_.tasks.push_back(std::move(live));
  arrived_.notify_one();
}

bool DearEngine::cancel(uint64_t id, bool stopped) {
  const std::lock_guard lock(mutex_);
  if (std::find(unended_.begin(), unended_.end(), id) == unended_.end()) return false;
  mail_.cancellations.push_back({id, stopped});
  arrived_.notify_one();
  return true;
}

void DearEngine::step() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

int DearEngine::fail_all(int status, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    status_ = status;
    message_ = message;
    mail_.stop = true;
    arrived_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  return take_ended();
}

int DearEngine::take_ended() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_, 0);
}

DearEngine::Mail DearEngine::take_mail(bool waits) {
  std::unique_lock lock(mutex_);
  const auto arrived = [&] { return mail_.stop || !mail_.tasks.empty() || !mail_.cancellations.empty(); };
  if (waits) arrived_.wait(lock, arrived);
  return std::exchange(mail_, {});
}

void DearEngine::run(EngineSlot& slot) {
  for (bool failed = false;;) {
    Mail mail = take_mail(failed || !slot.busy());
    if (mail.stop) {
      for (const LiveTask& task : mail.tasks) task.fail(status_, message_);
      return end(slot);
    }
    if (failed) {  // until its owner has seen it
      for (const LiveTask& task : mail.tasks) task.fail(500, kFailed);
      continue;
    }
    size_t submitted = 0;
    try {
      for (; submitted < mail.tasks.size(); ++submitted) slot.submit(mail.tasks[submitted]);
      for (const Cancellation& cancellation : mail.cancellations) slot.cancel(cancellation.id, cancellation.stopped);
      if (slot.busy()) slot.step();
      report(slot);
    } catch (...) {
      failed = true;
      for (; submitted < mail.tasks.size(); ++submitted) {
        mail.tasks[submitted].fail(500, kFailed);
      }
      {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      changed_();
    }
  }
}

void DearEngine::report(EngineSlot& slot) {
  const int ended = slot.take_ended();
  const EngineStats stats = slot.stats();
  {
    const std::lock_guard lock(mutex_);
    stats_ = stats;
    last_used_ = GenerationClock::now();
    ended_ += ended;
    std::erase_if(unended_, [&](uint64_t id) {
      const bool waits = std::any_of(mail_.tasks.begin(), mail_.tasks.end(), [&](const LiveTask& task) { return task.id == id; });
      return !waits && !slot.has(id);
    });
  }
  if (ended > 0) changed_();
}

void DearEngine::end(EngineSlot& slot) {
  slot.fail_all(status_, message_);
  const std::lock_guard lock(mutex_);
  ended_ += static_cast<int>(unended_.size());
  unended_.clear();
}

}  // namespace sluice
