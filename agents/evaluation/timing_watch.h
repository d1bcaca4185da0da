#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "agents/evaluation/load_source.h"
#include "agents/evaluation/timing_conditions.h"
#include "kernels/device.h"
#include "kernels/profile/clock_reader.h"

namespace sluice {

/// Reads a device's clocks again and again, on a thread of its own, as long as this object lives.
class ClockSampler {
 public:
  static constexpr std::chrono::milliseconds kPeriod{20};

  /// Where `reader` reads nothing at first, there are no samples, and no thread.
  explicit ClockSampler(ClockReader& reader, std::chrono::milliseconds period = kPeriod);
  ~ClockSampler();
  ClockSampler(const ClockSampler&) = delete;
  ClockSampler& operator=(const ClockSampler&) = delete;

  /// Ends it.
  std::vector<DeviceClocks> take();

 private:
  void sample(std::chrono::milliseconds period);
  void stop();

  ClockReader& reader_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool ends_ = false;                  // guarded by mutex_
  std::vector<DeviceClocks> samples_;  // the thread's, as long as it runs
  std::thread thread_;
};

/// Watches the machine and the device while something is timed.
class TimingWatch {
 public:
  /// Waits for quiet, at most `patience` seconds.
  TimingWatch(const Device& device, double patience);

  /// Timing begins.
  void begin();
  /// It has ended.
  TimingConditions end();

 private:
  LinuxLoad source_;
  std::unique_ptr<ClockReader> reader_;  // null: there are no clocks
  TimingConditions conditions_;
  std::optional<ProcessorTime> begun_;
  std::optional<ClockSampler> sampler_;
};

}  // namespace sluice
