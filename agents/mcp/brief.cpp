#include "agents/mcp/brief.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "agents/evaluation/metric_table.h"
#include "agents/http/http_problem.h"
#include "agents/mcp/text_page.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

// Bytes. All of them and a page of a script have room in one answer.
constexpr size_t kMostMessage = 3000;  // each of message, hint and notes
constexpr size_t kMostStageMessage = 400;
constexpr size_t kMostName = 400;  // with what is escaped in it
constexpr size_t kMostTasks = kMostBytes / 4;

std::string text(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

void copy_text(json& to, const json& from, const char* member, size_t most = kMostMessage) {
  const std::string content = text(from.value(member, json()));
  if (!content.empty()) to[member] = shortened(content, most);
}

/// "2026-07-28T09:30:00.123456Z" without what follows the seconds.
std::string to_the_second(const std::string& time) {
  const size_t point = time.find('.');
  return point == std::string::npos ? time : time.substr(0, point) + "Z";
}

std::vector<std::string> metric_texts(const json& measured) {
  std::vector<std::string> texts;
  const auto add = [&](const std::string& name, const json& metric) {
    texts.push_back(fmt::format("{} {}", name, text_of_metric(metric)));
  };
  const auto add_known = [&](const MetricInfo& metric) {
    if (measured.contains(metric.name)) add(metric.name, measured[metric.name]);
  };
  std::for_each(metrics::kAll.begin(), metrics::kAll.end(), add_known);
  std::for_each(metrics::kOfConfirmations.begin(), metrics::kOfConfirmations.end(), add_known);
  for (const auto& [name, metric] : measured.items()) {
    if (metrics::find(name) == nullptr) add(name, metric);
  }
  return texts;
}

std::string text_of_settings(const json& settings) {
  std::vector<std::string> texts;
  for (const auto& [key, value] : settings.items()) {
    texts.push_back(fmt::format("{} {}", key, value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// Metrics of single tasks, a row for each task and length.
json task_rows(const json& metrics) {
  std::map<std::pair<std::string, int64_t>, json> rows;
  for (const json& metric : metrics) {
    const std::string task = text(metric.value("task", json()));
    if (task.empty()) continue;
    const int64_t tokens = metric.value("tokens", int64_t{0});
    json& row = rows[{task, tokens}];
    row["task"] = task;
    if (tokens > 0) row["tokens"] = tokens;
    row[metric.at("name").get<std::string>()] = brief_metric(metric);
  }
  json list = json::array();
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  return list;
}

json stage_rows(const json& stages) {
  json rows = json::array();
  for (const json& stage : stages) {
    json row = {{"stage", stage.at("stage")}, {"status", stage.at("status")}, {"seconds", rounded(stage.at("seconds"))}};
    copy_text(row, stage, "message", kMostStageMessage);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string text_of_task(const json& row) {
  json metrics = row;
  metrics.erase("task");
  metrics.erase("tokens");
  const std::string tokens = row.contains("tokens") ? fmt::format(" at {} tokens", row["tokens"].get<int64_t>()) : "";
  return fmt::format("  {}{}: {}\n", text(row["task"]), tokens, fmt::join(metric_texts(metrics), ", "));
}

std::string text_of_stage(const json& stage) {
  const std::string message = text(stage.value("message", json()));
  return fmt::format("  {} {} in {} s{}{}\n", text(stage["stage"]), text(stage["status"]), stage["seconds"].dump(),
                     message.empty() ? "" : ": ", message);
}

json brief_metrics(const json& metrics) {
  json brief = json::object();
  for (const auto& [name, metric] : metrics.items()) brief[name] = brief_metric(metric);
  return brief;
}

json brief_confirmation(const json& confirmation) {
  json brief = {{"state", confirmation.at("state")}, {"tries", confirmation.at("tries")}};
  for (const char* member : {"status", "seed", "message", "hint"}) copy_text(brief, confirmation, member, kMostStageMessage);
  if (brief["state"] != "done") return brief;
  brief["metrics"] = brief_metrics(confirmation.at("metrics"));
  if (const json flattered = confirmation.value("flattered", json()); flattered.is_object()) {
    brief["flattered"] = brief_metric(flattered);
  }
  return brief;
}

json brief_final(const json& last) {
  json brief = {{"id", last.at("id")}, {"status", last.at("status")}, {"passed", last.at("passed")}};
  copy_text(brief, last, "confirmed");
  copy_text(brief, last.at("settings"), "model");
  copy_text(brief, last.at("settings"), "suite");
  brief["metrics"] = brief_metrics(last.at("metrics"));
  return brief;
}

std::string text_of_final(const json& last) {
  std::string line = fmt::format("on {}: {}", text(last.value("model", json())), text(last.at("status")));
  if (last.contains("confirmed")) line += ", confirmation " + text(last["confirmed"]);
  if (!last.at("metrics").empty()) line += fmt::format(" ({})", fmt::join(metric_texts(last["metrics"]), ", "));
  return line;
}

std::string text_of_confirmation(const json& confirmation) {
  if (confirmation.at("state") != "done") return text(confirmation["state"]);
  std::string line = text(confirmation.at("status"));
  if (!confirmation.at("metrics").empty()) line += fmt::format(" ({})", fmt::join(metric_texts(confirmation["metrics"]), ", "));
  if (confirmation.contains("flattered")) line += ", flattered by " + text_of_metric(confirmation["flattered"]);
  return line;
}

}  // namespace

json rounded(const json& number) {
  if (!number.is_number_float()) return number;
  return std::stod(fmt::format("{:.4g}", number.get<double>()));
}

json brief_metric(const json& metric) {
  json brief = {{"value", rounded(metric.at("value"))}};
  for (const char* bound : {"low", "high"}) {
    const json value = metric.value(bound, json());
    if (!value.is_null()) brief[bound] = rounded(value);
  }
  return brief;
}

std::string quoted(const json& name) { return shortened(json_text(name), kMostName); }

std::string text_of_metric(const json& metric) {
  std::string value = metric.at("value").dump();
  if (!metric.contains("low") || !metric.contains("high")) return value;
  return fmt::format("{} [{}, {}]", value, metric["low"].dump(), metric["high"].dump());
}

json brief_row(const json& summary) {
  json row;
  for (const char* member : {"id", "agent", "name", "status"}) row[member] = summary.at(member);
  row["created"] = to_the_second(summary.at("created"));
  row["parents"] = summary.value("parents", json::array());
  row["settings"] = summary.value("settings", json::object());
  row["metrics"] = brief_metrics(summary.value("metrics", json::object()));
  const json confirmation = summary.value("confirmation", json());
  if (confirmation.is_object()) row["confirmation"] = brief_confirmation(confirmation);
  if (const json last = summary.value("final", json()); last.is_object()) row["final"] = brief_final(last);
  for (const char* other : {"same_as", "final_of"}) {
    if (const json id = summary.value(other, json()); id.is_number_integer()) row[other] = id;
  }
  return row;
}

std::string text_of_row(const json& row) {
  std::string line = fmt::format("{} {} by {}: {}", row.at("id").get<int64_t>(), quoted(row.at("name")), text(row.at("agent")),
                                 text(row.at("status")));
  if (!row.at("metrics").empty()) line += fmt::format("; {}", fmt::join(metric_texts(row["metrics"]), ", "));
  if (row.contains("confirmation")) line += "; confirmation " + text_of_confirmation(row["confirmation"]);
  if (row.contains("final")) line += "; " + text_of_final(row["final"]);
  if (row.contains("final_of")) line += fmt::format("; the final of {}", row["final_of"].dump());
  if (row.contains("same_as")) line += fmt::format("; the same flow as {}, whose verdict it shares", row["same_as"].dump());
  if (!row.at("settings").empty()) line += "; " + text_of_settings(row["settings"]);
  if (!row.at("parents").empty())
    line += fmt::format("; parents {}", fmt::join(row["parents"].get<std::vector<int64_t>>(), ", "));
  return line;
}

json brief_submission(const json& submission) {
  json brief = brief_row(submission);
  copy_text(brief, submission, "notes");
  const json evaluation = submission.value("evaluation", json());
  if (!evaluation.is_object()) return brief;
  brief["attempt"] = evaluation.at("attempt");
  copy_text(brief, evaluation, "message");
  copy_text(brief, evaluation, "hint");
  brief["stages"] = stage_rows(evaluation.value("stages", json::array()));
  brief["tasks"] = task_rows(evaluation.value("metrics", json::array()));
  const size_t left_out = cut_list(brief["tasks"], kMostTasks);
  if (left_out > 0) brief["tasks_left_out"] = left_out;
  return brief;
}

std::string text_of_submission(const json& brief) {
  std::string lines = "submission " + text_of_row(brief) + "\n";
  for (const char* member : {"notes", "message", "hint"}) {
    if (brief.contains(member)) lines += fmt::format("{}: {}\n", member, text(brief[member]));
  }
  if (!brief.value("stages", json::array()).empty()) lines += "stages:\n";
  for (const json& stage : brief.value("stages", json::array())) lines += text_of_stage(stage);
  if (!brief.value("tasks", json::array()).empty()) lines += "tasks:\n";
  for (const json& task : brief.value("tasks", json::array())) lines += text_of_task(task);
  if (brief.contains("tasks_left_out")) lines += fmt::format("  and {} more\n", brief["tasks_left_out"].get<size_t>());
  return lines;
}

}  // namespace sluice::mcp
