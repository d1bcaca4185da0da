#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agents/evaluation/reuse_layout.h"
#include "agents/tasks/problem_set.h"
#include "agents/tasks/text_windows.h"

namespace sluice {

/// Of a context.
constexpr int kLeastContext = 64;
constexpr int kMostContext = 1 << 20;

/// One line of a suite: a task at a context length.
struct SuiteTask {
  std::string task;       // a built-in task, "jsonl:FILE", "text", "text:FILE", "copy" or "copy:FILE"
  int tokens = 1024;      // of each prompt; for texts of each window, what is scored included; not used for jsonl
  int samples = 8;        // for jsonl: at most this many problems, 0 for all
  int questions = 8;      // asked about one document at most: a document is prefilled once for all of them
  int generations = 1;    // a problem, sampled (jsonl)
  int k = 1;              // of pass@k (jsonl)
  int max_tokens = 4096;  // of one generation (jsonl)
  bool is_timed = true;   // some of its questions are answered once more for their speed, where a suite measures that
  std::shared_ptr<const std::vector<Problem>> problems;  // (jsonl), once prepare_suite has read them

  std::shared_ptr<const TextTokens> text;  // (texts), likewise

  std::string problem_file() const { return file(); }
  bool is_problem_set() const { return kind() == "jsonl"; }
  /// Whether it asks how likely the model finds a text.
  bool is_text() const { return kind() == "text" || kind() == "copy"; }
  TextTask text_task() const { return kind() == "copy" ? TextTask::kCopy : TextTask::kText; }
  /// What stands before a colon, and what after the first one; "" if there is none.
  std::string_view kind() const { return std::string_view(task).substr(0, task.find(':')); }
  std::string file() const { return task.find(':') == std::string::npos ? "" : task.substr(task.find(':') + 1); }
};

/// Tasks that are judged together. A flow goes on only if its mean accuracy is at least `threshold` times that of dense
/// attention on the same samples.
struct SuiteStage {
  std::string name;
  double threshold = 0;
  std::vector<SuiteTask> tasks;
};

struct Suite {
  std::string name;
  std::vector<SuiteStage> stages;
  // Speed: questions of each task are answered by flow and dense attention in turn, `batch` at a time.
  int speed_batch = 8;
  int speed_pairs = 24;        // of all tasks together, if their questions are answered soon; 0: speed is not measured
  double speed_patience = 10;  // seconds that a flow waits at most, in all, for others to leave enough cores idle
  /// Tasks at contexts that the model does not have are left out, not refused.
  bool leaves_out_long = false;
  /// At named lengths (SuiteChanges::tokens) the last stage alone has a threshold, so that every flow has all figures.
  bool last_decides = false;
  /// Of the mini model only tasks are asked that tell flows apart there; the others are left out, not refused (leave_to_mini).
  bool leaves_to_mini = false;
  /// Tasks of which dense attention answers less are left out of means, as they tell flows apart by luck alone, and are not asked
  /// at more tokens, but to be timed. Problem sets always count.
  double least_dense = 0;
  /// The report has every question, and what each answered. Never for a judge that others ask: it gives questions away.
  bool keeps_answers = false;
  /// Flows are neither compared with the reference nor replayed on traces: that was done by another suite.
  bool only_asks = false;
  /// It asks what is lost where documents are copied from where they stood in another order (ReuseRunner): flows are judged by
  /// what they compute again. Speed is that of the time to the first token.
  std::optional<ReuseLayout> reuse;
  /// So many times fewer samples where the device is no GPU, unless a number was asked for.
  int fewer_on_cpu = 1;
};

/// What the command line changes in a suite. Zeros and empty lists change nothing.
struct SuiteChanges {
  int samples = 0;
  int factor = 1;  // so many times the samples
  std::vector<std::string> tasks;
  std::vector<int> tokens;
  int generations = 0;
  int k = 0;
  int max_tokens = 0;
  bool without_speed = false;
  int segment = 0;  // tokens of each, of suites that have some
  bool keeps_answers = false;
};

/// "verify" (no tasks), "quick", "standard", "full", "real", "reuse", or the path of a JSON file: a list of {"task", "tokens",
/// "samples", "threshold"} (docs/EVALUATION.md), each a stage of its own. Throws InputError that names the entry and the member.
Suite load_suite(const std::string& name);
/// Names of suites that need no file, the shortest first.
const std::vector<std::string>& built_in_suites();
/// The one that asks for texts, which the mini model does not know.
inline constexpr const char* kEnglishSuite = "real";
/// Whether `name` is that of a suite and not of a file.
bool is_built_in(std::string_view name);
/// The same from the text of a file; `name` is used in messages.
Suite parse_suite(std::string_view text, const std::string& name);

/// Leaves the tasks that the mini model is asked, in suites that say so: those that its dialect has and that tell flows apart.
void leave_to_mini(Suite& suite);

/// The longest context that it asks for and does not leave out where a model has no such; of the mini only what that is asked.
int longest_context(Suite suite, bool is_mini);

/// Asks so many times the samples of every task. Throws InputError for more than a suite may have.
void multiply_samples(Suite& suite, int factor);

/// Applies the changes: only the named tasks (those that the suite lacks become stages of their own at the end, in the order
/// named), every task at the named lengths (a stage a length, shortest first, with the highest threshold of the stages that held
/// the tasks; where Suite::last_decides, the last of them alone), so many samples. Throws InputError for an unknown task, a
/// length out of range, more passes than generations, and options of problem sets where there is none.
Suite changed(Suite suite, const SuiteChanges& changes);

}  // namespace sluice
