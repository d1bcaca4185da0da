#include "agents/tasks/task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agents/tasks/generators.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

Task task(const char* name, const char* group, GeneratorFunction& in_mini, GeneratorFunction& in_english) {
  return {name, group, [&in_mini, &in_english](const TaskContext& context, Rng& rng, int tokens, int questions) {
            return (context.english() ? in_english : in_mini)(context, rng, tokens, questions);
          }};
}

}  // namespace

const std::vector<Task>& all_tasks() {
  static const std::vector<Task> tasks = {
      task("needle_single", "needle", mini::needle_single, english::needle_single),
      task("needle_multikey", "needle", mini::needle_multikey, english::needle_multikey),
      task("needle_multivalue", "needle", mini::needle_multivalue, english::needle_multivalue),
      task("needle_multiquery", "needle", mini::needle_multiquery, english::needle_multiquery),
      task("variable_tracking", "tracking", mini::variable_tracking, english::variable_tracking),
      task("common_words", "words", mini::common_words, english::common_words),
      task("frequent_words", "words", mini::frequent_words, english::frequent_words),
      task("salad", "salad", mini::salad, english::salad),
      task("trace", "trace", mini::trace, english::trace),
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
                   fmt::format("tasks are {}, and jsonl:FILE for problems of your own", fmt::join(names, ", ")));
}

Sample generate(const Task& task, const TaskContext& context, Rng& rng, int tokens) {
  return task.generate(context, rng, tokens, 1).front();
}

}  // namespace sluice
