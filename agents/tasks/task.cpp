#include "agents/tasks/task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agents/tasks/generators.h"
#include "agents/tasks/salad_layout.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

Task task(const char* name, const char* group, GeneratorFunction& in_mini, GeneratorFunction& in_english) {
  return {
      name, group, true, true, true, [&in_mini, &in_english](const TaskContext& context, Rng& rng, int tokens, int questions) {
        return (context.english() ? in_english : in_mini)(context, rng, tokens, questions);
      }};
}

/// One that most flows answer on the mini model.
Task easy_task(const char* name, const char* group, GeneratorFunction& in_mini, GeneratorFunction& in_english) {
  Task easy = task(name, group, in_mini, in_english);
  easy.judges_mini = false;
  return easy;
}

Task salad_task(const SaladKind& kind) {
  return {kind.task,
          "salad",
          true,
          true,
          kind.pattern.empty(),
          [kind](const TaskContext& context, Rng& rng, int tokens, int questions) {
            return (context.english() ? english::salad : mini::salad)(kind, context, rng, tokens, questions);
          }};
}

/// Questions of another task about text that stood elsewhere before.
Task occasion_task(const char* name, Occasion occasion, GeneratorFunction& in_mini, GeneratorFunction& in_english) {
  Task asked = task(name, "reuse", in_mini, in_english);
  asked.generate = [name, ask = asked.generate](const TaskContext& context, Rng& rng, int tokens, int questions) {
    try {
      return ask(context, rng, tokens, questions);
    } catch (const InputError& error) {  // which names the task that is asked
      throw InputError(fmt::format("{}: {}", name, error.what()), error.hint());
    }
  };
  asked.in_suites = false;
  asked.occasion = occasion;
  return asked;
}

/// One that flows answer on the mini model that never look at the query.
Task english_task(const char* name, const char* group, GeneratorFunction& generate) {
  return {name, group, false, false, true, [name, &generate](const TaskContext& context, Rng& rng, int tokens, int questions) {
            if (context.english()) return generate(context, rng, tokens, questions);
            throw InputError(fmt::format("the task {} is for models that know English", name),
                             "the mini model's tasks ask for several places of a text: sluice eval --list");
          }};
}

}  // namespace

const std::vector<Task>& all_tasks() {
  static const std::vector<Task> tasks = {
      english_task("needle_single", "needle", english::needle_single),
      english_task("needle_multikey", "needle", english::needle_multikey),
      easy_task("needle_multivalue", "needle", mini::needle_multivalue, english::needle_multivalue),
      task("needle_multiquery", "needle", mini::needle_multiquery, english::needle_multiquery),
      easy_task("variable_tracking", "tracking", mini::variable_tracking, english::variable_tracking),
      english_task("common_words", "words", english::common_words),
      english_task("frequent_words", "words", english::frequent_words),
      salad_task({"salad", {}}),
      salad_task({"salad_easy", kSaladEasy}),
      salad_task({"salad_medium", kSaladMedium}),
      salad_task({"salad_hard", kSaladHard}),
      salad_task({"salad_very_hard", kSaladVeryHard}),
      task("trace", "trace", mini::trace, english::trace),
      occasion_task("chat", Occasion::kChat, mini::needle_multiquery, english::needle_multiquery),
      occasion_task("rag", Occasion::kRetrieval, mini::needle_multiquery, english::needle_multiquery),
      occasion_task("agents", Occasion::kAgents, mini::variable_tracking, english::variable_tracking),
  };
  return tasks;
}

const Task& find_task(std::string_view name) {
  std::vector<std::string> names;
  for (const Task& task : all_tasks()) {
    if (task.name == name) return task;
    names.push_back(task.name);
  }
  throw InputError(fmt::format("there is no task \"{:.60}\"", name),
                   fmt::format("tasks are {}, text and copy, text:FILE and copy:FILE, and jsonl:FILE for problems of your own; "
                               "sluice eval --list says which the mini model is asked",
                               fmt::join(names, ", ")));
}

Sample generate(const Task& task, const TaskContext& context, Rng& rng, int tokens) {
  return task.generate(context, rng, tokens, 1).front();
}

}  // namespace sluice
