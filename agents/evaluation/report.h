#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/statistics.h"
#include "agents/evaluation/timing_conditions.h"

namespace sluice {

enum class FlowStatus : uint8_t { kPassed, kRejectedStatic, kIncorrectNumerical, kBelowThreshold, kRuntimeError };
/// The stage at which a flow ends by kRuntimeError that no stage has judged, as dense attention answers too little.
inline constexpr const char* kUnjudged = "suite";
/// "passed", "rejected_static", "incorrect_numerical", "below_threshold", "runtime_error".
const char* name_of(FlowStatus status);

/// How likely the model finds texts: losses are in nats a token.
struct LossResult {
  double loss = 0;
  double dense_loss = 0;
  std::vector<double> differences;   // by window: loss above that of dense attention
  double difference = 0;             // their mean
  std::optional<Interval> interval;  // of that; none of a single window

  /// What the flow keeps of the probability of a token, beside dense attention: exp(-difference).
  double kept() const;
};

/// One task at one length, flow beside dense attention on the same samples.
struct TaskResult {
  std::string stage;
  std::string task;
  std::string group;  // of the table; a problem set is one of its own
  int tokens = 0;
  int samples = 0;
  int documents = 0;    // prompts that the samples share
  double accuracy = 0;  // mean credit of answers (agents/tasks/scoring.h)
  Interval interval;
  double whole = 0;  // share of answers without a mistake
  double share = 0;  // of parts of answers that are right, mean over answers; what is kept of texts: thresholds go by it
  double dense_accuracy = 0;
  Interval dense_interval;
  double dense_whole = 0;
  std::vector<std::vector<double>> credits;  // of answers, by document
  std::vector<Cluster> clusters;             // a document each
  std::vector<Cluster> dense_clusters;
  std::vector<Cluster> gains;   // credit that answers have more than with dense attention
  std::vector<Cluster> losses;  // and less
  int lost = 0;                 // answers that have less credit than with dense attention
  int gained = 0;
  double p_value = 1;  // that both are equally good (sign_flip over documents)
  int generations = 1;
  int k = 1;
  double pass_at_k = 0;  // jsonl only
  double dense_pass_at_k = 0;
  /// Texts only. `accuracy` is then what the flow keeps, at most 1, and that of dense attention 1. No answer is lost,
  /// gained or whole.
  std::optional<LossResult> loss;
  bool counted = true;  // in means over tasks: it tells flows apart

  bool is_problem_set() const { return tokens == 0; }
  /// Whether both are of the same questions.
  bool is_of_same(const TaskResult& other) const { return stage == other.stage && task == other.task && tokens == other.tokens; }
};

/// Means over tasks, each of which counts alike, of those that a flow was asked and that count; 95 % intervals (mean_wilson).
struct MeanAccuracy {
  double accuracy = 0;
  Interval interval;
  double dense_accuracy = 0;
  Interval dense_interval;
  double difference = 0;  // from dense attention on the same samples
  Interval difference_interval;
};

/// Questions of one task, answered once more by dense attention and by the flow in turn, from the first token of the answer to
/// the last that is scored.
struct TaskSpeed {
  std::string stage;
  std::string task;
  int tokens = 0;  // of the longest prompt
  int length = 0;  // that was asked for; 0 for problems
  int batch = 0;
  TimedPairs seconds;        // dense attention's, the flow's
  Ratio speedup;             // once all tasks are there (speed_of)
  double generated = 0;      // tokens in all pairs, by either side
  double pages_read = 1;     // share of the pages that dense attention reads, in all layers
  double limit = 1;          // no flow that reads so many pages is faster, whatever the rest of a step takes
  std::vector<double> mass;  // [layers] share of the dense attention mass on the selected pages
  int strayed = 0;           // questions whose answer was another than the one that was scored
  int compared = 0;          // questions whose answer was scored
  TimingConditions conditions;
};

/// Decode throughput of the flow over that of dense attention, and what the flow read: means over tasks, each of which counts
/// alike, as it does in accuracy.
struct SpeedResult {
  Ratio speedup;
  int tokens = 0;  // of the longest prompt
  int batch = 0;   // the largest
  int pairs = 0;
  double dense_tokens_per_second = 0;
  double flow_tokens_per_second = 0;
  double pages_read = 1;
  double limit = 1;
  std::vector<double> mass;  // [layers]
  TimingConditions conditions;
  std::vector<TaskSpeed> tasks;
};

/// Of the tasks of one length; what was not measured there is not there.
struct LengthResult {
  struct Speed {
    Ratio speedup;  // geometric mean
    double limit = 1;
    double pages_read = 1;
  };
  int tokens = 0;                    // of the prompts that were asked for
  std::optional<MeanAccuracy> mean;  // of those that count
  std::optional<Speed> speed;
};

/// Two flows of a run on the same samples, over the tasks that both were asked and that count.
struct FlowDifference {
  std::string flow;
  std::string other;
  int tasks = 0;
  double difference = 0;  // mean accuracy of `flow` less that of `other`, each task alike
  Interval interval;      // 95 %, of this pair alone
  double p_value = 1;     // that both are equally good (sign_flip over documents)
};

/// A mean over steps and windows of a trace; the interval is over blocks of steps, and there is none of a single one.
struct TraceScore {
  double mean = 0;
  std::optional<Interval> interval;
};

struct TraceScores {
  TraceScore mass;    // share of dense attention that the selected pages have
  TraceScore regret;  // what the best pages would have had beyond that, as many as were selected
  TraceScore error;   // of the output: distance from that of dense attention, over its length
};

/// One KV head of a recorded layer, as it runs the flow.
struct TraceHead {
  int layer = 0;
  int kv_head = 0;
  double pages_read = 1;
  TraceScores scores;
};

/// What a flow keeps of the attention of a real model, whose weights are not there.
struct TraceResult {
  std::string model;
  std::string digest;  // of the trace (AttentionTrace)
  int windows = 0;
  int tokens = 0;            // of a window
  int steps = 0;             // of a window
  double sparse_layers = 1;  // share of the model's layers that run the flow; the others count as dense
  double pages_read = 1;
  TraceScores scores;
  std::vector<TraceHead> heads;
};

/// How long a flow was in a stage: "verify", "numerical", "traces", those of the suite, "speed". What dense attention and other
/// flows of the run did meanwhile is counted in.
struct StageTime {
  std::string name;
  double seconds = 0;
};

/// The number by which flows are ranked (score_of), in [0, 1]; no interval where something that it is made of has none.
struct FlowScore {
  double value = 0;
  std::optional<Interval> interval;  // 95 %
};

struct FlowReport {
  std::string name;
  std::string path;
  FlowStatus status = FlowStatus::kPassed;
  std::string stage;    // where it stopped, or what could not be measured; empty if there is nothing to say
  std::string message;  // why
  std::string hint;
  std::string prefill;            // of a flow that is a pattern: how its prompts are computed, "pattern" or "dense"; else ""
  std::string untimed;            // why there is no speed, where one was tried
  std::vector<StageTime> stages;  // that it came to, in order
  std::optional<TraceResult> traces;
  std::string untraced;       // why there are none, where there is a trace
  std::string untraced_hint;  // what to do about it
  std::vector<TaskResult> tasks;
  std::optional<MeanAccuracy> mean;  // of these, if any counts
  std::optional<SpeedResult> speed;
  std::vector<LengthResult> lengths;  // of both, the shortest first
  std::optional<FlowScore> score;
};

/// A question, and what was said.
struct AskedQuestion {
  struct Said {
    std::string by;  // the flow; "" dense attention
    std::string text;
    bool ended = false;  // by the model itself; an answer that is decided is cut off before
    double credit = 0;
    std::optional<double> loss;  // texts: nats a token of what was given
  };
  std::string task;
  int tokens = 0;                      // that were asked for
  std::string prompt;                  // text, or ...
  std::vector<int32_t> prompt_tokens;  // ... tokens
  std::vector<int32_t> given;          // texts: tokens that were fed
  std::string answer;                  // that is right
  std::vector<Said> said;
};

/// Of a report on traces without any question.
inline constexpr const char* kTracesAlone = "traces";

struct Report {
  std::string device;
  std::string device_description;
  std::string model;
  std::string suite;
  std::string dialect;  // "mini" or "english"; "" where nothing was asked
  /// Speed is that of the time to the first token of prompts that are copied, not of decoding (suite reuse).
  bool times_first_token = false;
  std::string seed;  // 64 hexadecimal digits
  double seconds = 0;
  std::vector<std::string> notes;   // what a reader should know of the run
  std::vector<std::string> errors;  // parts of the suite that could not be run
  std::exception_ptr failure;       // the first of those, to be thrown again once the report is written
  std::vector<TaskResult> dense;    // dense attention against itself
  std::optional<MeanAccuracy> dense_mean;
  std::vector<FlowReport> flows;
  std::vector<FlowDifference> differences;  // between them (differences_between)
  std::vector<AskedQuestion> questions;     // where the suite keeps them
};

/// The JSON of schema sluice.eval/1 (docs/EVALUATION.md).
std::string to_json(const Report& report);
/// A table for a terminal: a line for dense attention and one a flow, then why flows stopped. `details`: and every task by
/// itself, with the samples that a flow lost and gained.
std::string to_table(const Report& report, bool details = false);

}  // namespace sluice
