#include <nlohmann/json.hpp>

#include "agents/evaluation/report.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const TaskResult& result) {
  ordered_json json = {{"name", result.task},
                       {"stage", result.stage},
                       {"tokens", result.tokens},
                       {"samples", result.samples},
                       {"documents", result.documents},
                       {"accuracy", result.accuracy},
                       {"low", result.interval.low},
                       {"high", result.interval.high},
                       {"matched", result.matched},
                       {"dense_accuracy", result.dense_accuracy},
                       {"dense_low", result.dense_interval.low},
                       {"dense_high", result.dense_interval.high},
                       {"lost", result.lost},
                       {"gained", result.gained},
                       {"p_value", result.p_value}};
  if (result.task.rfind("jsonl:", 0) == 0) {
    json["generations"] = result.generations;
    json["k"] = result.k;
    json["pass_at_k"] = result.pass_at_k;
    json["dense_pass_at_k"] = result.dense_pass_at_k;
  }
  return json;
}

ordered_json list_of(const std::vector<TaskResult>& results) {
  ordered_json list = ordered_json::array();
  for (const TaskResult& result : results) list.push_back(to_json(result));
  return list;
}

ordered_json to_json(const FlowReport& flow) {
  ordered_json json = {{"name", flow.name}, {"path", flow.path}, {"status", name_of(flow.status)}};
  if (!flow.stage.empty()) json["stage"] = flow.stage;
  if (!flow.message.empty()) json["message"] = flow.message;
  if (!flow.hint.empty()) json["hint"] = flow.hint;
  if (!flow.untimed.empty()) json["untimed"] = flow.untimed;
  json["stages"] = ordered_json::array();
  for (const StageTime& stage : flow.stages) json["stages"].push_back({{"name", stage.name}, {"seconds", stage.seconds}});
  json["tasks"] = list_of(flow.tasks);
  json["speedup"] = nullptr;
  json["pages_read"] = nullptr;
  json["mass"] = nullptr;
  if (flow.speed) {
    const SpeedResult& speed = *flow.speed;
    json["speedup"] = {{"ratio", speed.speedup.ratio},
                       {"low", speed.speedup.low},
                       {"high", speed.speedup.high},
                       {"limit", speed.limit},
                       {"tokens", speed.tokens},
                       {"batch", speed.batch},
                       {"pairs", speed.pairs},
                       {"dense_tokens_per_second", speed.dense_tokens_per_second},
                       {"flow_tokens_per_second", speed.flow_tokens_per_second}};
    ordered_json tasks = ordered_json::array();
    for (const TaskSpeed& task : speed.tasks) {
      tasks.push_back({{"name", task.task},
                       {"stage", task.stage},
                       {"tokens", task.tokens},
                       {"batch", task.batch},
                       {"ratio", task.speedup.ratio},
                       {"low", task.speedup.low},
                       {"high", task.speedup.high},
                       {"limit", task.limit},
                       {"pages_read", task.pages_read}});
    }
    json["speedup"]["tasks"] = std::move(tasks);
    json["pages_read"] = speed.pages_read;
    json["mass"] = speed.mass;
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
  ordered_json json = {
      {"schema", "sluice.eval/1"},     {"device", report.device},   {"device_description", report.device_description},
      {"model", report.model},         {"suite", report.suite},     {"dialect", report.dialect},
      {"seed", report.seed},           {"seconds", report.seconds}, {"dense", {{"tasks", list_of(report.dense)}}},
      {"flows", ordered_json::array()}};
  if (!report.notes.empty()) json["notes"] = report.notes;
  if (!report.errors.empty()) json["errors"] = report.errors;
  for (const FlowReport& flow : report.flows) json["flows"].push_back(to_json(flow));
  // A path need not be UTF-8; such bytes are replaced, not refused.
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace sluice
