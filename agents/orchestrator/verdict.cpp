#include "agents/orchestrator/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "host/json_object.h"
#include "scripting/graph/error.h"
#include "store/error.h"

namespace sluice {
namespace {

using nlohmann::json;
using store::Metric;
using store::StageResult;
using store::StageStatus;

constexpr int64_t kMostTokens = int64_t{1} << 30;

std::string text_or_empty(const JsonObject& object, const char* key) {
  const std::string* text = object.find_text(key);
  return text != nullptr ? *text : std::string();
}

Metric metric_of(const JsonObject& object, const std::string& name, const char* value, const char* low, const char* high) {
  constexpr double kMost = 1e12;
  Metric metric;
  metric.name = name;
  metric.value = object.number(value, -kMost, kMost);
  metric.low = object.find_number(low, -kMost, kMost);
  metric.high = object.find_number(high, -kMost, kMost);
  return metric;
}

/// The tasks of a flow, in the order in which they were asked.
class Tasks {
 public:
  explicit Tasks(const JsonObject& flow) {
    for (const json& task : flow.array("tasks")) tasks_.emplace_back(task, flow.where() + ", task");
  }

  void add_metrics(std::vector<Metric>& metrics) const {
    if (tasks_.empty()) return;
    for (const auto& [name, low, high] : {std::tuple{"accuracy", "low", "high"}, {"dense_accuracy", "dense_low", "dense_high"}}) {
      double sum = 0;
      for (const JsonObject& task : tasks_) {
        Metric metric = metric_of(task, name, name, low, high);
        metric.task = task.text("name");
        metric.length = task.integer("tokens", 0, kMostTokens);
        sum += metric.value;
        metrics.push_back(std::move(metric));
      }
      Metric mean;
      mean.name = name;
      mean.value = sum / static_cast<double>(tasks_.size());
      metrics.push_back(std::move(mean));
    }
  }

  /// A result for each stage; `stopped` is the one that ended the flow, if any.
  void add_stages(const std::string& stopped, const std::string& message, std::vector<StageResult>& stages,
                  const JsonObject& flow) const {
    const json& documents = flow.array("tasks");
    for (size_t first = 0, last = 0; first < tasks_.size(); first = last) {
      StageResult stage;
      stage.stage = tasks_[first].text("stage");
      json details = json::array();
      for (; last < tasks_.size() && tasks_[last].text("stage") == stage.stage; ++last) details.push_back(documents[last]);
      stage.details = json{{"tasks", std::move(details)}}.dump();
      if (stage.stage == stopped) {
        stage.status = StageStatus::kFailed;
        stage.message = message;
      }
      stages.push_back(std::move(stage));
    }
  }

 private:
  std::vector<JsonObject> tasks_;
};

void add_speed(const JsonObject& flow, std::vector<Metric>& metrics) {
  const auto speedup = flow.find_object("speedup");
  if (!speedup) return;
  metrics.push_back(metric_of(*speedup, "speedup", "ratio", "low", "high"));
  metrics.back().unit = "x dense";
  Metric pages;
  pages.name = "pages_read";
  pages.value = flow.number("pages_read", 0, 1);
  metrics.push_back(std::move(pages));
  const json& layers = flow.array("mass");
  Metric mass;
  mass.name = "mass";
  for (const json& layer : layers) mass.value += layer.get<double>() / static_cast<double>(std::max<size_t>(1, layers.size()));
  metrics.push_back(std::move(mass));
}

store::Status status_in(const JsonObject& flow) {
  try {
    return store::status_of(flow.text("status"));
  } catch (const store::StoreError&) {
    flow.refuse("status", "there is no such status");
  }
}

StageResult stage_of(const std::string& name, bool passed, const std::string& message) {
  StageResult stage;
  stage.stage = name;
  stage.status = passed ? StageStatus::kPassed : StageStatus::kFailed;
  if (!passed) stage.message = message;
  return stage;
}

}  // namespace

store::Verdict verdict_of(const std::string& report) {
  json document = parse_json(report, "report");
  const JsonObject root(document, "report");
  const json& flows = root.array("flows");
  if (flows.size() != 1) throw InputError(fmt::format("a report of {} flows, where one was judged", flows.size()));
  const JsonObject flow(flows[0], "report, flow");
  store::Verdict verdict;
  verdict.status = status_in(flow);
  verdict.message = text_or_empty(flow, "message");
  verdict.hint = text_or_empty(flow, "hint");
  const bool compiled = verdict.status != store::Status::kRejectedStatic;
  verdict.stages.push_back(stage_of("verify", compiled, verdict.message));
  if (compiled) {
    const bool correct = verdict.status != store::Status::kIncorrectNumerical;
    verdict.stages.push_back(stage_of("numerical", correct, verdict.message));
    const Tasks tasks(flow);
    const std::string stopped = verdict.status == store::Status::kPassed ? std::string() : text_or_empty(flow, "stage");
    tasks.add_stages(stopped, verdict.message, verdict.stages, flow);
    tasks.add_metrics(verdict.metrics);
    add_speed(flow, verdict.metrics);
  }
  document.erase("seed");
  verdict.artifacts.push_back({.name = "report.json", .media_type = "application/json", .bytes = document.dump(2), .size = 0});
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
  verdict.stages.push_back(stage_of("verify", false, message));
  return verdict;
}

store::Verdict timeout_verdict(double seconds, const std::string& stage) {
  store::Verdict verdict;
  verdict.status = store::Status::kTimeout;
  verdict.message = fmt::format("the evaluation took more than {:g} s and was ended in {}", seconds, stage);
  verdict.hint = "a flow that reads fewer pages, or scores them with less, takes less time";
  verdict.stages.push_back(stage_of(stage, false, verdict.message));
  return verdict;
}

}  // namespace sluice
