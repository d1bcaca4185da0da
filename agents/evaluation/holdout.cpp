#include "agents/evaluation/holdout.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "agents/tasks/task.h"

namespace sluice {
namespace {

constexpr size_t kTasks = 4;
constexpr size_t kUnseen = 2;  // of them
constexpr int kQuestions = 4;  // a document
constexpr int kGrain = 8;      // tokens that lengths are a multiple of

/// What a suite shows to everybody.
struct Known {
  std::set<std::string> tasks;
  std::set<int> lengths;
  int samples = 0;

  explicit Known(const Suite& suite) {
    for (const SuiteStage& stage : suite.stages) {
      for (const SuiteTask& task : stage.tasks) {
        if (task.is_problem_set() || task.is_text()) continue;
        tasks.insert(task.task);
        lengths.insert(task.tokens);
        samples += task.samples;
      }
    }
  }
};

/// Between half and all of the longest, at none of which is asked so far; the longest if there is no other.
int draw_length(std::set<int>& asked, int longest, Rng& rng) {
  std::vector<int> lengths;
  for (int length = longest / 2 / kGrain * kGrain; length <= longest; length += kGrain) {
    if (length >= kLeastContext && !asked.contains(length)) lengths.push_back(length);
  }
  if (lengths.empty()) return longest;
  const int length = rng.pick(lengths);
  asked.insert(length);
  return length;
}

/// The names of tasks of the model, those that are shown or the others, in random order. The others are not those of copied text,
/// which ask what other tasks ask.
std::vector<std::string> drawn_tasks(const Known& known, bool are_shown, bool is_mini, Rng& rng) {
  std::vector<std::string> names;
  for (const Task& task : all_tasks()) {
    const bool is_known = are_shown || (task.occasion == Occasion::kOneText && (task.judges_mini || !is_mini));
    if (is_known && known.tasks.contains(task.name) == are_shown) names.push_back(task.name);
  }
  rng.shuffle(names);
  return names;
}

}  // namespace

Suite holdout_of(const Suite& shown, const Seed& kinds, bool is_mini) {
  Suite holdout;
  holdout.name = kHoldout;
  holdout.speed_pairs = 0;
  holdout.least_dense = shown.least_dense;
  holdout.only_asks = true;
  const Known known(shown);
  if (shown.reuse || known.tasks.empty()) return holdout;
  Rng rng(kinds, kHoldout);
  std::vector<std::string> names = drawn_tasks(known, false, is_mini, rng);
  names.resize(std::min(names.size(), kUnseen));
  for (const std::string& name : drawn_tasks(known, true, is_mini, rng)) {
    if (names.size() < kTasks) names.push_back(name);
  }
  holdout.leaves_out_long = true;
  holdout.stages.push_back({kHoldout, 0, {}});
  std::set<int> asked = known.lengths;
  for (const std::string& name : names) {
    SuiteTask task;
    task.task = name;
    task.tokens = draw_length(asked, *known.lengths.rbegin(), rng);
    task.samples = std::max(1, known.samples / 2 / static_cast<int>(names.size()));
    task.questions = kQuestions;
    holdout.stages.back().tasks.push_back(task);
  }
  return holdout;
}

}  // namespace sluice
