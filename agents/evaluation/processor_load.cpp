#include "agents/evaluation/processor_load.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

namespace sluice {
namespace {

/// The line that begins at the front of `text`, which it is taken from.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// The whole numbers that `text` consists of; nothing where anything else stands there.
std::optional<std::vector<double>> numbers_in(std::string_view text) {
  std::vector<double> numbers;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) return numbers;
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return {};
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.empty() && text.front() != ' ') return {};
    numbers.push_back(static_cast<double>(number));
  }
}

/// What stands behind the number of a core in its line, ticks in all: user, nice, system, idle, iowait, irq, softirq, steal (man
/// proc_stat); what guests had is part of user and nice. Older kernels have fewer.
std::optional<CoreSeconds> core_of_line(std::string_view line, double ticks) {
  constexpr size_t kLeast = 4;
  constexpr size_t kCounted = 8;
  constexpr std::array<size_t, 2> kIdle = {3, 4};
  const auto numbers = numbers_in(line);
  if (!numbers || numbers->size() < kLeast) return {};
  CoreSeconds core;
  for (size_t i = 0; i < std::min(numbers->size(), kCounted); ++i) {
    const double seconds = (*numbers)[i] / ticks;
    core.all += seconds;
    if (i != kIdle[0] && i != kIdle[1]) core.busy += seconds;
  }
  return core;
}

double others_of(double busy, const ProcessorTime& period) { return std::max(0.0, (busy - period.own) / period.seconds); }

}  // namespace

std::optional<CoreSeconds> core_seconds(std::string_view stat, std::set<int> cores, double ticks) {
  constexpr std::string_view kCore = "cpu";
  CoreSeconds sum;
  while (!stat.empty() && !cores.empty()) {
    std::string_view line = take_line(stat);
    if (!line.starts_with(kCore)) continue;
    line.remove_prefix(kCore.size());
    int core = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), core);
    if (error != std::errc() || cores.erase(core) == 0) continue;  // of all cores together, or another
    const auto one = core_of_line(line.substr(static_cast<size_t>(end - line.data())), ticks);
    if (!one) return {};
    sum.busy += one->busy;
    sum.all += one->all;
  }
  return cores.empty() && sum.all > 0 ? std::optional(sum) : std::nullopt;
}

std::optional<double> seconds_of_group(std::string_view cpu_stat) {
  constexpr std::string_view kUsage = "usage_usec ";
  constexpr double kMicrosecond = 1e-6;
  while (!cpu_stat.empty()) {
    const std::string_view line = take_line(cpu_stat);
    if (!line.starts_with(kUsage)) continue;
    const auto numbers = numbers_in(line.substr(kUsage.size()));
    return numbers && numbers->size() == 1 ? std::optional(numbers->front() * kMicrosecond) : std::nullopt;
  }
  return {};
}

std::optional<double> cores_of_group(std::string_view cpu_max) {
  const auto numbers = numbers_in(take_line(cpu_max));  // microseconds of processors in a period of so many
  if (!numbers || numbers->size() != 2 || numbers->front() <= 0 || numbers->back() <= 0) return {};
  return numbers->front() / numbers->back();
}

ProcessorTime between(const ProcessorTime& before, const ProcessorTime& after) {
  ProcessorTime period = after;
  period.seconds -= before.seconds;
  period.own -= before.own;
  period.on_cores.busy -= before.on_cores.busy;
  period.on_cores.all -= before.on_cores.all;
  if (!before.group) period.group.reset();
  if (period.group) period.group->seconds -= before.group->seconds;
  return period;
}

ProcessorTime together(const ProcessorTime& one, const ProcessorTime& other) {
  ProcessorTime both = one;
  both.seconds += other.seconds;
  both.own += other.own;
  both.on_cores.busy += other.on_cores.busy;
  both.on_cores.all += other.on_cores.all;
  if (!other.group) both.group.reset();
  if (both.group) both.group->seconds += other.group->seconds;
  return both;
}

std::optional<OthersLoad> load_of_others(const ProcessorTime& period) {
  // Cores pass their time busy or idle. Counters that stand still would say that there is nobody.
  constexpr double kCounted = 0.5;
  if (period.seconds <= 0 || period.cores <= 0) return {};
  if (period.on_cores.all < kCounted * period.seconds * period.cores) return {};
  const OthersLoad on_cores{others_of(period.on_cores.busy, period), static_cast<double>(period.cores)};
  if (!period.group) return on_cores;
  const OthersLoad in_group{others_of(period.group->seconds, period), period.group->cores};
  return in_group.cores - in_group.busy < on_cores.cores - on_cores.busy ? in_group : on_cores;
}

bool leave_idle(const OthersLoad& others, double wanted) {
  constexpr double kLittle = 0.25;  // cores
  constexpr double kShare = 0.02;   // of those wanted
  const double needed = std::min(wanted, others.cores);
  return others.cores - others.busy >= needed - std::max(kLittle, kShare * needed);
}

}  // namespace sluice
