#include <cmath>
#include <nlohmann/json.hpp>

#include "agents/evaluation/metric_table.h"
#include "agents/evaluation/report.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

/// What tasks of all kinds have.
ordered_json about(const TaskResult& result) {
  return {{"name", result.task},
          {"stage", result.stage},
          {"tokens", result.tokens},
          {"samples", result.samples},
          {"documents", result.documents},
          {metrics::kAccuracy.report.value, result.accuracy},
          {metrics::kAccuracy.report.low, result.interval.low},
          {metrics::kAccuracy.report.high, result.interval.high}};
}

void put_dense(ordered_json& json, const TaskResult& result) {
  json[metrics::kDenseAccuracy.report.value] = result.dense_accuracy;
  json[metrics::kDenseAccuracy.report.low] = result.dense_interval.low;
  json[metrics::kDenseAccuracy.report.high] = result.dense_interval.high;
}

/// Digits that tell credits apart, which are fractions of few parts.
ordered_json rounded(const std::vector<double>& numbers) {
  constexpr double kDigits = 1e6;
  ordered_json list = ordered_json::array();
  for (const double number : numbers) list.push_back(std::round(number * kDigits) / kDigits);
  return list;
}

/// Nothing of it is right or wrong.
ordered_json loss_to_json(const TaskResult& result) {
  const LossResult& loss = *result.loss;
  ordered_json json = about(result);
  put_dense(json, result);
  json["loss"] = loss.loss;
  json["dense_loss"] = loss.dense_loss;
  json[metrics::kLoss.report.value] = loss.difference;
  json[metrics::kLoss.report.low] = loss.interval ? ordered_json(loss.interval->low) : ordered_json();
  json[metrics::kLoss.report.high] = loss.interval ? ordered_json(loss.interval->high) : ordered_json();
  json["kept"] = loss.kept();
  json["loss_differences"] = rounded(loss.differences);
  return json;
}

ordered_json answers_to_json(const TaskResult& result) {
  ordered_json json = about(result);
  json["whole"] = result.whole;
  json["dense_whole"] = result.dense_whole;
  put_dense(json, result);
  json["lost"] = result.lost;
  json["gained"] = result.gained;
  json["p_value"] = result.p_value;
  json["credits"] = ordered_json::array();
  for (const std::vector<double>& document : result.credits) json["credits"].push_back(rounded(document));
  if (result.task.rfind("jsonl:", 0) == 0) {
    json["generations"] = result.generations;
    json["k"] = result.k;
    json["pass_at_k"] = result.pass_at_k;
    json["dense_pass_at_k"] = result.dense_pass_at_k;
  }
  return json;
}

ordered_json to_json(const TaskResult& result) {
  ordered_json json = result.loss ? loss_to_json(result) : answers_to_json(result);
  if (!result.counted) json["counted"] = false;
  return json;
}

ordered_json list_of(const std::vector<TaskResult>& results) {
  ordered_json list = ordered_json::array();
  for (const TaskResult& result : results) list.push_back(to_json(result));
  return list;
}

/// Of one task, or of all.
void put(ordered_json& json, const Ratio& speedup) {
  json[metrics::kSpeedup.report.value] = speedup.ratio;
  json[metrics::kSpeedup.report.low] = speedup.low;
  json[metrics::kSpeedup.report.high] = speedup.high;
}

ordered_json to_json(const TaskSpeed& task) {
  ordered_json json = {{"name", task.task}, {"stage", task.stage}, {"tokens", task.tokens}, {"batch", task.batch}};
  put(json, task.speedup);
  json["limit"] = task.limit;
  json[metrics::kPagesRead.report.value] = task.pages_read;
  return json;
}

ordered_json to_json(const ClockSummary& clocks) {
  return {{"samples", clocks.samples},
          {"sm_mhz", clocks.sm_mhz},
          {"sm_mhz_low", clocks.least_sm_mhz},
          {"sm_mhz_limit", clocks.sm_limit_mhz},
          {"memory_mhz", clocks.memory_mhz},
          {"held_by", clocks.held_by},
          {"other_processes", clocks.other_processes ? ordered_json(*clocks.other_processes) : ordered_json()}};
}

/// What is not known is null.
void put(ordered_json& json, const TimingConditions& conditions) {
  const std::optional<bool> quiet = conditions.had_quiet();
  const std::optional<OthersLoad> others = conditions.others();
  const std::optional<ClockSummary> clocks = summary_of(conditions.clocks);
  json["quiet"] = quiet ? ordered_json(*quiet) : ordered_json();
  json["others_busy"] = others ? ordered_json(others->busy) : ordered_json();
  json["cores"] = others ? ordered_json(others->cores) : ordered_json();
  json["waited"] = conditions.waited;
  json["clocks"] = clocks ? to_json(*clocks) : ordered_json();
}

ordered_json speedup_of(const SpeedResult& speed) {
  ordered_json json;
  put(json, speed.speedup);
  json["limit"] = speed.limit;
  json["tokens"] = speed.tokens;
  json["batch"] = speed.batch;
  json["pairs"] = speed.pairs;
  json["dense_tokens_per_second"] = speed.dense_tokens_per_second;
  json["flow_tokens_per_second"] = speed.flow_tokens_per_second;
  put(json, speed.conditions);
  json["tasks"] = ordered_json::array();
  for (const TaskSpeed& task : speed.tasks) json["tasks"].push_back(to_json(task));
  return json;
}

/// What is not there is null.
void put(ordered_json& json, const MetricInfo& metric, std::optional<double> value, const std::optional<Interval>& interval) {
  json[metric.report.value] = value ? ordered_json(*value) : ordered_json();
  json[metric.report.low] = interval ? ordered_json(interval->low) : ordered_json();
  json[metric.report.high] = interval ? ordered_json(interval->high) : ordered_json();
}

void put(ordered_json& json, const TraceScores& scores) {
  put(json, metrics::kTraceMass, scores.mass.mean, scores.mass.interval);
  put(json, metrics::kTraceRegret, scores.regret.mean, scores.regret.interval);
  put(json, metrics::kTraceError, scores.error.mean, scores.error.interval);
}

ordered_json to_json(const TraceResult& traces) {
  ordered_json json = {{"model", traces.model},
                       {"digest", traces.digest},
                       {"windows", traces.windows},
                       {"tokens", traces.tokens},
                       {"steps", traces.steps},
                       {"sparse_layers", traces.sparse_layers},
                       {metrics::kPagesRead.report.value, traces.pages_read}};
  put(json, traces.scores);
  json["heads"] = ordered_json::array();
  for (const TraceHead& head : traces.heads) {
    ordered_json entry = {{"layer", head.layer}, {"kv_head", head.kv_head}, {metrics::kPagesRead.report.value, head.pages_read}};
    put(entry, head.scores);
    json["heads"].push_back(std::move(entry));
  }
  return json;
}

ordered_json to_json(const MeanAccuracy& mean) {
  const ReportMembers& flow = metrics::kAccuracy.report;
  const ReportMembers& dense = metrics::kDenseAccuracy.report;
  return {{flow.value, mean.accuracy},
          {flow.low, mean.interval.low},
          {flow.high, mean.interval.high},
          {dense.value, mean.dense_accuracy},
          {dense.low, mean.dense_interval.low},
          {dense.high, mean.dense_interval.high},
          {"difference", mean.difference},
          {"difference_low", mean.difference_interval.low},
          {"difference_high", mean.difference_interval.high}};
}

ordered_json to_json(const FlowDifference& pair) {
  return {{"flow", pair.flow},
          {"other", pair.other},
          {"tasks", pair.tasks},
          {"difference", pair.difference},
          {"difference_low", pair.interval.low},
          {"difference_high", pair.interval.high},
          {"p_value", pair.p_value}};
}

ordered_json to_json(const LengthResult& length) {
  ordered_json json = {{"tokens", length.tokens}, {"mean", length.mean ? to_json(*length.mean) : ordered_json()}};
  json[metrics::kSpeedup.name] = nullptr;
  json[metrics::kPagesRead.report.value] = nullptr;
  if (!length.speed) return json;
  ordered_json& speedup = json[metrics::kSpeedup.name] = ordered_json::object();
  put(speedup, length.speed->speedup);
  speedup["limit"] = length.speed->limit;
  json[metrics::kPagesRead.report.value] = length.speed->pages_read;
  return json;
}

ordered_json to_json(const FlowReport& flow) {
  ordered_json json = {{"name", flow.name}, {"path", flow.path}, {"status", name_of(flow.status)}};
  if (!flow.stage.empty()) json["stage"] = flow.stage;
  if (!flow.message.empty()) json["message"] = flow.message;
  if (!flow.hint.empty()) json["hint"] = flow.hint;
  if (!flow.prefill.empty() && !flow.tasks.empty()) json["prefill"] = flow.prefill;
  if (!flow.untimed.empty()) json["untimed"] = flow.untimed;
  const FlowScore score = flow.score.value_or(FlowScore());
  put(json, metrics::kScore, flow.score ? std::optional(score.value) : std::nullopt, score.interval);
  json["stages"] = ordered_json::array();
  for (const StageTime& stage : flow.stages) json["stages"].push_back({{"name", stage.name}, {"seconds", stage.seconds}});
  if (!flow.untraced.empty()) json["untraced"] = flow.untraced;
  if (!flow.untraced_hint.empty()) json["untraced_hint"] = flow.untraced_hint;
  json["traces"] = flow.traces ? to_json(*flow.traces) : ordered_json();
  json["tasks"] = list_of(flow.tasks);
  json["mean"] = flow.mean ? to_json(*flow.mean) : ordered_json();
  for (const MetricInfo& metric : {metrics::kSpeedup, metrics::kPagesRead, metrics::kMass}) json[metric.name] = nullptr;
  if (flow.speed) {
    json[metrics::kSpeedup.name] = speedup_of(*flow.speed);
    json[metrics::kPagesRead.report.value] = flow.speed->pages_read;
    if (!flow.speed->mass.empty()) json[metrics::kMass.report.value] = flow.speed->mass;
  }
  json["lengths"] = ordered_json::array();
  for (const LengthResult& length : flow.lengths) json["lengths"].push_back(to_json(length));
  return json;
}

ordered_json to_json(const AskedQuestion& question) {
  ordered_json json = {{"task", question.task}, {"tokens", question.tokens}};
  if (question.prompt_tokens.empty()) {
    json["prompt"] = question.prompt;
    json["answer"] = question.answer;
  } else {
    json["prompt_tokens"] = question.prompt_tokens;
    json["given"] = question.given;
  }
  json["said"] = ordered_json::array();
  for (const AskedQuestion::Said& said : question.said) {
    ordered_json& one = json["said"].emplace_back();
    one["by"] = said.by.empty() ? ordered_json() : ordered_json(said.by);
    if (said.loss) {
      one["loss"] = *said.loss;
    } else {
      one["text"] = said.text;
      one["ended"] = said.ended;
      one["credit"] = said.credit;
    }
  }
  return json;
}

}  // namespace

const char* name_of(FlowStatus status) {
  switch (status) {
    case FlowStatus::kPassed:
      return "passed";
    case FlowStatus::kRejectedStatic:
      return "rejected_static";
    case FlowStatus::kIncorrectNumerical:
      return "incorrect_numerical";
    case FlowStatus::kBelowThreshold:
      return "below_threshold";
    case FlowStatus::kRuntimeError:
      return "runtime_error";
  }
  return "";
}

std::string to_json(const Report& report) {
  ordered_json json = {{"schema", "sluice.eval/1"}, {"device", report.device},  {"device_description", report.device_description},
                       {"model", report.model},     {"suite", report.suite},    {"dialect", report.dialect},
                       {"seed", report.seed},       {"seconds", report.seconds}};
  json["dense"] = {{"tasks", list_of(report.dense)}, {"mean", report.dense_mean ? to_json(*report.dense_mean) : ordered_json()}};
  json["flows"] = ordered_json::array();
  if (report.times_first_token) json["speed_of"] = "first_token";
  if (!report.notes.empty()) json["notes"] = report.notes;
  if (!report.errors.empty()) json["errors"] = report.errors;
  for (const FlowReport& flow : report.flows) json["flows"].push_back(to_json(flow));
  for (const FlowDifference& pair : report.differences) json["differences"].push_back(to_json(pair));
  for (const AskedQuestion& question : report.questions) json["questions"].push_back(to_json(question));
  // A path need not be UTF-8; such bytes are replaced, not refused.
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace sluice
