#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agents/bench/bench.h"
#include "agents/bench/operation_profile.h"
#include "kernels/profile/kernel_recorder.h"
#include "scripting/base/error.h"

namespace sluice {

/// Shows where the time of steps goes: kernel by kernel where the device's kernels can be recorded, else by operation.
class StepProfiler {
 public:
  static constexpr int kMostRuns = 2;

  explicit StepProfiler(Device& device);

  struct Steps {
    std::string name;    // "quest decode"
    std::string flow;    // whose generated kernels run in them; empty: none
    double step_us = 0;  // of one that is not profiled
    int count = 1;
    std::function<void()> run;  // all of them
  };
  /// Runs the steps, kMostRuns times at most, and adds the profile of the last run to the report.
  void add(const Steps& steps, BenchReport& report);

 private:
  bool start_recording();
  void give_up_recording(const InputError& error);
  BenchProfile by_operation(const Steps& steps);

  OperationProfile operations_;
  std::unique_ptr<KernelRecorder> recorder_;  // null: kernels cannot be recorded
  std::string why_;                           // they cannot, where the device has any
};

}  // namespace sluice
