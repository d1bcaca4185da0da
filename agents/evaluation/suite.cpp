#include "agents/evaluation/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "agents/tasks/task.h"
#include "scripting/base/error.h"
#include "scripting/base/input_text.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

// A flow that keeps less of the parts of answers is not worth dearer stages. Of the mini's flows that never look at the query
// keep up to a tenth (a few of them a fifth), and flows of which a real model loses little keep a quarter.
constexpr double kThreshold = 0.15;
// Tasks of which dense attention answers less tell flows apart by luck alone.
constexpr double kLeastDense = 0.5;
// What a real model keeps of texts, copies and needles.
constexpr double kRealThreshold = 0.5;
constexpr int kMostSamples = 100000;
constexpr size_t kLargestFile = size_t{1} << 20;
constexpr const char* kShape =
    R"(a suite is a list of {"task": "needle_multiquery", "tokens": 4096, "samples": 50, "threshold": 0.5})";

SuiteTask task_of(const char* name, int tokens, int samples, int questions = 8) {
  SuiteTask task;
  task.task = name;
  task.tokens = tokens;
  task.samples = samples;
  task.questions = questions;
  return task;
}

/// Asks nothing: flows that compile and agree with the reference pass.
Suite verify_suite() {
  Suite suite;
  suite.name = "verify";
  suite.speed_pairs = 0;
  return suite;
}

/// Under half a minute for a flow on the mini and two idle cores: a few documents a task, with several questions about each.
Suite quick_suite() {
  Suite suite;
  suite.name = "quick";
  suite.speed_pairs = 96;  // of answers as long as these a few are timed
  suite.speed_patience = 3;
  suite.leaves_to_mini = true;
  suite.least_dense = kLeastDense;
  suite.stages.push_back({"short", kThreshold, {}});
  for (const char* task : {"needle_multikey", "needle_multivalue", "needle_multiquery", "variable_tracking", "salad"}) {
    suite.stages.back().tasks.push_back(task_of(task, 2048, 16, 4));
  }
  suite.stages.push_back({"long", kThreshold, {}});
  suite.stages.back().tasks.push_back(task_of("needle_single", 2048, 2));
  for (const char* task : {"needle_multikey", "needle_multivalue", "needle_multiquery", "variable_tracking", "salad"}) {
    suite.stages.back().tasks.push_back(task_of(task, 4096, 24, 8));
  }
  suite.stages.back().tasks.push_back(task_of("common_words", 2048, 4));
  suite.stages.back().tasks.push_back(task_of("frequent_words", 2048, 4));
  suite.stages.push_back({"trace", 0, {task_of("trace", 2048, 12, 3)}});
  return suite;
}

/// Under three minutes for a flow on the mini and two idle cores: twenty documents a task and length, so that each group of tasks
/// has forty and differences of three points are seen.
Suite standard_suite() {
  Suite suite;
  suite.name = "standard";
  suite.speed_pairs = 96;
  suite.leaves_to_mini = true;
  suite.least_dense = kLeastDense;
  for (const int tokens : {2048, 4096}) {
    suite.stages.push_back({tokens == 2048 ? "short" : "long", kThreshold, {}});
    for (const Task& task : all_tasks()) {
      if (task.name != "trace" && task.in_suites) suite.stages.back().tasks.push_back(task_of(task.name.c_str(), tokens, 80, 4));
    }
  }
  suite.stages.push_back({"trace", 0, {task_of("trace", 2048, 60, 3), task_of("trace", 4096, 60, 3)}});
  return suite;
}

Suite full_suite() {
  Suite suite;
  suite.name = "full";
  suite.leaves_to_mini = true;
  suite.least_dense = kLeastDense;
  for (const int tokens : {1024, 4096, 8192}) {
    suite.stages.push_back({tokens == 1024 ? "short" : fmt::format("long {}", tokens), kThreshold, {}});
    for (const Task& task : all_tasks()) {
      if (task.name != "trace" && task.in_suites) suite.stages.back().tasks.push_back(task_of(task.name.c_str(), tokens, 200));
    }
  }
  suite.stages.push_back({"trace", 0, {}});
  // At 8192 tokens over half of all flows answer nearly all of them.
  for (const int tokens : {1024, 2048, 4096}) suite.stages.back().tasks.push_back(task_of("trace", tokens, 200, 3));
  suite.speed_pairs = 162;
  return suite;
}

/// For models that know English: texts, copying, and what such models answer.
Suite real_suite() {
  Suite suite;
  suite.name = "real";
  suite.leaves_out_long = true;
  suite.fewer_on_cpu = 16;
  suite.least_dense = kLeastDense;
  suite.speed_pairs = 12;
  for (const int tokens : {2048, 4096, 8192}) {
    suite.stages.push_back({fmt::format("{} tokens", tokens), 0, {}});
    for (const char* task : {"text", "copy", "needle_single", "salad"}) {
      suite.stages.back().tasks.push_back(task_of(task, tokens, 64));
    }
    // Text and needle decode as copy and salad do: timing takes longer than judging.
    for (SuiteTask& task : suite.stages.back().tasks) task.is_timed = task.task == "text" || task.task == "needle_single";
  }
  suite.last_decides = true;
  suite.stages.back().threshold = kRealThreshold;  // the earlier ones have no say, so that every flow has all figures
  return suite;
}

/// For flows that say what is computed again of copied text.
Suite reuse_suite() {
  Suite suite;
  suite.name = "reuse";
  suite.reuse = ReuseLayout();
  suite.fewer_on_cpu = 8;
  suite.speed_pairs = 24;
  suite.stages.push_back({"reuse", kRealThreshold, {}});
  suite.leaves_to_mini = true;
  for (const char* task :
       {"needle_multiquery", "variable_tracking", "common_words", "frequent_words", "salad", "trace", "chat", "rag", "agents"})
    suite.stages.back().tasks.push_back(task_of(task, 8192, 64));
  return suite;
}

void check_task(const std::string& name) {
  SuiteTask task;
  task.task = name;
  if (task.kind() != "jsonl" && !task.is_text()) {
    find_task(name);
  } else if (name.ends_with(':')) {
    throw InputError(fmt::format("the task {} names no file", name), fmt::format("write {}FILE", name));
  } else if (name == "jsonl") {
    throw InputError("the task jsonl names no file", "write jsonl:FILE");
  }
}

std::string short_window() { return fmt::format("windows of a text have at least {} tokens", kLeastWindow); }

SuiteStage parse_entry(const json& value, const std::string& where) {
  const JsonObject entry(value, where);
  static const std::set<std::string> known = {"task",      "tokens",      "samples", "threshold",
                                              "questions", "generations", "k",       "max_tokens"};
  for (const auto& [key, member] : entry.items()) {
    if (!known.contains(key)) throw InputError(fmt::format("{}: unknown member \"{:.60}\"", where, key));
  }
  SuiteTask task;
  task.task = entry.text("task");
  try {
    check_task(task.task);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", where, error.what()), error.hint());
  }
  const auto integer = [&entry](const char* key, int otherwise, int least, int most) {
    return static_cast<int>(entry.find_integer(key, least, most).value_or(otherwise));
  };
  task.tokens = integer("tokens", task.tokens, kLeastContext, kMostContext);
  if (task.is_text() && task.tokens < kLeastWindow) entry.refuse("tokens", short_window());
  task.samples = integer("samples", task.is_problem_set() ? 0 : task.samples, task.is_problem_set() ? 0 : 1, kMostSamples);
  task.questions = integer("questions", task.questions, 1, 1000);
  task.generations = integer("generations", task.generations, 1, 1000);
  task.k = integer("k", task.k, 1, task.generations);
  task.max_tokens = integer("max_tokens", task.max_tokens, 1, kMostContext);
  const std::string stage = task.is_problem_set() ? task.task : fmt::format("{} {}", task.task, task.tokens);
  return {stage, entry.find_number("threshold", 0, 1).value_or(0), {task}};
}

/// Leaves only the tasks `names`; those that the suite lacks become stages at the end.
void keep_only(Suite& suite, const std::vector<std::string>& names) {
  suite.leaves_to_mini = false;
  // A new task is asked like the last one of the suite.
  SuiteTask like;
  std::set<std::string> known;
  for (SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) {
      if (!task.is_problem_set()) like = task;
      known.insert(task.task);
    }
    std::erase_if(stage.tasks,
                  [&](const SuiteTask& task) { return std::find(names.begin(), names.end(), task.task) == names.end(); });
  }
  std::erase_if(suite.stages, [](const SuiteStage& stage) { return stage.tasks.empty(); });
  for (const std::string& name : names) {
    if (!known.insert(name).second) continue;
    SuiteTask task = like;
    task.task = name;
    task.is_timed = true;
    if (task.is_text()) task.tokens = std::max(task.tokens, kLeastWindow);
    if (task.is_problem_set()) task.samples = 0;
    suite.stages.push_back({name, 0, {task}});
  }
}

/// Runs each task of the suite at each of the lengths.
void run_at(Suite& suite, const std::vector<int>& tokens) {
  std::vector<SuiteTask> tasks;  // each once
  double threshold = 0;
  for (const SuiteStage& stage : suite.stages) {
    threshold = std::max(threshold, stage.threshold);
    for (const SuiteTask& task : stage.tasks) {
      const auto same = [&](const SuiteTask& other) { return other.task == task.task; };
      if (std::none_of(tasks.begin(), tasks.end(), same)) tasks.push_back(task);
    }
  }
  suite.stages.clear();
  const std::set<int> lengths(tokens.begin(), tokens.end());
  for (const int length : lengths) {
    if (length < kLeastContext || length > kMostContext) {
      throw InputError(fmt::format("a context of {} tokens is not from {} to {}", length, kLeastContext, kMostContext));
    }
    SuiteStage stage{fmt::format("{} tokens", length), suite.last_decides ? 0 : threshold, {}};
    for (SuiteTask task : tasks) {
      if (task.is_problem_set() && length != *lengths.begin()) continue;  // a problem has its own length
      if (task.is_text() && length < kLeastWindow) {
        throw InputError(fmt::format("{} at {} tokens: {}", task.task, length, short_window()));
      }
      task.tokens = length;
      stage.tasks.push_back(std::move(task));
    }
    if (!stage.tasks.empty()) suite.stages.push_back(std::move(stage));
  }
  if (suite.last_decides && !suite.stages.empty()) suite.stages.back().threshold = threshold;
}

/// Where all that is timed was left out, the rest is.
void time_something(Suite& suite) {
  const auto timed = [](const SuiteTask& task) { return task.is_timed; };
  for (const SuiteStage& stage : suite.stages) {
    if (std::any_of(stage.tasks.begin(), stage.tasks.end(), timed)) return;
  }
  for (SuiteStage& stage : suite.stages) {
    for (SuiteTask& task : stage.tasks) task.is_timed = true;
  }
}

void refuse_problem_options(const SuiteChanges& changes) {
  const char* hint = "add --tasks jsonl:FILE";
  if (changes.k > 0)
    throw InputError(fmt::format("pass@{} is of problem sets, and there is none among the tasks", changes.k), hint);
  if (changes.generations > 0) throw InputError("--generations is of problem sets, and there is none among the tasks", hint);
  if (changes.max_tokens > 0) throw InputError("--max-tokens is of problem sets, and there is none among the tasks", hint);
}

}  // namespace

Suite parse_suite(std::string_view text, const std::string& name) {
  const json root = parse_json(text, name);
  if (!root.is_array() || root.empty()) throw InputError(name + ": not a list of tasks", kShape);
  Suite suite;
  suite.name = name;
  for (size_t i = 0; i < root.size(); ++i) {
    try {
      suite.stages.push_back(parse_entry(root[i], fmt::format("{}: entry {}", name, i + 1)));
    } catch (const InputError& error) {
      throw InputError(error.what(), error.hint().empty() ? kShape : error.hint());
    }
  }
  return suite;
}

const std::vector<std::string>& built_in_suites() {
  static const std::vector<std::string> names = {"verify", "quick", "standard", "full", "real", "reuse"};
  return names;
}

bool is_built_in(std::string_view name) {
  return std::find(built_in_suites().begin(), built_in_suites().end(), name) != built_in_suites().end();
}

Suite load_suite(const std::string& name) {
  if (name == "verify") return verify_suite();
  if (name == "quick") return quick_suite();
  if (name == "standard") return standard_suite();
  if (name == "full") return full_suite();
  if (name == "real") return real_suite();
  if (name == "reuse") return reuse_suite();
  std::error_code error;
  if (name != "-" && !std::filesystem::exists(name, error)) {
    throw InputError(fmt::format("there is no suite \"{}\"", name),
                     fmt::format("suites are {}, or the path of a JSON file", fmt::join(built_in_suites(), ", ")));
  }
  return parse_suite(read_input(name, kLargestFile), name_of_input(name));
}

void leave_to_mini(Suite& suite) {
  if (!suite.leaves_to_mini) return;
  for (SuiteStage& stage : suite.stages) {
    std::erase_if(stage.tasks, [&](const SuiteTask& task) {
      if (task.is_problem_set() || task.is_text()) return false;
      const Task& asked = find_task(task.task);
      // What selections are no test of, copies may be.
      return suite.reuse ? !asked.in_mini : !asked.judges_mini;
    });
  }
  std::erase_if(suite.stages, [](const SuiteStage& stage) { return stage.tasks.empty(); });
}

int longest_context(Suite suite, bool is_mini) {
  if (suite.leaves_out_long) return 0;
  if (is_mini) leave_to_mini(suite);
  int longest = 0;
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) longest = std::max(longest, task.is_problem_set() ? 0 : task.tokens);
  }
  return longest;
}

void multiply_samples(Suite& suite, int factor) {
  for (SuiteStage& stage : suite.stages) {
    for (SuiteTask& task : stage.tasks) {
      if (task.samples > kMostSamples / factor) {
        throw InputError(fmt::format("{}: {} times {} samples are more than {}", task.task, factor, task.samples, kMostSamples));
      }
      task.samples *= factor;
    }
  }
}

Suite changed(Suite suite, const SuiteChanges& changes) {
  for (const std::string& name : changes.tasks) check_task(name);
  if (!changes.tasks.empty()) keep_only(suite, changes.tasks);
  if (!changes.tokens.empty()) run_at(suite, changes.tokens);
  if (changes.without_speed) suite.speed_pairs = 0;
  if (changes.segment > 0 && !suite.reuse)
    throw InputError(fmt::format("suite {} copies no segments", suite.name), "--segment is for --suite reuse");
  if (changes.segment > 0) suite.reuse->segment = changes.segment;
  const bool has_problems =
      std::any_of(changes.tasks.begin(), changes.tasks.end(), [](const std::string& task) { return task.starts_with("jsonl"); });
  if (suite.reuse && has_problems)
    throw InputError("suite reuse copies documents, and problems have none", "choose tasks that ask about a text");
  suite.keeps_answers = changes.keeps_answers;
  bool problems = false;
  for (SuiteStage& stage : suite.stages) {
    for (SuiteTask& task : stage.tasks) {
      problems |= task.is_problem_set();
      if (changes.samples > 0) {
        task.samples = changes.samples;
        suite.fewer_on_cpu = 1;
      }
      if (changes.generations > 0) task.generations = changes.generations;
      if (changes.k > 0) task.k = changes.k;
      if (changes.max_tokens > 0) task.max_tokens = changes.max_tokens;
    }
  }
  if (!problems) refuse_problem_options(changes);
  if (changes.factor > 1) multiply_samples(suite, changes.factor);
  time_something(suite);
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) {
      if (task.k <= task.generations) continue;
      throw InputError(fmt::format("pass@{} needs at least {} generations a problem, not {}", task.k, task.k, task.generations),
                       "raise --generations");
    }
  }
  return suite;
}

}  // namespace sluice
