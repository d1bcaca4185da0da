#include "agents/generation/dear_engine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
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

DearEngine::DearEngine(std::string flow, MakeDevice make_device, Make make, std::function<void()> changed)
    : flow_(std::move(flow)), make_device_(std::move(make_device)), make_(std::move(make)), changed_(std::move(changed)) {
  thread_ = std::thread([this] { run(); });
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

bool DearEngine::step() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return true;
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

TaskMail DearEngine::take_mail(bool waits) {
  std::unique_lock lock(mutex_);
  if (waits) arrived_.wait(lock, [&] { return !mail_.empty(); });
  return std::exchange(mail_, {});
}

void DearEngine::run() {
  give_way();
  std::unique_ptr<Device> device;
  std::unique_ptr<EngineSlot> slot;
  for (bool failed = false;;) {
    TaskMail mail = take_mail(failed || !slot || !slot->busy());
    if (mail.stop) {
      for (const LiveTask& task : mail.tasks) task.fail(status_, message_);
      return end(slot.get());
    }
    if (failed) {  // until its owner has seen it
      for (const LiveTask& task : mail.tasks) task.fail(500, kFailed);
      continue;
    }
    if (!slot && mail.tasks.empty()) continue;  // who is cancelled has been told that there is no engine
    try {
      if (!device) device = make_device_();
      if (!slot) slot = make_(*device);
    } catch (const std::exception& error) {
      for (const LiveTask& task : mail.tasks) task.fail(error);
      report(nullptr, static_cast<int>(mail.tasks.size()));
      continue;
    }
    size_t submitted = 0;
    try {
      for (; submitted < mail.tasks.size(); ++submitted) slot->submit(mail.tasks[submitted]);
      for (const TaskMail::Cancellation& cancellation : mail.cancellations) slot->cancel(cancellation.id, cancellation.stopped);
      if (slot->busy()) slot->step();
      const EngineStats stats = slot->stats();
      {
        const std::lock_guard lock(mutex_);
        stats_ = stats;
      }
      report(slot.get(), slot->take_ended());
    } catch (...) {
      failed = true;
      for (; submitted < mail.tasks.size(); ++submitted) mail.tasks[submitted].fail(500, kFailed);
      {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      changed_();
    }
  }
}

void DearEngine::report(const EngineSlot* slot, int ended) {
  {
    const std::lock_guard lock(mutex_);
    last_used_ = GenerationClock::now();
    ended_ += ended;
    std::erase_if(unended_, [&](uint64_t id) {
      const bool waits = std::any_of(mail_.tasks.begin(), mail_.tasks.end(), [&](const LiveTask& task) { return task.id == id; });
      return !waits && (slot == nullptr || !slot->has(id));
    });
  }
  if (ended > 0) changed_();
}

void DearEngine::end(EngineSlot* slot) {
  if (slot != nullptr) slot->fail_all(status_, message_);
  const std::lock_guard lock(mutex_);
  ended_ += static_cast<int>(unended_.size());
  unended_.clear();
}

}  // namespace sluice
