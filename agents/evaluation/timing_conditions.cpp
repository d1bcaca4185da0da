#include "agents/evaluation/timing_conditions.h"

#include <algorithm>
#include <climits>
#include <set>

namespace sluice {

std::optional<ClockSummary> summary_of(std::span<const DeviceClocks> samples) {
  const bool all_idle = std::all_of(samples.begin(), samples.end(), [](const DeviceClocks& clocks) { return clocks.is_idle; });
  ClockSummary summary;
  summary.least_sm_mhz = summary.memory_mhz = INT_MAX;
  std::set<std::string> reasons;
  double sum = 0;
  for (const DeviceClocks& clocks : samples) {
    if (clocks.is_idle && !all_idle) continue;
    ++summary.samples;
    sum += clocks.sm_mhz;
    summary.least_sm_mhz = std::min(summary.least_sm_mhz, clocks.sm_mhz);
    summary.sm_limit_mhz = std::max(summary.sm_limit_mhz, clocks.sm_limit_mhz);
    summary.memory_mhz = std::min(summary.memory_mhz, clocks.memory_mhz);
    reasons.insert(clocks.held_by.begin(), clocks.held_by.end());
    if (clocks.other_processes) summary.other_processes = std::max(summary.other_processes.value_or(0), *clocks.other_processes);
  }
  if (summary.samples == 0) return {};
  summary.sm_mhz = sum / summary.samples;
  summary.held_by.assign(reasons.begin(), reasons.end());
  return summary;
}

void TimingConditions::add(const TimingConditions& other) {
  wanted_cores = std::max(wanted_cores, other.wanted_cores);
  waited += other.waited;
  if (load && other.load) load = together(*load, *other.load);
  if (!load) load = other.load;
  clocks.insert(clocks.end(), other.clocks.begin(), other.clocks.end());
}

std::optional<bool> TimingConditions::had_quiet() const {
  const auto load_then = others();
  return load_then ? std::optional(leave_idle(*load_then, wanted_cores)) : std::nullopt;
}

}  // namespace sluice
