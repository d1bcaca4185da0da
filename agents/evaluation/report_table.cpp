#include <fmt/format.h>

#include <algorithm>

#include "agents/evaluation/report.h"

namespace sluice {
namespace {

using Row = std::vector<std::string>;

/// Terminal columns of UTF-8 text without wide characters.
size_t width_of(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

/// Groups in the order in which tasks appear.
std::vector<std::string> groups_of(const Report& report) {
  std::vector<std::string> groups;
  for (const TaskResult& result : report.dense) {
    if (std::find(groups.begin(), groups.end(), result.group) == groups.end()) groups.push_back(result.group);
  }
  return groups;
}

/// "98% 91–100": accuracy over all samples of a group and its interval.
std::string accuracy_cell(const std::vector<TaskResult>& results, const std::string& group) {
  std::vector<std::vector<Cluster>> tasks;
  double successes = 0;
  double samples = 0;
  for (const TaskResult& result : results) {
    if (result.group != group) continue;
    tasks.push_back(result.clusters);
    for (const Cluster& cluster : result.clusters) {
      successes += cluster.successes;
      samples += cluster.samples;
    }
  }
  if (samples == 0) return "-";
  const Interval interval = pooled_wilson(tasks);
  return fmt::format("{:.0f}% {:.0f}–{:.0f}", 100 * successes / samples, 100 * interval.low, 100 * interval.high);
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

Row flow_row(const FlowReport& flow, const std::vector<std::string>& groups) {
  Row row = {flow.name};
  for (const std::string& group : groups) row.push_back(accuracy_cell(flow.tasks, group));
  if (flow.speed) {
    const Ratio& speedup = flow.speed->speedup;
    row.push_back(fmt::format("{:.2f}x {:.2f}–{:.2f}", speedup.ratio, speedup.low, speedup.high));
    row.push_back(fmt::format("{:.1f}%", 100 * flow.speed->pages_read));
    row.push_back(fmt::format("{:.1f}%", 100 * mean_of(flow.speed->mass)));
  } else {
    row.insert(row.end(), 3, "-");
  }
  row.push_back(name_of(flow.status));
  return row;
}

std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows[r].size(); ++i) {
      line += rows[r][i] + std::string(widths[i] - width_of(rows[r][i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
    if (r == 0) {
      for (const size_t width : widths) text += std::string(width, '-') + "  ";
      text.erase(text.find_last_not_of(' ') + 1);
      text += "\n";
    }
  }
  return text;
}

}  // namespace

std::string to_table(const Report& report) {
  const std::vector<std::string> groups = groups_of(report);
  Row header = {"flow"};
  header.insert(header.end(), groups.begin(), groups.end());
  header.insert(header.end(), {"speed", "pages", "mass", "status"});
  Row dense = {"(dense)"};
  for (const std::string& group : groups) dense.push_back(accuracy_cell(report.dense, group));
  dense.insert(dense.end(), {"1", "100%", "100%", ""});
  std::vector<Row> rows = {header, dense};
  for (const FlowReport& flow : report.flows) rows.push_back(flow_row(flow, groups));
  std::string text = aligned(rows);
  for (const FlowReport& flow : report.flows) {
    if (flow.message.empty()) continue;
    text += fmt::format("\n{}, {}: {}\n", flow.name, flow.stage, flow.message);
    if (!flow.hint.empty()) text += fmt::format("  hint: {}\n", flow.hint);
  }
  for (const FlowReport& flow : report.flows) {
    if (!flow.speed) continue;
    text += fmt::format(
        "\nAccuracy is of whole answers, with 95% intervals. Speed is decoding against dense attention, batch {} at {} tokens.\n",
        flow.speed->batch, flow.speed->tokens);
    break;
  }
  text += fmt::format("Seed {}\n", report.seed);
  return text;
}

}  // namespace sluice
