#include "agents/evaluation/timing_watch.h"

#include <new>
#include <utility>

namespace sluice {

ClockSampler::ClockSampler(ClockReader& reader, std::chrono::milliseconds period) : reader_(reader) {
  const auto first = reader_.read();
  if (!first) return;
  samples_.push_back(*first);
  thread_ = std::thread([this, period] { sample(period); });
}

ClockSampler::~ClockSampler() { stop(); }

void ClockSampler::sample(std::chrono::milliseconds period) {
  std::unique_lock lock(mutex_);
  while (!woken_.wait_for(lock, period, [this] { return ends_; })) {
    lock.unlock();
    try {
      if (auto clocks = reader_.read()) samples_.push_back(std::move(*clocks));
    } catch (const std::bad_alloc&) {  // what is timed will find out as well
      return;
    }
    lock.lock();
  }
}

void ClockSampler::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

std::vector<DeviceClocks> ClockSampler::take() {
  stop();
  return std::move(samples_);
}

TimingWatch::TimingWatch(const Device& device, double patience) : reader_(create_clock_reader(device.info().name)) {
  conditions_.wanted_cores = device.info().threads;  // of a GPU one, which launches
  conditions_.waited = wait_for_quiet(source_, conditions_.wanted_cores, patience);
}

void TimingWatch::begin() {
  if (reader_ != nullptr) sampler_.emplace(*reader_);
  begun_ = source_.read();
}

TimingConditions TimingWatch::end() {
  const auto ended = source_.read();
  if (begun_ && ended) conditions_.load = between(*begun_, *ended);
  if (sampler_) conditions_.clocks = sampler_->take();
  return std::move(conditions_);
}

}  // namespace sluice
