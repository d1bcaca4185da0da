#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace sluice {

/// What cores have done, in seconds of each, added up.
struct CoreSeconds {
  double busy = 0;  // for anybody: time that a hypervisor gave to other machines is gone as well
  double all = 0;   // busy or idle
};

/// That of `cores` (numbers, as the kernel counts them) since the machine started, by a text as of /proc/stat whose unit is the
/// `ticks`-th part of a second. Nothing where it lacks one of them, or is no such text.
std::optional<CoreSeconds> core_seconds(std::string_view stat, std::set<int> cores, double ticks);
/// Seconds of processors that a control group has had, by the text of its cpu.stat.
std::optional<double> seconds_of_group(std::string_view cpu_stat);
/// How many cores a control group may use at most, by the text of its cpu.max; nothing if it has no limit.
std::optional<double> cores_of_group(std::string_view cpu_max);

/// What processors did in a while, or since some time before it.
struct ProcessorTime {
  /// A control group with fewer cores than the process could run on.
  struct Group {
    double cores = 0;
    double seconds = 0;  // that it had, this process included
  };
  double seconds = 0;    // of the clock
  double own = 0;        // seconds of processors that this process had, all of its threads
  int cores = 0;         // that it may run on
  CoreSeconds on_cores;  // what these did
  std::optional<Group> group;
};

/// From one reading to a later one.
ProcessorTime between(const ProcessorTime& before, const ProcessorTime& after);
/// Of two periods.
ProcessorTime together(const ProcessorTime& one, const ProcessorTime& other);

/// How busy others kept what this process may use, on average.
struct OthersLoad {
  double busy = 0;   // cores
  double cores = 0;  // that there are: those that it may run on, or that its group may use
};

/// By the machine's cores or by the group, whichever left this process less. Nothing where the time was too short, and where the
/// kernel, or what plays one, does not count.
std::optional<OthersLoad> load_of_others(const ProcessorTime& period);

/// Whether others left `wanted` cores idle, or all that there are if those are fewer, but for what little always runs.
bool leave_idle(const OthersLoad& others, double wanted);

}  // namespace sluice
