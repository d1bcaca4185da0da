#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agents/evaluation/processor_load.h"
#include "kernels/profile/clock_reader.h"

namespace sluice {

/// How fast a device ran in a while, from samples of it at work.
struct ClockSummary {
  int samples = 0;
  double sm_mhz = 0;  // mean
  int least_sm_mhz = 0;
  int sm_limit_mhz = 0;                // that it can do
  int memory_mhz = 0;                  // the least
  std::vector<std::string> held_by;    // whatever held clocks down in any of them
  std::optional<int> other_processes;  // the most
};

/// Samples of an idle device count only where there are no others. Nothing of none.
std::optional<ClockSummary> summary_of(std::span<const DeviceClocks> samples);

/// Under what a speed was measured.
struct TimingConditions {
  double wanted_cores = 1;            // that the judge keeps busy
  double waited = 0;                  // seconds, for quiet
  std::optional<ProcessorTime> load;  // while it was timed; nothing where that is not known
  std::vector<DeviceClocks> clocks;

  /// Those of something else that was timed, too.
  void add(const TimingConditions& other);
  std::optional<OthersLoad> others() const { return load ? load_of_others(*load) : std::nullopt; }
  /// Whether others left idle what the judge keeps busy; nothing where that is not known.
  std::optional<bool> had_quiet() const;
};

}  // namespace sluice
