#include "agents/client/submission_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "agents/client/confirmation_text.h"
#include "agents/client/final_text.h"
#include "agents/client/metric_text.h"
#include "agents/evaluation/metric_table.h"
#include "scripting/base/text_table.h"

namespace sluice {
namespace {

using nlohmann::json;

// Metrics of the whole evaluation, which every table shows.

void add_titles(TableRow& row) {
  for (const MetricInfo& metric : metrics::kAll) row.emplace_back(metric.column);
}

void add_metrics(TableRow& row, const json& measured) {
  for (const MetricInfo& metric : metrics::kAll) row.push_back(metric_text(metric.name, member_of(measured, metric.name)));
}

/// The scores of the models that judge first and at last, in columns that have their names.
struct FinalColumns {
  std::string first;  // empty: no entry has a final
  std::string last;

  bool are_there() const { return !first.empty(); }
};

FinalColumns final_columns(const json& entries) {
  for (const json& entry : entries) {
    const json& summary = member_of(entry, "submission");
    const json& last = member_of(summary, "final");
    if (!last.is_object()) continue;
    return {text_of(member_of(summary, "settings"), "model"), text_of(member_of(last, "settings"), "model")};
  }
  return {};
}

/// "2026-11-21 12:14" of an RFC 3339 time.
std::string minute_of(const json& document, const char* name) {
  std::string time = text_of(document, name);
  time = time.substr(0, time.rfind(':'));
  std::replace(time.begin(), time.end(), 'T', ' ');
  return time;
}

std::string message_text(const json& evaluation, const char* indent) {
  const json& message = member_of(evaluation, "message");
  if (!message.is_string() || message.get<std::string>().empty()) return {};
  std::string text = fmt::format("{}{}\n", indent, text_of(evaluation, "message"));
  const json& hint = member_of(evaluation, "hint");
  if (hint.is_string() && !hint.get<std::string>().empty())
    text += fmt::format("{}  hint: {}\n", indent, text_of(evaluation, "hint"));
  return text;
}

std::string seconds_text(const json& stage) {
  const json& seconds = member_of(stage, "seconds");
  return seconds.is_number() && seconds.get<double>() > 0 ? fmt::format("{:.2f} s", seconds.get<double>()) : "-";
}

std::string stages_text(const json& stages) {
  if (!stages.is_array() || stages.empty()) return {};
  std::vector<TableRow> rows = {{"stage", "result", "time"}};
  for (const json& stage : stages) rows.push_back({text_of(stage, "stage"), text_of(stage, "status"), seconds_text(stage)});
  std::string text = "\n" + aligned_table(rows);
  for (const json& stage : stages) {
    const json& message = member_of(stage, "message");
    if (member_of(stage, "status") != "skipped" || !message.is_string() || message.get<std::string>().empty()) continue;
    text += fmt::format("{}: {}\n", text_of(stage, "stage"), text_of(stage, "message"));
  }
  return text;
}

/// Accuracy of each task and length beside dense attention's, and losses where there are any.
std::string tasks_text(const json& metrics) {
  std::map<std::pair<std::string, int64_t>, std::map<std::string, json>> tasks;
  for (const json& metric : metrics) {
    const json& task = member_of(metric, "task");
    const json& tokens = member_of(metric, "tokens");
    if (!task.is_string() || task.get<std::string>().empty()) continue;
    tasks[{text_of(metric, "task"), tokens.is_number_integer() ? tokens.get<int64_t>() : 0}][text_of(metric, "name")] = metric;
  }
  if (tasks.empty()) return {};
  const bool has_loss =
      std::any_of(tasks.begin(), tasks.end(), [](const auto& task) { return task.second.contains(metrics::kLoss.name); });
  std::vector<TableRow> rows = {{"task", "tokens", metrics::kAccuracy.column, metrics::kDenseAccuracy.column}};
  if (has_loss) rows.back().push_back(metrics::kLoss.column);
  for (const auto& [key, named] : tasks) {
    const auto cell = [&named = named](const char* name) {
      const auto found = named.find(name);
      return found == named.end() ? "-" : metric_text(name, found->second);
    };
    rows.push_back({key.first, std::to_string(key.second), cell(metrics::kAccuracy.name), cell(metrics::kDenseAccuracy.name)});
    if (has_loss) rows.back().push_back(cell(metrics::kLoss.name));
  }
  return "\n" + aligned_table(rows);
}

std::string mass_text(const json& stages, const repl::Style& style) {
  std::string text;
  for (const json& stage : stages) {
    const json& layers = member_of(member_of(stage, "details"), metrics::kMass.report.value);
    if (!layers.is_array() || layers.empty()) continue;
    text += "\nshare of the dense attention mass\n";
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const double share = layers[layer].is_number() ? layers[layer].get<double>() : 0;
      text += fmt::format("layer {:>2}  {:>5.1f}%  {}\n", layer, 100 * share, repl::share_bar(share, style));
    }
  }
  return text;
}

/// Attempts that came to nothing.
std::string failed_attempts(const json& attempts) {
  std::string text;
  for (const json& attempt : attempts) {
    const std::string outcome = text_of(attempt, "outcome");
    if (outcome != "failed" && outcome != "expired") continue;
    text += fmt::format("  attempt {} {}: {}\n", text_of(attempt, "attempt"), outcome, text_of(attempt, "message"));
  }
  return text;
}

std::string totals_text(const json& submission) {
  if (member_of(submission, "metrics").empty()) return {};
  TableRow titles;
  TableRow row;
  add_titles(titles);
  add_metrics(row, member_of(submission, "metrics"));
  return "\n" + aligned_table({titles, row});
}

/// What to say of entries that were judged by different suites; empty if they were not.
std::string suites_text(const json& entries) {
  std::vector<std::string> suites;  // the best one's first
  for (const json& entry : entries) {
    const std::string suite = text_of(member_of(member_of(entry, "submission"), "settings"), "suite");
    if (std::find(suites.begin(), suites.end(), suite) == suites.end()) suites.push_back(suite);
  }
  if (suites.size() < 2) return {};
  return fmt::format("\nrows of several suites ({}) are no fair comparison: --suite {}\n", fmt::join(suites, ", "),
                     suites.front());
}

}  // namespace

std::string sameness_note(const json& summary) {
  const json& first = member_of(summary, "same_as");
  return first.is_number_integer() ? fmt::format("; the same flow as {}", first.dump()) : std::string();
}

std::string submission_line(const json& submission) {
  return fmt::format("submission {}, {} by {}: {}{}{}\n", text_of(submission, "id"), text_of(submission, "name"),
                     text_of(submission, "agent"), text_of(submission, "status"), measured_text(submission),
                     confirmation_note(submission) + final_note(submission) + sameness_note(submission));
}

std::string repetition_note(const json& submission) {
  if (member_of(submission, "is_new") != false) return {};
  return "  the same script with the same settings was there already: its name, notes and parents stay as they are\n";
}

std::string submission_table(const json& summaries) {
  std::vector<TableRow> rows = {{"id", "status", "agent", "flow"}};
  add_titles(rows.front());
  rows.front().emplace_back("handed in (UTC)");
  for (const json& summary : summaries) {
    TableRow row = {text_of(summary, "id"), text_of(summary, "status"), text_of(summary, "agent"), text_of(summary, "name")};
    add_metrics(row, member_of(summary, "metrics"));
    row.push_back(minute_of(summary, "created"));
    rows.push_back(std::move(row));
  }
  return aligned_table(rows);
}

std::string leaderboard_table(const json& entries, const std::string& metric) {
  const bool is_column = metrics::find(metric) != nullptr;
  const FinalColumns finals = final_columns(entries);
  std::vector<TableRow> rows = {{"rank", "id", "agent", "flow", "basis"}};
  if (finals.are_there()) rows.front().insert(rows.front().end(), {finals.first, finals.last});
  if (!is_column) rows.front().push_back(metric);
  add_titles(rows.front());
  for (const json& entry : entries) {
    const json& summary = member_of(entry, "submission");
    TableRow row = {text_of(entry, "rank"), text_of(summary, "id"), text_of(summary, "agent"), text_of(summary, "name"),
                    text_of(entry, "basis")};
    if (finals.are_there()) {
      const json measured = standing_metrics(summary);
      row.push_back(metric_text(metrics::kScore.name, member_of(measured, metrics::kScore.name)));
      row.push_back(final_score_text(summary));
    }
    if (!is_column) row.push_back(metric_text(metric, member_of(entry, "metric")));
    add_metrics(row, standing_metrics(summary));
    rows.push_back(std::move(row));
  }
  if (entries.empty()) return aligned_table(rows) + fmt::format("none that passed has the metric {} there\n", metric);
  return aligned_table(rows) + suites_text(entries);
}

std::string submission_text(const json& submission, const json& attempts, const repl::Style& style) {
  std::string text = submission_line(submission);
  const json& settings = member_of(submission, "settings");
  text += fmt::format("  handed in {} UTC", minute_of(submission, "created"));
  for (const char* name : {"suite", "device", "model"}) {
    if (member_of(settings, name).is_string()) text += fmt::format(", {} {}", name, text_of(settings, name));
  }
  if (!member_of(submission, "parents").empty()) text += fmt::format(", parents {}", text_of(submission, "parents"));
  text += "\n";
  if (const json& notes = member_of(submission, "notes"); notes.is_string() && !notes.get<std::string>().empty()) {
    text += fmt::format("  {}\n", text_of(submission, "notes"));
  }
  text += failed_attempts(attempts);
  const json& evaluation = member_of(submission, "evaluation");
  if (!evaluation.is_object()) return text;
  const json& outcome = member_of(evaluation, "outcome");
  if (outcome == "judged" || attempts.empty()) text += message_text(evaluation, "  ");
  const json& stages = member_of(evaluation, "stages");
  return text + totals_text(submission) + confirmation_text(submission) + final_text(submission) + stages_text(stages) +
         tasks_text(member_of(evaluation, "metrics")) + mass_text(stages, style);
}

}  // namespace sluice
