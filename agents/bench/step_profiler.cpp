#include "agents/bench/step_profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace sluice {

StepProfiler::StepProfiler(Device& device) : operations_(device) {
  try {
    recorder_ = create_kernel_recorder(device.info().name);
  } catch (const InputError& error) {
    give_up_recording(error);
  }
}

void StepProfiler::give_up_recording(const InputError& error) {
  recorder_.reset();
  why_ = error.hint().empty() ? error.what() : fmt::format("{}; {}", error.what(), error.hint());
}

bool StepProfiler::start_recording() {
  if (recorder_ == nullptr) return false;
  try {
    recorder_->start();
    return true;
  } catch (const InputError& error) {  // another profiler may be at work
    give_up_recording(error);
    return false;
  }
}

void StepProfiler::add(const Steps& steps, BenchReport& report) {
  if (!start_recording()) {
    report.profiles.push_back(by_operation(steps));
    return;
  }
  steps.run();  // the first launches that are recorded take longer
  recorder_->start();
  steps.run();
  DeviceRecording recording = recorder_->stop();
  for (DeviceActivity& activity : recording.activities) {
    if (activity.kernel) activity.name = short_kernel_name(activity.name, steps.flow);
  }
  report.kernel_profiles.push_back({steps.name, steps.step_us, summarize(recording, steps.count)});
}

BenchProfile StepProfiler::by_operation(const Steps& steps) {
  BenchProfile profile{.name = steps.name, .step_us = steps.step_us, .note = why_};
  const auto start = std::chrono::steady_clock::now();
  operations_.start();
  steps.run();
  double outside = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const auto& [operation, total] : operations_.stop()) {
    profile.rows.push_back({operation, static_cast<double>(total.calls) / steps.count, total.seconds / steps.count * 1e6});
    outside -= total.seconds;
  }
  profile.rows.push_back({"host: scheduling, sampling", 1, outside / steps.count * 1e6});
  std::sort(profile.rows.begin(), profile.rows.end(), [](const auto& a, const auto& b) { return a.time_us > b.time_us; });
  return profile;
}

}  // namespace sluice
