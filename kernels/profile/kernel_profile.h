#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// What a device did for a while: a kernel, a copy or a fill. Times are nanoseconds of one clock.
struct DeviceActivity {
  std::string name;
  uint64_t start = 0;
  uint64_t end = 0;
  bool kernel = true;  // `name` is its symbol
};

/// All activities from `start` to `end`.
struct DeviceRecording {
  uint64_t start = 0;
  uint64_t end = 0;
  std::vector<DeviceActivity> activities = {};
};

/// Where the time of a recording went. Times are microseconds of one step.
struct KernelProfile {
  /// All activities of one name.
  struct Row {
    std::string name;
    double calls = 0;         // of one step
    double mean_us = 0;       // of one call, from its start to its end
    double exclusive_us = 0;  // while it was the next to end: with kernels that begin early, from the end of the one before
    double idle_us = 0;       // in which the device waited for it
  };
  double step_us = 0;  // busy_us + idle_us
  double busy_us = 0;  // while anything ran: the sum of exclusive_us
  double idle_us = 0;
  double overlap_us = 0;       // while two or more ran
  std::vector<Row> rows = {};  // the longest exclusive time first
};

/// Adds up a recording of `steps` steps. A moment belongs to that of the running activities which ends first: a kernel that is
/// launched early waits for the one before it, whose time that is.
KernelProfile summarize(const DeviceRecording& recording, int steps);

/// A kernel's name for people, from its symbol: without namespaces and arguments. Kernels of cuBLASLt say so; those generated
/// from a flow ("index_0") get its name, if `flow` is not empty.
std::string short_kernel_name(const std::string& symbol, std::string_view flow);

}  // namespace sluice
