#include "agents/orchestrator/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "agents/evaluation/credits.h"
#include "agents/evaluation/holdout.h"
#include "agents/evaluation/metric_table.h"
#include "agents/evaluation/statistics.h"
#include "host/weights/model_name.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "store/error.h"

namespace sluice {
namespace {

using nlohmann::json;
using store::Metric;
using store::StageResult;
using store::StageStatus;
using store::Verdict;

constexpr int64_t kMostTokens = int64_t{1} << 30;
constexpr double kMostSeconds = 1e9;
constexpr const char* kFirstStage = "verify";
constexpr const char* kSpeedStage = "speed";
constexpr const char* kTracesStage = "traces";

std::string text_or_empty(const JsonObject& object, const char* key) {
  const std::string* text = object.find_text(key);
  return text != nullptr ? *text : std::string();
}

/// `info` with nothing measured yet.
Metric metric_of(const MetricInfo& info) {
  Metric metric;
  metric.name = info.name;
  metric.unit = info.unit();
  return metric;
}

/// What `object` has of `info`, with its interval.
Metric measured(const JsonObject& object, const MetricInfo& info) {
  constexpr double kMost = 1e12;
  Metric metric = metric_of(info);
  metric.value = object.number(info.report.value, -kMost, kMost);
  metric.low = object.find_number(info.report.low, -kMost, kMost);
  metric.high = object.find_number(info.report.high, -kMost, kMost);
  return metric;
}

Metric measured_of_task(const JsonObject& task, const MetricInfo& info) {
  Metric metric = measured(task, info);
  metric.task = task.text("name");
  metric.length = task.integer("tokens", 0, kMostTokens);
  return metric;
}

/// The tasks of a flow, in the order in which they were asked.
class Tasks {
 public:
  explicit Tasks(const JsonObject& flow) : documents_(flow.array("tasks")), mean_(flow.find_object("mean")) {
    for (const json& task : documents_) tasks_.emplace_back(task, flow.where() + ", task");
  }

  /// That of each task that has it, and the mean of those that count.
  void add(const MetricInfo& info, std::vector<Metric>& metrics) const {
    Metric mean = metric_of(info);
    double sum = 0;
    int counted = 0;
    for (const JsonObject& task : tasks_) {
      if (!task.has(info.report.value)) continue;
      metrics.push_back(measured_of_task(task, info));
      if (!task.boolean("counted", true)) continue;
      sum += metrics.back().value;
      ++counted;
    }
    if (counted == 0) return;
    mean.value = sum / counted;
    if (mean_ && mean_->has(info.report.value)) mean = measured(*mean_, info);  // with an interval
    metrics.push_back(std::move(mean));
  }

  /// As the report has them: shares and counts, and nothing of what was asked.
  json of_stage(const std::string& stage) const {
    json found = json::array();
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (tasks_[i].text("stage") == stage) found.push_back(documents_.at(i));
    }
    return found;
  }

 private:
  const json& documents_;
  std::optional<JsonObject> mean_;
  std::vector<JsonObject> tasks_;
};

/// That of the whole, and each task's where the report has them.
void add_speedup(const MetricInfo& info, const JsonObject& speedup, std::vector<Metric>& metrics) {
  if (speedup.has("tasks")) {
    for (const json& task : speedup.array("tasks")) {
      metrics.push_back(measured_of_task(JsonObject(task, speedup.where() + ", task"), info));
    }
  }
  metrics.push_back(measured(speedup, info));
}

double mean_of_layers(const json& layers) {
  double mean = 0;
  for (const json& layer : layers) mean += layer.get<double>() / static_cast<double>(std::max<size_t>(1, layers.size()));
  return mean;
}

std::vector<Metric> metrics_of(const JsonObject& flow, const Tasks& tasks) {
  std::vector<Metric> metrics;
  const auto speedup = flow.find_object(metrics::kSpeedup.name);  // null, as all that is measured with it, if it was not timed
  const auto traces = flow.find_object("traces");                 // null if the flow does not run on the model that was recorded
  for (const MetricInfo& info : metrics::kAll) {
    if (info.report.place == ReportPlace::kTasks) tasks.add(info, metrics);
    if (info.report.place == ReportPlace::kTraces && traces) metrics.push_back(measured(*traces, info));
    if (info.report.place == ReportPlace::kSpeedup && speedup) add_speedup(info, *speedup, metrics);
    const bool is_of_flow = info.report.place == ReportPlace::kFlow || info.report.place == ReportPlace::kLayers;
    if (!is_of_flow || !flow.has(info.report.value)) continue;
    if (info.report.place == ReportPlace::kFlow) {
      metrics.push_back(measured(flow, info));
      metrics.back().value = flow.number(info.report.value, 0, 1);
      continue;
    }
    Metric metric = metric_of(info);
    metric.value = mean_of_layers(flow.array(info.report.value));
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

store::Status status_in(const JsonObject& flow) {
  try {
    return store::status_of(flow.text("status"));
  } catch (const store::StoreError&) {
    flow.refuse("status", "there is no such status");
  }
}

/// Throws InputError if there is none, or another.
JsonObject only_flow(const JsonObject& report) {
  const json& flows = report.array("flows");
  if (flows.size() != 1) throw InputError(fmt::format("a report of {} flows, where one was judged", flows.size()));
  return {flows[0], "report, flow"};
}

StageResult failed_stage(const std::string& name, const std::string& message) {
  StageResult stage;
  stage.stage = name;
  stage.status = StageStatus::kFailed;
  stage.message = message;
  return stage;
}

/// What was measured: the speedup with all that belongs to it, pages read, mass by layer. Null if it could not be measured.
json speed_details(const JsonObject& flow) {
  const json* speedup = flow.find(metrics::kSpeedup.name);
  if (speedup == nullptr) return nullptr;
  json details = *speedup;
  for (const MetricInfo& info : {metrics::kPagesRead, metrics::kMass}) {
    if (flow.has(info.report.value)) details[info.report.value] = flow.at(info.report.value);  // patterns have no mass
  }
  return details;
}

/// One of the stages that the flow came to.
StageResult stage_of(const JsonObject& stage, const JsonObject& flow, const Tasks& tasks, const Verdict& verdict) {
  StageResult result;
  result.stage = stage.text("name");
  result.seconds = stage.number("seconds", 0, kMostSeconds);
  json details = json::object();
  if (json asked = tasks.of_stage(result.stage); !asked.empty()) details["tasks"] = std::move(asked);
  const bool told = text_or_empty(flow, "stage") == result.stage;
  if (told) result.message = verdict.message;
  if (told && verdict.status != store::Status::kPassed) result.status = StageStatus::kFailed;
  if (result.stage == kTracesStage) {
    if (flow.has("traces")) {
      details = flow.at("traces");
    } else if (flow.has("untraced")) {
      result.status = StageStatus::kSkipped;
      result.message = flow.text("untraced");
      if (const std::string hint = text_or_empty(flow, "untraced_hint"); !hint.empty()) result.message += "; " + hint;
    }
  }
  if (result.stage == kSpeedStage && result.status == StageStatus::kPassed) {
    if (json speed = speed_details(flow); !speed.is_null()) {
      details = std::move(speed);
    } else {
      result.status = StageStatus::kSkipped;
      if (flow.has("untimed")) result.message = flow.text("untimed");
    }
  }
  result.details = details.dump();
  return result;
}

IntervalScale scale_of(const MetricInfo* metric) {
  if (metric == nullptr || metric->form == MetricForm::kNats) return IntervalScale::kPlain;
  return metric->form == MetricForm::kShare ? IntervalScale::kShare : IntervalScale::kRatio;
}

/// Results of all stages; the last is the one that ended the flow.
std::vector<StageResult> stages_of(const JsonObject& flow, const Tasks& tasks, const Verdict& verdict) {
  std::vector<StageResult> stages;
  bool found = verdict.status == store::Status::kPassed;
  for (const json& stage : flow.array("stages")) {
    stages.push_back(stage_of(JsonObject(stage, flow.where() + ", stage"), flow, tasks, verdict));
    found |= stages.back().status == StageStatus::kFailed;
  }
  if (!found) stages.push_back(failed_stage(text_or_empty(flow, "stage"), verdict.message));
  return stages;
}

}  // namespace

store::Verdict verdict_of(const std::string& report) {
  json document = parse_json(report, "report");
  const JsonObject root(document, "report");
  if (root.has("errors") && !root.array("errors").empty()) {
    throw InputError(fmt::format("not everything could be measured: {}", root.array("errors").front().dump()));
  }
  const json credits = take_credits(document);
  const JsonObject flow = only_flow(root);
  store::Verdict verdict;
  verdict.status = status_in(flow);
  verdict.message = text_or_empty(flow, "message");
  verdict.hint = text_or_empty(flow, "hint");
  if (verdict.status == store::Status::kRuntimeError && text_or_empty(flow, "stage") == kFirstStage) {
    throw InputError(verdict.message);
  }
  const Tasks tasks(flow);
  verdict.stages = stages_of(flow, tasks, verdict);
  verdict.metrics = metrics_of(flow, tasks);
  document.erase("seed");
  document["model"] = model_name(root.text("model"));
  const auto keep = [&](const char* name, std::string bytes) {
    verdict.artifacts.push_back({.name = name, .media_type = "application/json", .bytes = std::move(bytes), .size = 0});
  };
  keep("report.json", document.dump(2));
  if (!credits.at("tasks").empty()) keep(kCreditsArtifact, credits.dump());
  return verdict;
}

void add_holdout(store::Verdict& verdict, const std::string& report) {
  const json document = parse_json(report, "report");
  const JsonObject root(document, "report");
  const JsonObject flow = only_flow(root);
  const store::Status status = status_in(flow);
  const bool has_error = status == store::Status::kRuntimeError;
  if (has_error && text_or_empty(flow, "stage") == kFirstStage) throw InputError("the flow could not be loaded for the holdout");
  StageResult stage;
  stage.stage = kHoldout;  // how long it took would tell how much was asked
  const auto mean = flow.find_object("mean");
  if (status != store::Status::kPassed && text_or_empty(flow, "stage") != kUnjudged) {
    stage.status = StageStatus::kFailed;
    stage.message = "it comes to no end on questions that the suite does not ask";
    verdict.status = status;
    verdict.message = stage.message;
    verdict.hint = "a flow should not go by the lengths and the texts that it is asked about";
  } else if (status != store::Status::kPassed || !mean) {
    stage.status = StageStatus::kSkipped;
    stage.message = flow.array("stages").size() > 1 ? "dense attention answers too little of what the suite does not ask"
                                                    : "the suite asks nothing of which something could be held out";
  } else {
    verdict.metrics.push_back(measured(*mean, metrics::kHeldOut));
    const Metric dense = measured(*mean, metrics::kDenseAccuracy);
    stage.details = json{{"dense_accuracy", dense.value}, {"dense_low", *dense.low}, {"dense_high", *dense.high}}.dump();
    stage.message = fmt::format("dense attention: {}", metrics::number_text(dense.name, dense.value, *dense.low, *dense.high));
  }
  verdict.stages.push_back(std::move(stage));
}

store::Verdict confirmed_verdict(store::Verdict verdict, const store::ConfirmationJob& job) {
  if (verdict.status == store::Status::kRuntimeError) {
    verdict.metrics.clear();
    verdict.artifacts.clear();
    for (StageResult& stage : verdict.stages) stage.details = "{}";
  }
  const double miss = miss_of_try(job.tries);
  for (Metric& metric : verdict.metrics) {
    if (!metric.low || !metric.high) continue;
    const MetricInfo* info = metrics::find(metric.name);
    const Interval wide = widened(metric.value, {*metric.low, *metric.high}, miss, scale_of(info));
    metric.low = wide.low;
    metric.high = wide.high;
  }
  verdict.seed = job.seed;
  return verdict;
}

std::string utf8_text(const std::string& text) {
  auto clean = json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
  std::replace(clean.begin(), clean.end(), '\0', ' ');
  return clean;
}

store::Verdict rejected_verdict(const std::string& message, const std::string& hint) {
  store::Verdict verdict;
  verdict.status = store::Status::kRejectedStatic;
  verdict.message = message;
  verdict.hint = hint;
  verdict.stages.push_back(failed_stage(kFirstStage, message));
  return verdict;
}

store::Verdict timeout_verdict(double seconds, const std::string& stage) {
  store::Verdict verdict;
  verdict.status = store::Status::kTimeout;
  verdict.message = fmt::format("the evaluation took more than {:g} s and was ended in {}", seconds, stage);
  verdict.hint =
      "a flow that reads fewer pages, or scores them with less, takes less time; suite full needs a GPU or a server that "
      "allows more (sluice serve --judge-seconds)";
  verdict.stages.push_back(failed_stage(stage, verdict.message));
  return verdict;
}

}  // namespace sluice
