#include "agents/evaluation/report_conditions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "scripting/base/text_table.h"

namespace sluice {
namespace {

/// "quest (1.3 of 2)".
std::string disturbed(const FlowReport& flow) {
  const OthersLoad others = flow.speed->conditions.others().value_or(OthersLoad());
  return fmt::format("{} ({:.1f} of {:g})", flow.name, others.busy, others.cores);
}

/// "quest (power_cap, 1410 of 1980 MHz)".
std::string held_down(const FlowReport& flow, const ClockSummary& clocks) {
  return fmt::format("{} ({}, {:.0f} of {} MHz)", flow.name, fmt::join(clocks.held_by, ", "), clocks.sm_mhz, clocks.sm_limit_mhz);
}

TableRow load_cells(const TimingConditions& conditions) {
  const auto others = conditions.others();
  const std::string waited = fmt::format("{:.1f}", conditions.waited);
  if (!others) return {"-", "-", waited};
  return {fmt::format("{:.2f}", others->busy), fmt::format("{:g}", others->cores), waited};
}

TableRow clock_cells(const std::optional<ClockSummary>& clocks) {
  if (!clocks) return {"-", "-", "-", "-", "-", "-"};
  return {fmt::format("{:.0f}", clocks->sm_mhz),
          std::to_string(clocks->least_sm_mhz),
          std::to_string(clocks->sm_limit_mhz),
          std::to_string(clocks->memory_mhz),
          clocks->held_by.empty() ? "nothing" : fmt::format("{}", fmt::join(clocks->held_by, ", ")),
          clocks->other_processes ? std::to_string(*clocks->other_processes) : "-"};
}

bool has_clocks(const FlowReport& flow) { return flow.speed && !flow.speed->conditions.clocks.empty(); }

}  // namespace

std::string mark_of(const SpeedResult& speed) { return speed.conditions.had_quiet().value_or(true) ? "" : " *"; }

std::string conditions_notes(const Report& report) {
  std::vector<std::string> without_quiet;
  std::vector<std::string> held;
  for (const FlowReport& flow : report.flows) {
    if (!flow.speed) continue;
    if (!mark_of(*flow.speed).empty()) without_quiet.push_back(disturbed(flow));
    const auto clocks = summary_of(flow.speed->conditions.clocks);
    if (clocks && !clocks->held_by.empty()) held.push_back(held_down(flow, *clocks));
  }
  std::string text;
  if (!without_quiet.empty()) {
    text += fmt::format("\n* There was no quiet: others kept cores busy while these were timed: {}.\n",
                        fmt::join(without_quiet, ", "));
  }
  if (!held.empty()) {
    text += fmt::format("\nThe GPU's clocks were held down while these were timed: {}.\n", fmt::join(held, ", "));
  }
  return text;
}

std::string conditions_table(const Report& report) {
  const bool clocks = std::any_of(report.flows.begin(), report.flows.end(), has_clocks);
  std::vector<TableRow> rows = {{"flow", "others busy", "cores", "waited (s)"}};
  const auto append = [](TableRow& row, const TableRow& more) { row.insert(row.end(), more.begin(), more.end()); };
  if (clocks) append(rows[0], {"SM (MHz)", "least", "limit", "memory (MHz)", "held by", "other processes"});
  for (const FlowReport& flow : report.flows) {
    if (!flow.speed) continue;
    TableRow& row = rows.emplace_back(TableRow{flow.name});
    append(row, load_cells(flow.speed->conditions));
    if (clocks) append(row, clock_cells(summary_of(flow.speed->conditions.clocks)));
  }
  return rows.size() > 1 ? aligned_table(rows) : "";
}

}  // namespace sluice
