#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "agents/evaluation/metric_table.h"
#include "agents/evaluation/report.h"
#include "agents/evaluation/report_conditions.h"
#include "scripting/base/printable_text.h"
#include "scripting/base/text_table.h"

namespace sluice {
namespace {

/// A column of results: the accuracy of a group of tasks, or the pass@k of a problem set.
struct Column {
  std::string group;
  int k = 0;  // 0: accuracy

  bool operator==(const Column&) const = default;
};

/// In the order in which tasks appear.
std::vector<Column> columns_of(const Report& report) {
  std::vector<Column> columns;
  const auto add = [&](const Column& column) {
    if (std::find(columns.begin(), columns.end(), column) == columns.end()) columns.push_back(column);
  };
  for (const TaskResult& result : report.dense) {
    add({result.group, 0});
    if (result.k > 1) add({result.group, result.k});  // pass@1 is the accuracy
  }
  return columns;
}

/// "jsonl:sets/aime24.jsonl" is "aime24", "text:books/emma.txt" is "text emma"; where two files are called so, they keep their
/// paths.
std::string title_of(const Column& column, const std::vector<Column>& columns) {
  const auto short_name = [](const std::string& group) {
    const size_t colon = group.find(':');
    if (colon == std::string::npos) return group;
    const std::string stem = std::filesystem::path(group.substr(colon + 1)).stem().string();
    return group.starts_with("jsonl") ? stem : fmt::format("{} {}", group.substr(0, colon), stem);
  };
  const std::string name = short_name(column.group);
  const bool clash = std::any_of(columns.begin(), columns.end(), [&](const Column& other) {
    return other.group != column.group && short_name(other.group) == name;
  });
  const std::string title = clash ? column.group : name;
  return column.k > 0 ? fmt::format("{} pass@{}", title, column.k) : title;
}

/// "98% 91–100": a share and its interval.
std::string share_cell(double share, const Interval& interval) {
  return fmt::format("{:.0f}% {:.0f}–{:.0f}", 100 * share, 100 * interval.low, 100 * interval.high);
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// Whose results they are.
enum class Side : uint8_t { kDense, kFlow };

/// The mean over the texts of a group: of dense attention its loss, of a flow what it has above that. Empty for other groups.
std::string loss_cell(const std::vector<TaskResult>& results, const std::string& group, Side side) {
  std::vector<double> dense;
  std::vector<double> differences;
  double below = 0;  // squares of how far intervals reach
  double above = 0;
  bool has_interval = true;
  for (const TaskResult& result : results) {
    if (result.group != group || !result.loss) continue;
    const LossResult& loss = *result.loss;
    dense.push_back(loss.dense_loss);
    differences.push_back(loss.difference);
    has_interval &= loss.interval.has_value();
    if (!loss.interval) continue;
    below += std::pow(loss.difference - loss.interval->low, 2);
    above += std::pow(loss.interval->high - loss.difference, 2);
  }
  if (dense.empty()) return {};
  if (side == Side::kDense) return fmt::format("{:.3f}", mean_of(dense));
  const double mean = mean_of(differences);
  if (!has_interval) return metrics::number_text(metrics::kLoss.name, mean);
  const auto count = static_cast<double>(differences.size());
  return metrics::number_text(metrics::kLoss.name, mean, mean - std::sqrt(below) / count, mean + std::sqrt(above) / count);
}

/// Over all samples of a group.
std::string accuracy_cell(const std::vector<TaskResult>& results, const std::string& group, Side side) {
  if (std::string loss = loss_cell(results, group, side); !loss.empty()) return loss;
  std::vector<std::vector<Cluster>> tasks;
  double credit = 0;
  double samples = 0;
  for (const TaskResult& result : results) {
    if (result.group != group) continue;
    tasks.push_back(result.clusters);
    for (const Cluster& cluster : result.clusters) {
      credit += cluster.credit;
      samples += cluster.samples;
    }
  }
  if (samples == 0) return "-";
  return share_cell(credit / samples, pooled_wilson(tasks));
}

std::string pass_cell(const std::vector<TaskResult>& results, const Column& column) {
  double sum = 0;
  int problems = 0;
  for (const TaskResult& result : results) {
    if (result.group != column.group || result.k != column.k) continue;
    sum += result.pass_at_k * result.documents;
    problems += result.documents;
  }
  return problems == 0 ? "-" : fmt::format("{:.0f}%", 100 * sum / problems);
}

/// Whether a mean over tasks says more than the columns do.
bool has_mean(const std::vector<Column>& columns) {
  return std::count_if(columns.begin(), columns.end(), [](const Column& column) { return column.k == 0; }) > 1;
}

std::string mean_cell(const std::optional<MeanAccuracy>& mean) { return mean ? share_cell(mean->accuracy, mean->interval) : "-"; }

TableRow cells(const std::vector<TaskResult>& results, const std::vector<Column>& columns, Side side) {
  TableRow row;
  for (const Column& column : columns) {
    row.push_back(column.k > 0 ? pass_cell(results, column) : accuracy_cell(results, column.group, side));
  }
  return row;
}

void append(TableRow& row, const TableRow& more) { row.insert(row.end(), more.begin(), more.end()); }

// Of a flow (SpeedResult) or of one of its tasks (TaskSpeed).

std::string speed_cell(const auto& speed) {
  return metrics::number_text(metrics::kSpeedup.name, speed.speedup.ratio, speed.speedup.low, speed.speedup.high);
}

std::string pages_cell(const auto& speed) { return metrics::number_text(metrics::kPagesRead.name, speed.pages_read); }

std::string mass_cell(const auto& speed) {
  return speed.mass.empty() ? "-" : metrics::number_text(metrics::kMass.name, mean_of(speed.mass));
}

std::string metric_cell(const MetricInfo& metric, double value, const std::optional<Interval>& interval) {
  return interval ? metrics::number_text(metric.name, value, interval->low, interval->high)
                  : metrics::number_text(metric.name, value);
}

/// Of a flow, or of a head of it.
std::string trace_cell(const MetricInfo& metric, const TraceScore& score) {
  return metric_cell(metric, score.mean, score.interval);
}

TableRow trace_cells(const TraceScores& scores) {
  return {trace_cell(metrics::kTraceMass, scores.mass), trace_cell(metrics::kTraceRegret, scores.regret),
          trace_cell(metrics::kTraceError, scores.error)};
}

bool has_traces(const FlowReport& flow) { return flow.traces.has_value(); }

bool has_score(const FlowReport& flow) { return flow.score.has_value(); }

/// Columns of the table of flows that it has where a flow has something in them.
struct OptionalColumns {
  bool traces = false;
  bool score = false;
};

TableRow flow_row(const FlowReport& flow, const std::vector<Column>& columns, OptionalColumns with) {
  TableRow row = {flow.name};
  append(row, cells(flow.tasks, columns, Side::kFlow));
  if (has_mean(columns)) row.push_back(mean_cell(flow.mean));
  if (flow.speed) {
    append(row, {speed_cell(*flow.speed) + mark_of(*flow.speed), pages_cell(*flow.speed), mass_cell(*flow.speed)});
  } else {
    row.insert(row.end(), 3, "-");
  }
  if (with.traces) row.push_back(flow.traces ? trace_cell(metrics::kTraceMass, flow.traces->scores.mass) : "-");
  if (with.score) row.push_back(flow.score ? metric_cell(metrics::kScore, flow.score->value, flow.score->interval) : "-");
  row.push_back(name_of(flow.status));
  return row;
}

/// Of flows that no question was asked of: what they keep of a real model's attention.
std::string traces_table(const Report& report) {
  std::vector<TableRow> rows = {{"flow", metrics::kTraceMass.column, metrics::kTraceRegret.column, metrics::kTraceError.column,
                                 metrics::kPagesRead.column, "status"}};
  for (const FlowReport& flow : report.flows) {
    TableRow row = {flow.name};
    append(row, flow.traces ? trace_cells(flow.traces->scores) : TableRow(3, "-"));
    append(row, {flow.traces ? pages_cell(*flow.traces) : "-", name_of(flow.status)});
    rows.push_back(std::move(row));
  }
  return aligned_table(rows);
}

/// A row a flow, recorded layer and KV head.
std::string trace_head_table(const Report& report) {
  std::vector<TableRow> rows = {{"flow", "layer", "KV head", metrics::kTraceMass.column, metrics::kTraceRegret.column,
                                 metrics::kTraceError.column, metrics::kPagesRead.column}};
  for (const FlowReport& flow : report.flows) {
    if (!flow.traces) continue;
    for (const TraceHead& head : flow.traces->heads) {
      TableRow row = {flow.name, std::to_string(head.layer), std::to_string(head.kv_head)};
      append(row, trace_cells(head.scores));
      row.push_back(pages_cell(head));
      rows.push_back(std::move(row));
    }
  }
  return aligned_table(rows);
}

/// A row a flow and task.
std::string task_table(const Report& report) {
  std::vector<TableRow> rows = {
      {"flow", "stage", "task", "tokens", "samples", "documents", "accuracy", "dense", "lost", "gained", "p"}};
  for (const FlowReport& flow : report.flows) {
    for (const TaskResult& task : flow.tasks) {
      if (task.loss) {
        rows.push_back({flow.name, task.stage, task.task, std::to_string(task.tokens), std::to_string(task.samples),
                        std::to_string(task.documents), loss_cell({task}, task.group, Side::kFlow),
                        fmt::format("{:.3f}", task.loss->dense_loss), "-", "-", "-"});
        continue;
      }
      rows.push_back({flow.name, task.stage, task.task, std::to_string(task.tokens), std::to_string(task.samples),
                      std::to_string(task.documents), share_cell(task.accuracy, task.interval),
                      share_cell(task.dense_accuracy, task.dense_interval), std::to_string(task.lost),
                      std::to_string(task.gained), fmt::format("{:.2g}", task.p_value)});
    }
  }
  return aligned_table(rows);
}

/// "-3.1 (-8.0 to +1.2)": points of accuracy.
std::string points_cell(double difference, const Interval& interval) {
  return fmt::format("{:+.1f} ({:+.1f} to {:+.1f})", 100 * difference, 100 * interval.low, 100 * interval.high);
}

/// A row a flow: means over its tasks, and how far it is from dense attention on the same samples.
std::string mean_table(const Report& report) {
  std::vector<TableRow> rows = {{"flow", "tasks", "mean", "dense", "points from dense"}};
  for (const FlowReport& flow : report.flows) {
    if (!flow.mean) continue;
    const auto counts = std::count_if(flow.tasks.begin(), flow.tasks.end(), [](const TaskResult& task) { return task.counted; });
    rows.push_back({flow.name, std::to_string(counts), mean_cell(flow.mean),
                    share_cell(flow.mean->dense_accuracy, flow.mean->dense_interval),
                    points_cell(flow.mean->difference, flow.mean->difference_interval)});
  }
  return rows.size() > 1 ? aligned_table(rows) : "";
}

/// A row a flow and task that was timed.
std::string speed_table(const Report& report) {
  std::vector<TableRow> rows = {{"flow", "stage", "task", "tokens", "batch", metrics::kSpeedup.column, "limit",
                                 metrics::kPagesRead.column, metrics::kMass.column}};
  for (const FlowReport& flow : report.flows) {
    if (!flow.speed) continue;
    for (const TaskSpeed& task : flow.speed->tasks) {
      rows.push_back({flow.name, task.stage, task.task, std::to_string(task.tokens), std::to_string(task.batch), speed_cell(task),
                      metrics::number_text(metrics::kSpeedup.name, task.limit), pages_cell(task), mass_cell(task)});
    }
  }
  return rows.size() > 1 ? aligned_table(rows) : "";
}

/// A row two flows that were asked the same questions.
std::string difference_table(const Report& report) {
  std::vector<TableRow> rows = {{"flow", "beside", "tasks", "points", "p"}};
  for (const FlowDifference& pair : report.differences) {
    rows.push_back({pair.flow, pair.other, std::to_string(pair.tasks), points_cell(pair.difference, pair.interval),
                    fmt::format("{:.2g}", pair.p_value)});
  }
  return rows.size() > 1 ? aligned_table(rows) : "";
}

/// A row a flow and length, where there are several.
std::string length_table(const Report& report) {
  std::vector<TableRow> rows = {
      {"flow", "tokens", "mean", "dense", "points from dense", metrics::kSpeedup.column, "limit", metrics::kPagesRead.column}};
  for (const FlowReport& flow : report.flows) {
    if (flow.lengths.size() < 2) continue;
    for (const LengthResult& length : flow.lengths) {
      TableRow row = {flow.name, std::to_string(length.tokens), mean_cell(length.mean)};
      if (length.mean) {
        append(row, {share_cell(length.mean->dense_accuracy, length.mean->dense_interval),
                     points_cell(length.mean->difference, length.mean->difference_interval)});
      } else {
        row.insert(row.end(), 2, "-");
      }
      if (length.speed) {
        append(row, {speed_cell(*length.speed), metrics::number_text(metrics::kSpeedup.name, length.speed->limit),
                     pages_cell(*length.speed)});
      } else {
        row.insert(row.end(), 3, "-");
      }
      rows.push_back(std::move(row));
    }
  }
  return rows.size() > 1 ? aligned_table(rows) : "";
}

/// What figures of traces are of.
std::string traces_text(const Report& report) {
  const TraceResult& traces = *std::find_if(report.flows.begin(), report.flows.end(), has_traces)->traces;
  return fmt::format("\nTraces: attention of {}, {} window{} of {} tokens, the last {} decoded; 95% intervals.\n", traces.model,
                     traces.windows, traces.windows == 1 ? "" : "s", traces.tokens, traces.steps);
}

/// A line for dense attention, and one a flow.
std::string accuracy_table(const Report& report, OptionalColumns with) {
  const std::vector<Column> columns = columns_of(report);
  TableRow header = {"flow"};
  for (const Column& column : columns) header.push_back(title_of(column, columns));
  if (has_mean(columns)) header.push_back("mean");
  append(header, {metrics::kSpeedup.column, metrics::kPagesRead.column, metrics::kMass.column});
  TableRow dense = {"(dense)"};
  append(dense, cells(report.dense, columns, Side::kDense));
  if (has_mean(columns)) dense.push_back(mean_cell(report.dense_mean));
  append(dense, {"1", "100%", "100%"});
  if (with.traces) {
    header.push_back(metrics::kTraceMass.column);
    dense.push_back("100%");
  }
  if (with.score) {
    header.push_back(metrics::kScore.column);
    dense.push_back("");
  }
  header.push_back("status");
  dense.push_back("");
  std::vector<TableRow> rows = {header, dense};
  for (const FlowReport& flow : report.flows) rows.push_back(flow_row(flow, columns, with));
  return aligned_table(rows);
}

}  // namespace

std::string to_table(const Report& report, bool details) {
  const bool any_traces = std::any_of(report.flows.begin(), report.flows.end(), has_traces);
  const bool any_scores = std::any_of(report.flows.begin(), report.flows.end(), has_score);
  std::string text = report.suite == kTracesAlone ? traces_table(report) : accuracy_table(report, {any_traces, any_scores});
  if (details && !report.dense.empty() && !report.flows.empty()) {
    for (const std::string& table : {task_table(report), mean_table(report), difference_table(report), length_table(report),
                                     speed_table(report), conditions_table(report)}) {
      if (!table.empty()) text += "\n" + table;
    }
  }
  if (details && any_traces) text += "\n" + trace_head_table(report);
  for (const FlowReport& flow : report.flows) {
    if (flow.message.empty()) continue;
    text += fmt::format("\n{}, {}: {}\n", flow.name, flow.stage, flow.message);
    if (!flow.hint.empty()) text += fmt::format("  hint: {}\n", flow.hint);
  }
  for (const FlowReport& flow : report.flows) {
    if (flow.untraced.empty()) continue;
    text += fmt::format("\n{}, traces: {}\n", flow.name, flow.untraced);
    if (!flow.untraced_hint.empty()) text += fmt::format("  hint: {}\n", flow.untraced_hint);
  }
  for (const FlowReport& flow : report.flows) {
    if (flow.tasks.empty()) continue;  // no prompt was computed
    if (flow.prefill == "pattern") text += fmt::format("\n{}: prompts were computed under its pattern, too.\n", flow.name);
    if (flow.prefill == "dense")
      text += fmt::format("\n{}: prompts were computed densely; only answers have its pattern.\n", flow.name);
  }
  text += conditions_notes(report);
  for (const std::string& note : report.notes) text += fmt::format("\n{}\n", note);
  for (const std::string& error : report.errors) text += fmt::format("\nnot run: {}\n", error);
  if (std::any_of(report.dense.begin(), report.dense.end(), [](const TaskResult& task) { return task.loss.has_value(); })) {
    text += "\nOf texts dense attention has its loss in nats a token, and flows what they lose beyond that.\n";
  }
  for (const FlowReport& flow : report.flows) {
    if (!flow.speed) continue;
    const char* const what =
        report.times_first_token ? "the time to the first token of such prompts," : "decoding the same answers";
    text += fmt::format(
        "\nAccuracy is the mean credit of answers, with 95% intervals. Speed is {}\n"
        "against dense attention, the geometric mean over tasks of up to {} tokens, batches of up to {}.\n",
        what, flow.speed->tokens, flow.speed->batch);
    break;
  }
  if (any_traces) text += traces_text(report);
  if (any_scores && report.dialect == "mini" && !report.times_first_token) {
    text +=
        "Score: a fifth is the accuracy, the rest exp(-8 error) on traces, less for flows that read more there than where "
        "timed.\n";
  }
  if (report.suite != kTracesAlone) text += fmt::format("Seed {}\n", report.seed);
  return printable(text);
}

}  // namespace sluice
