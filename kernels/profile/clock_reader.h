#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

/// How fast a device runs at a moment, and what keeps it from running faster.
struct DeviceClocks {
  int sm_mhz = 0;        // of its multiprocessors
  int sm_limit_mhz = 0;  // that they can do
  int memory_mhz = 0;
  bool is_idle = false;                // it has nothing to do, so that its clocks say little
  std::vector<std::string> held_by;    // what holds clocks down: "power_cap", "hw_slowdown", ...
  std::optional<int> other_processes;  // that compute on it, or could at once
};

/// Reads clocks of one device. Any thread may, one at a time, while the device works.
class ClockReader {
 public:
  virtual ~ClockReader() = default;
  /// Nothing where they cannot be read.
  virtual std::optional<DeviceClocks> read() = 0;
};

/// Of the device "cpu" or "cuda", the GPU that is current; null where nothing can be known of clocks.
std::unique_ptr<ClockReader> create_clock_reader(const std::string& device);

}  // namespace sluice
