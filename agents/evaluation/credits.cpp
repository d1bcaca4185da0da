#include "agents/evaluation/credits.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "agents/evaluation/flow_differences.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;
using Credits = std::vector<std::vector<double>>;

constexpr const char* kSchema = "sluice.credits/1";
constexpr const char* kWhere = "credits";
// What is in a task of a report and is taken out of it.
constexpr const char* kCredits = "credits";
constexpr const char* kLosses = "loss_differences";

/// Takes `key` out of a task; null if it has none.
json taken(json& task, const char* key) {
  const auto found = task.find(key);
  if (found == task.end()) return nullptr;
  json value = std::move(*found);
  task.erase(found);
  return value;
}

/// Null where there is none, of whatever is no object, too.
const json& member(const json& object, const char* key) {
  static const json none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

bool are_of_same(const json& task, const json& other) {
  const auto same = [&](const char* key) { return member(task, key) == member(other, key); };
  return same("name") && same("stage") && same("tokens");
}

/// A task of a document, with what dense attention answered.
struct AskedTask {
  TaskResult result;
  Credits dense;
};

Credits credits_in(const JsonObject& task, const char* key) {
  Credits credits;
  for (const json& document : task.array(key)) {
    if (!document.is_array()) task.refuse(key, "it is a list of lists of numbers");
    std::vector<double>& of_document = credits.emplace_back();
    for (const json& credit : document) {
      if (!credit.is_number() || credit < 0 || credit > 1) task.refuse(key, "credits are from 0 to 1");
      of_document.push_back(credit.get<double>());
    }
  }
  return credits;
}

AskedTask read_task(const JsonObject& task) {
  constexpr double kMostNats = 1e6;
  constexpr int64_t kMostTokens = int64_t{1} << 30;
  AskedTask asked;
  TaskResult& result = asked.result;
  result.task = task.text("name");
  result.stage = task.text("stage");
  result.tokens = static_cast<int>(task.integer("tokens", 0, kMostTokens));
  result.counted = task.boolean("counted", true);
  result.accuracy = task.number("accuracy", 0, 1);
  if (task.has(kLosses)) {
    LossResult& loss = result.loss.emplace();
    loss.dense_loss = task.number("dense_loss", 0, kMostNats);
    for (const json& nats : task.array(kLosses)) {
      if (!nats.is_number() || std::fabs(nats.get<double>()) > kMostNats) task.refuse(kLosses, "it is a list of numbers");
      loss.differences.push_back(nats.get<double>());
    }
    result.documents = result.samples = static_cast<int>(loss.differences.size());
    return asked;
  }
  result.credits = credits_in(task, kCredits);
  asked.dense = credits_in(task, "dense_credits");
  result.documents = static_cast<int>(result.credits.size());
  for (const std::vector<double>& document : result.credits) result.samples += static_cast<int>(document.size());
  return asked;
}

std::vector<AskedTask> read_tasks(const std::string& text) {
  const json document = parse_json(text, kWhere);
  const JsonObject root(document, kWhere);
  if (root.text("schema") != kSchema) root.refuse("schema", std::string("it is ") + kSchema);
  std::vector<AskedTask> tasks;
  for (const json& task : root.array("tasks")) tasks.push_back(read_task(JsonObject(task, "credits, task")));
  return tasks;
}

/// Whether as many documents had as many questions, and dense attention answers as good as all of them alike: on a GPU a rounding
/// may change one.
bool are_same_samples(const AskedTask& task, const AskedTask& other) {
  constexpr double kNats = 1e-3;
  constexpr double kShare = 0.02;
  const std::optional<LossResult>& loss = task.result.loss;
  if (loss.has_value() != other.result.loss.has_value() || task.result.documents != other.result.documents) return false;
  if (loss) return std::fabs(loss->dense_loss - other.result.loss->dense_loss) < kNats;
  const auto documents = static_cast<size_t>(task.result.documents);
  if (task.dense.size() != documents || other.dense.size() != documents) return false;
  int unlike = 0;
  for (size_t i = 0; i < documents; ++i) {
    const size_t asked = task.dense[i].size();
    const Credits& flow = task.result.credits;
    const Credits& its = other.result.credits;
    if (other.dense[i].size() != asked || flow.at(i).size() != asked || its.at(i).size() != asked) return false;
    for (size_t j = 0; j < asked; ++j) unlike += task.dense[i][j] != other.dense[i][j] ? 1 : 0;
  }
  return unlike <= kShare * task.result.samples;
}

}  // namespace

json take_credits(json& report) {
  json tasks = json::array();
  json none = json::array();
  json& of_dense = report.contains("dense") && report["dense"].contains("tasks") ? report["dense"]["tasks"] : none;
  json& flow = report.at("flows").at(0);
  for (json& task : flow.contains("tasks") ? flow["tasks"] : none) {
    const auto dense = std::find_if(of_dense.begin(), of_dense.end(), [&](const json& each) { return are_of_same(each, task); });
    json kept;
    for (const char* key : {"name", "stage", "tokens", "accuracy", "counted", "dense_loss"}) {
      if (task.contains(key)) kept[key] = task[key];
    }
    for (const char* key : {kCredits, kLosses}) {
      if (json value = taken(task, key); !value.is_null()) kept[key] = std::move(value);
    }
    if (kept.contains(kCredits) && dense != of_dense.end()) kept["dense_credits"] = member(*dense, kCredits);
    tasks.push_back(std::move(kept));
  }
  for (json& task : of_dense) {
    taken(task, kCredits);
    taken(task, kLosses);
  }
  return {{"schema", kSchema}, {"tasks", std::move(tasks)}};
}

std::optional<FlowDifference> difference_of_credits(const std::string& flow, const std::string& other) {
  std::vector<TaskResult> mine;
  std::vector<TaskResult> its;
  const std::vector<AskedTask> others = read_tasks(other);
  for (AskedTask& task : read_tasks(flow)) {
    const auto same = std::find_if(others.begin(), others.end(), [&](const AskedTask& each) {
      return each.result.is_of_same(task.result) && are_same_samples(task, each);
    });
    if (same == others.end()) continue;
    its.push_back(same->result);
    mine.push_back(std::move(task.result));
  }
  return difference_of(mine, its);
}

}  // namespace sluice
