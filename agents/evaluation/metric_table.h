#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

/// How people read a metric.
enum class MetricForm : uint8_t {
  kShare,  // per cent
  kRatio,  // times dense attention
  kNats,   // above dense attention
};

/// Which side of a metric is better.
enum class MetricSide : uint8_t { kHigher, kLower, kNeither };

/// Where a report of schema sluice.eval/1 has a metric of a flow.
enum class ReportPlace : uint8_t {
  kTasks,    // in those of the flow's tasks that have it; of the whole evaluation it is their mean
  kSpeedup,  // in the flow's object of the metric's name, and in each of that one's tasks
  kFlow,     // a share among the flow's members, or null
  kLayers,   // a list by layer among the flow's members, of which it is the mean
  kTraces,   // in the flow's object "traces"
  kHoldout,  // the mean of tasks in another report, of questions that nobody is told of (holdout.h)
};

/// What a report calls a metric where it has it.
struct ReportMembers {
  ReportPlace place = ReportPlace::kFlow;
  const char* value = "";
  const char* low = "";  // of its interval; "" if it has none
  const char* high = "";
};

/// What is measured of a flow. All who read, keep, tell and show metrics do it by this table, the page by a copy of it
/// (agents/web/src/metrics.ts). Texts that explain a route name some of them as examples.
struct MetricInfo {
  const char* name;     // in verdicts, the API and on command lines
  const char* title;    // of the page
  const char* column;   // of tables in terminals
  const char* meaning;  // "" where the name says it
  MetricForm form;
  MetricSide better;
  ReportMembers report;

  constexpr bool has_interval() const { return *report.low != '\0'; }
  /// Of the verdicts that the store keeps.
  constexpr const char* unit() const {
    return form == MetricForm::kRatio ? "x dense" : form == MetricForm::kNats ? "nats a token" : "";
  }
};

namespace metrics {

/// By which flows are ranked (score_of).
inline constexpr MetricInfo kScore = {.name = "score",
                                      .title = "Score",
                                      .column = "score",
                                      .meaning = "accuracy of a real model; of the mini a fifth, the rest by the error on traces",
                                      .form = MetricForm::kShare,
                                      .better = MetricSide::kHigher,
                                      .report = {ReportPlace::kFlow, "score", "score_low", "score_high"}};
inline constexpr MetricInfo kAccuracy = {.name = "accuracy",
                                         .title = "Accuracy",
                                         .column = "accuracy",
                                         .meaning = "",
                                         .form = MetricForm::kShare,
                                         .better = MetricSide::kHigher,
                                         .report = {ReportPlace::kTasks, "accuracy", "low", "high"}};
/// Of dense attention, asked the same questions.
inline constexpr MetricInfo kDenseAccuracy = {.name = "dense_accuracy",
                                              .title = "Dense accuracy",
                                              .column = "dense",
                                              .meaning = "",
                                              .form = MetricForm::kShare,
                                              .better = MetricSide::kNeither,
                                              .report = {ReportPlace::kTasks, "dense_accuracy", "dense_low", "dense_high"}};
inline constexpr MetricInfo kSpeedup = {.name = "speedup",
                                        .title = "Speed",
                                        .column = "speed",
                                        .meaning = "times dense decoding",
                                        .form = MetricForm::kRatio,
                                        .better = MetricSide::kHigher,
                                        .report = {ReportPlace::kSpeedup, "ratio", "low", "high"}};
inline constexpr MetricInfo kPagesRead = {.name = "pages_read",
                                          .title = "Pages read",
                                          .column = "pages",
                                          .meaning = "",
                                          .form = MetricForm::kShare,
                                          .better = MetricSide::kLower,
                                          .report = {ReportPlace::kFlow, "pages_read"}};
inline constexpr MetricInfo kMass = {.name = "mass",
                                     .title = "Attention mass",
                                     .column = "mass",
                                     .meaning = "share of attention covered",
                                     .form = MetricForm::kShare,
                                     .better = MetricSide::kHigher,
                                     .report = {ReportPlace::kLayers, "mass"}};
inline constexpr MetricInfo kLoss = {.name = "loss",
                                     .title = "Loss above dense",
                                     .column = "loss",
                                     .meaning = "nats a token of text above dense attention",
                                     .form = MetricForm::kNats,
                                     .better = MetricSide::kLower,
                                     .report = {ReportPlace::kTasks, "loss_difference", "loss_low", "loss_high"}};
/// Of a real model's attention, as a trace has it (agents/traces).
inline constexpr MetricInfo kTraceMass = {.name = "trace_mass",
                                          .title = "Mass on traces",
                                          .column = "trace mass",
                                          .meaning = "share of a real model's attention covered",
                                          .form = MetricForm::kShare,
                                          .better = MetricSide::kHigher,
                                          .report = {ReportPlace::kTraces, "mass", "mass_low", "mass_high"}};
inline constexpr MetricInfo kTraceRegret = {.name = "trace_regret",
                                            .title = "Regret on traces",
                                            .column = "regret",
                                            .meaning = "share that the best pages, as many, would have covered beyond that",
                                            .form = MetricForm::kShare,
                                            .better = MetricSide::kLower,
                                            .report = {ReportPlace::kTraces, "regret", "regret_low", "regret_high"}};
inline constexpr MetricInfo kTraceError = {.name = "trace_error",
                                           .title = "Output error on traces",
                                           .column = "error",
                                           .meaning = "distance from dense attention's output, over its length",
                                           .form = MetricForm::kShare,
                                           .better = MetricSide::kLower,
                                           .report = {ReportPlace::kTraces, "error", "error_low", "error_high"}};

/// Of confirmations alone: flows are not ranked by it.
inline constexpr MetricInfo kHeldOut = {.name = "holdout_accuracy",
                                        .title = "Accuracy held out",
                                        .column = "holdout",
                                        .meaning = "accuracy of questions of other kinds and lengths, which nobody is told",
                                        .form = MetricForm::kShare,
                                        .better = MetricSide::kHigher,
                                        .report = {ReportPlace::kHoldout, "accuracy", "low", "high"}};

/// In the order in which they are read.
inline constexpr std::array kAll = {kScore, kAccuracy, kDenseAccuracy, kSpeedup,     kPagesRead,
                                    kMass,  kLoss,     kTraceMass,     kTraceRegret, kTraceError};
/// What confirmations have beside those.
inline constexpr std::array kOfConfirmations = {kHeldOut};

/// One of either list; null if there is no such metric.
const MetricInfo* find(std::string_view name);

/// Whether those with more of a metric come first. Also of those that have no better side, and that are not in the table.
bool is_better_high(std::string_view name);

/// By which flows are ranked where none is named: the score, of a single task (or length), which has none, the accuracy.
constexpr const char* usual(bool of_all) { return of_all ? kScore.name : kAccuracy.name; }

/// "score, accuracy, ...".
std::string names();

/// Those by which flows are compared: "score, accuracy, ... or mass"; `explained`: each with its meaning, if it needs
/// one, in parentheses.
std::string compared(bool explained = false);

/// Those of which less is better: "pages_read, loss and ...".
std::string better_low();

/// A value of the metric `name`: "96.0%" for shares, "1.92x" for ratios, "0.1234" for what is not in the table.
std::string number_text(std::string_view name, double value);
/// The same with its interval, "96.0% 93–98".
std::string number_text(std::string_view name, double value, double low, double high);

}  // namespace metrics
}  // namespace sluice
