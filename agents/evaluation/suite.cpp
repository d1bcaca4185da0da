#include "agents/evaluation/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "agents/tasks/task.h"
#include "scripting/graph/error.h"

namespace sluice {
namespace {

using nlohmann::json;

// A flow that keeps less than half of dense attention's accuracy is not worth dearer stages.
constexpr double kThreshold = 0.5;
constexpr int kLeastTokens = 64;
constexpr int kMostTokens = 1 << 20;
constexpr int kMostSamples = 100000;
constexpr const char* kShape =
    R"(a suite is a list of {"task": "needle_multikey", "tokens": 4096, "samples": 50, "threshold": 0.5})";

SuiteTask task_of(const char* name, int tokens, int samples, int questions = 8) {
  SuiteTask task;
  task.task = name;
  task.tokens = tokens;
  task.samples = samples;
  task.questions = questions;
  return task;
}

/// Two minutes for eight flows on two cores: few documents, many questions about each.
Suite quick_suite() {
  Suite suite;
  suite.name = "quick";
  suite.stages.push_back({"short", kThreshold, {}});
  for (const char* task : {"needle_multikey", "needle_multivalue", "needle_multiquery", "variable_tracking", "salad"}) {
    suite.stages.back().tasks.push_back(task_of(task, 1024, 8));
  }
  suite.stages.push_back({"long", kThreshold, {}});
  suite.stages.back().tasks.push_back(task_of("needle_single", 2048, 2));
  for (const char* task : {"needle_multikey", "needle_multivalue", "needle_multiquery", "variable_tracking", "salad"}) {
    suite.stages.back().tasks.push_back(task_of(task, 4096, 16, 16));
  }
  suite.stages.back().tasks.push_back(task_of("common_words", 2048, 4));
  suite.stages.back().tasks.push_back(task_of("frequent_words", 2048, 4));
  suite.stages.push_back({"trace", 0, {task_of("trace", 8192, 3)}});
  return suite;
}

Suite full_suite() {
  Suite suite;
  suite.name = "full";
  for (const int tokens : {1024, 4096, 8192}) {
    suite.stages.push_back({tokens == 1024 ? "short" : fmt::format("long {}", tokens), kThreshold, {}});
    for (const Task& task : all_tasks()) {
      if (task.name != "trace") suite.stages.back().tasks.push_back(task_of(task.name.c_str(), tokens, 200));
    }
  }
  suite.stages.push_back({"trace", 0, {}});
  for (const int tokens : {1024, 4096, 8192}) suite.stages.back().tasks.push_back(task_of("trace", tokens, 200));
  suite.speed_tokens = 8192;
  suite.speed_pairs = 24;
  return suite;
}

int integer(const json& entry, const char* key, int fallback, int low, int high, const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end()) return fallback;
  if (!found->is_number_integer() || *found < low || *found > high) {
    throw InputError(fmt::format("{}: \"{}\" is {}, not a whole number from {} to {}", where, key, found->dump(), low, high),
                     kShape);
  }
  return found->get<int>();
}

void check_task(const std::string& name) {
  if (name.rfind("jsonl:", 0) != 0) {
    find_task(name);
  } else if (name == "jsonl:") {
    throw InputError("the task jsonl: names no file", "write jsonl:FILE");
  }
}

SuiteStage parse_entry(const json& entry, const std::string& where) {
  if (!entry.is_object()) throw InputError(where + ": not an object", kShape);
  static const std::set<std::string> known = {"task",      "tokens",      "samples", "threshold",
                                              "questions", "generations", "k",       "max_tokens"};
  for (const auto& [key, value] : entry.items()) {
    if (!known.contains(key)) throw InputError(fmt::format("{}: unknown member \"{}\"", where, key), kShape);
  }
  const auto name = entry.find("task");
  if (name == entry.end() || !name->is_string()) throw InputError(where + ": \"task\" is missing or not a text", kShape);
  SuiteTask task;
  task.task = name->get<std::string>();
  try {
    check_task(task.task);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", where, error.what()), error.hint());
  }
  task.tokens = integer(entry, "tokens", task.tokens, kLeastTokens, kMostTokens, where);
  task.samples =
      integer(entry, "samples", task.is_problem_set() ? 0 : task.samples, task.is_problem_set() ? 0 : 1, kMostSamples, where);
  task.questions = integer(entry, "questions", task.questions, 1, 1000, where);
  task.generations = integer(entry, "generations", task.generations, 1, 1000, where);
  task.k = integer(entry, "k", task.k, 1, task.generations, where);
  task.max_tokens = integer(entry, "max_tokens", task.max_tokens, 1, kMostTokens, where);
  double threshold = 0;
  if (const auto found = entry.find("threshold"); found != entry.end()) {
    if (!found->is_number() || *found < 0.0 || *found > 1.0) {
      throw InputError(fmt::format("{}: \"threshold\" is {}, not a number from 0 to 1", where, found->dump()), kShape);
    }
    threshold = found->get<double>();
  }
  const std::string stage = task.is_problem_set() ? task.task : fmt::format("{} {}", task.task, task.tokens);
  return {stage, threshold, {task}};
}

}  // namespace

Suite parse_suite(std::string_view text, const std::string& name) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::parse_error& error) {
    throw InputError(fmt::format("{}: not JSON (byte {})", name, error.byte), kShape);
  }
  if (!root.is_array() || root.empty()) throw InputError(name + ": not a list of tasks", kShape);
  Suite suite;
  suite.name = name;
  int longest = 0;
  for (size_t i = 0; i < root.size(); ++i) {
    suite.stages.push_back(parse_entry(root[i], fmt::format("{}: entry {}", name, i + 1)));
    const SuiteTask& task = suite.stages.back().tasks.front();
    if (!task.is_problem_set()) longest = std::max(longest, task.tokens);
  }
  if (longest > 0) suite.speed_tokens = longest;
  return suite;
}

Suite load_suite(const std::string& name) {
  if (name == "quick") return quick_suite();
  if (name == "full") return full_suite();
  std::ifstream stream(name, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream.is_open() || stream.bad()) {
    throw InputError(fmt::format("there is no suite \"{}\"", name), "suites are quick, full, or the path of a JSON file");
  }
  return parse_suite(text, name);
}

Suite changed(Suite suite, const SuiteChanges& changes) {
  for (const std::string& name : changes.tasks) check_task(name);
  if (!changes.tasks.empty()) {
    std::set<std::string> missing(changes.tasks.begin(), changes.tasks.end());
    SuiteTask like = suite.stages.back().tasks.back();
    for (SuiteStage& stage : suite.stages) {
      std::vector<SuiteTask> kept;
      for (SuiteTask& task : stage.tasks) {
        if (std::find(changes.tasks.begin(), changes.tasks.end(), task.task) == changes.tasks.end()) continue;
        missing.erase(task.task);
        kept.push_back(std::move(task));
      }
      stage.tasks = std::move(kept);
    }
    for (const std::string& name : missing) {
      like.task = name;
      if (like.is_problem_set()) like.samples = 0;
      suite.stages.push_back({name, 0, {like}});
    }
    std::erase_if(suite.stages, [](const SuiteStage& stage) { return stage.tasks.empty(); });
  }
  if (!changes.tokens.empty()) {
    std::vector<SuiteTask> tasks;  // each task once
    for (const SuiteStage& stage : suite.stages) {
      for (const SuiteTask& task : stage.tasks) {
        const auto same = [&](const SuiteTask& other) { return other.task == task.task; };
        if (std::none_of(tasks.begin(), tasks.end(), same)) tasks.push_back(task);
      }
    }
    suite.stages.clear();
    const std::set<int> lengths(changes.tokens.begin(), changes.tokens.end());
    for (const int tokens : lengths) {
      if (tokens < kLeastTokens || tokens > kMostTokens) {
        throw InputError(fmt::format("a context of {} tokens is not from {} to {}", tokens, kLeastTokens, kMostTokens));
      }
      SuiteStage stage{fmt::format("{} tokens", tokens), kThreshold, {}};
      for (SuiteTask task : tasks) {
        if (task.is_problem_set() && tokens != *lengths.begin()) continue;  // a problem has its own length
        task.tokens = tokens;
        stage.tasks.push_back(std::move(task));
      }
      if (!stage.tasks.empty()) suite.stages.push_back(std::move(stage));
    }
    suite.speed_tokens = *lengths.rbegin();
  }
  for (SuiteStage& stage : suite.stages) {
    for (SuiteTask& task : stage.tasks) {
      if (changes.samples > 0) task.samples = changes.samples;
      if (changes.generations > 0) task.generations = changes.generations;
      if (changes.k > 0) task.k = changes.k;
      if (changes.max_tokens > 0) task.max_tokens = changes.max_tokens;
      if (task.k > task.generations) {
        throw InputError(fmt::format("pass@{} needs at least {} generations a problem, not {}", task.k, task.k, task.generations),
                         "raise --generations");
      }
    }
  }
  return suite;
}

}  // namespace sluice
