#include "agents/client/diff_text.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>
#include <string_view>
#include <vector>

#include "agents/client/metric_text.h"
#include "agents/evaluation/metric_table.h"
#include "scripting/base/printable_text.h"
#include "scripting/base/text_table.h"

namespace sluice {
namespace {

using nlohmann::json;

/// The escape that Git uses for such a line; empty for context. Whatever stands before the first hunk is about the files.
std::string_view color_of(std::string_view line, bool is_header) {
  if (is_header) return "\x1b[1m";
  if (line.starts_with("@@")) return "\x1b[36m";
  if (line.starts_with('-')) return "\x1b[31m";
  return line.starts_with('+') ? "\x1b[32m" : "";
}

std::string script_text(const json& diff, bool color) {
  const json& unified = member_of(diff, "unified");
  if (!unified.is_string() || unified.get<std::string>().empty()) return "the scripts are the same\n";
  std::istringstream lines(unified.get<std::string>());
  std::string text;
  bool is_header = true;
  for (std::string line; std::getline(lines, line);) {
    is_header = is_header && !line.starts_with("@@");
    const std::string_view escape = color ? color_of(line, is_header) : "";
    text += fmt::format("{}{}{}\n", escape, printable(line), escape.empty() ? "" : "\x1b[m");
  }
  return text;
}

std::string side_text(const std::string& name, const json& value) {
  return value.is_object() ? metric_text(name, value) : value.is_number() ? metrics::number_text(name, value.get<double>()) : "-";
}

std::string metrics_text(const json& metrics) {
  std::vector<TableRow> rows = {{"metric", "task", "tokens", "from", "to"}};
  for (const json& metric : metrics) {
    const json& from = member_of(metric, "from");
    const json& to = member_of(metric, "to");
    if (from == to) continue;
    const std::string name = text_of(metric, "name");
    const json& tokens = member_of(metric, "tokens");
    const bool of_all = text_of(metric, "task").empty() || text_of(metric, "task") == "-";
    rows.push_back({name, of_all ? "all" : text_of(metric, "task"), of_all || tokens == 0 ? "-" : text_of(metric, "tokens"),
                    side_text(name, from), side_text(name, to)});
  }
  return rows.size() == 1 ? std::string() : "\n" + aligned_table(rows);
}

/// What the flow answers otherwise of the questions that both were asked.
std::string paired_text(const json& paired) {
  const auto number = [&](const char* key) {
    const json& value = member_of(paired, key);
    return value.is_number() ? value.get<double>() : NAN;
  };
  if (!paired.is_object()) return {};
  return fmt::format("\non the same questions {:+.1f} points of accuracy (95% {:+.1f} to {:+.1f}), p = {:.2g}\n",
                     100 * number("difference"), 100 * number("low"), 100 * number("high"), number("p_value"));
}

std::string settings_text(const json& settings) {
  std::string text;
  for (const json& setting : settings) {
    text +=
        fmt::format("setting {}: {} instead of {}\n", text_of(setting, "key"), text_of(setting, "to"), text_of(setting, "from"));
  }
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::string diff_text(const json& diff, bool color) {
  return script_text(diff, color) + settings_text(member_of(diff, "settings")) + metrics_text(member_of(diff, "metrics")) +
         paired_text(member_of(diff, "paired"));
}

}  // namespace sluice
