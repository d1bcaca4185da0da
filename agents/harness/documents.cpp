#include "agents/harness/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "agents/evaluation/credits.h"
#include "agents/evaluation/metric_table.h"
#include "scripting/base/iso_time.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

template <typename Number>
json optional_number(const std::optional<Number>& value) {
  return value ? json(*value) : json(nullptr);
}

json optional_time(const std::optional<store::Time>& time) { return time ? json(iso_time(*time)) : json(nullptr); }

/// A JSON text of the store, which has checked it.
json parsed(const std::string& text) { return json::parse(text, nullptr, false); }

const char* name_of(store::StageStatus status) {
  switch (status) {
    case store::StageStatus::kPassed:
      return "passed";
    case store::StageStatus::kFailed:
      return "failed";
    case store::StageStatus::kSkipped:
      return "skipped";
  }
  return "";
}

json document_of(const store::StageResult& stage) {
  return {{"stage", stage.stage},
          {"status", name_of(stage.status)},
          {"seconds", stage.seconds},
          {"message", stage.message},
          {"details", parsed(stage.details)}};
}

json document_of(const store::Artifact& artifact) {
  return {{"name", artifact.name}, {"media_type", artifact.media_type}, {"size", artifact.size}};
}

/// Of all settings, those that a list shows.
json run_settings(const std::string& settings) {
  const json all = parsed(settings);
  json some = json::object();
  for (const char* key : {"model", "device", "suite"}) {
    if (all.contains(key) && all[key].is_string()) some[key] = all[key];
  }
  return some;
}

json value_of(const store::Metric& metric) {
  return {{"value", metric.value},
          {"low", optional_number(metric.low)},
          {"high", optional_number(metric.high)},
          {"unit", metric.unit}};
}

/// By name, of a whole evaluation.
json values_of(const std::vector<store::Metric>& metrics) {
  json values = json::object();
  for (const store::Metric& metric : metrics) values[metric.name] = value_of(metric);
  return values;
}

const store::Metric* find_score(const std::vector<store::Metric>& metrics) {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [](const store::Metric& metric) { return metric.name == metrics::kScore.name; });
  return found == metrics.end() ? nullptr : &*found;
}

/// By how much the judged score, which is a number and no estimate, was above what the confirmed one says.
json flattery(const std::vector<store::Metric>& judged, const std::vector<store::Metric>& confirmed) {
  const store::Metric* before = find_score(judged);
  const store::Metric* after = find_score(confirmed);
  if (before == nullptr || after == nullptr) return nullptr;
  const auto from = [&](const std::optional<double>& bound) { return bound ? json(before->value - *bound) : json(nullptr); };
  return {{"value", before->value - after->value}, {"low", from(after->high)}, {"high", from(after->low)}, {"unit", ""}};
}

json final_document(const store::Final& last) {
  return {{"id", last.submission},
          {"settings", run_settings(last.settings)},
          {"status", store::name_of(last.status)},
          {"confirmed", last.confirmed ? json(store::name_of(*last.confirmed)) : json(nullptr)},
          {"passed", last.passed()},
          {"metrics", values_of(last.metrics)}};
}

json judgement_document(store::SubmissionId id, const store::Judgement& judgement) {
  return {{"id", id},
          {"model", run_settings(judgement.settings).value("model", json())},
          {"status", store::name_of(judgement.status)},
          {"score", judgement.metric ? value_of(*judgement.metric) : json(nullptr)}};
}

json finalist_document(const store::Finalist& flow) {
  return {{"agent", flow.agent},
          {"name", flow.name},
          {"first", judgement_document(flow.submission, flow.first)},
          {"final", judgement_document(flow.final_submission, flow.last)}};
}

const char* basis(bool is_confirmed) { return is_confirmed ? "confirmed" : "judged"; }

}  // namespace

const char* name_of(store::Role role) { return role == store::Role::kAdmin ? "admin" : "agent"; }

json document_of(const store::SubmissionSummary& summary) {
  return {{"id", summary.id},
          {"agent", summary.agent},
          {"name", summary.name},
          {"status", store::name_of(summary.status)},
          {"created", iso_time(summary.created)},
          {"updated", iso_time(summary.updated)},
          {"parents", summary.parents},
          {"settings", run_settings(summary.settings)},
          {"metrics", values_of(summary.metrics)},
          {"confirmation", summary.confirmation ? document_of(*summary.confirmation, summary) : json(nullptr)},
          {"same_as", optional_number(summary.same_as)},
          {"final", summary.final ? final_document(*summary.final) : json(nullptr)},
          {"final_of", optional_number(summary.final_of)}};
}

json document_of(const store::Confirmation& confirmation, const store::SubmissionSummary& submission) {
  return {{"state", store::name_of(confirmation.state)},
          {"agent", confirmation.agent},
          {"automatic", confirmation.is_automatic},
          {"tries", confirmation.tries},
          {"factor", confirmation.factor},
          {"seed", confirmation.seed.empty() ? json(nullptr) : json(confirmation.seed)},
          {"status", confirmation.status ? json(store::name_of(*confirmation.status)) : json(nullptr)},
          {"message", confirmation.message},
          {"hint", confirmation.hint},
          {"created", iso_time(confirmation.created)},
          {"finished", optional_time(confirmation.finished)},
          {"metrics", values_of(confirmation.metrics)},
          {"flattered", flattery(submission.metrics, confirmation.metrics)}};
}

json document_of(const store::SubmissionSummary& summary, const store::Submission& submission) {
  json document = document_of(summary);
  document["script"] = submission.script;
  document["notes"] = submission.notes;
  document["content_hash"] = submission.content_hash;
  document["priority"] = submission.priority;
  document["settings"] = parsed(submission.settings);
  return document;
}

json document_of(const store::Metric& metric) {
  json document = value_of(metric);
  document["name"] = metric.name;
  if (!metric.task.empty()) document["task"] = metric.task;
  if (metric.length > 0) document["tokens"] = metric.length;
  return document;
}

json document_of(const store::Evaluation& evaluation) {
  const store::Verdict& verdict = evaluation.verdict;
  json document = {{"id", evaluation.id},
                   {"attempt", evaluation.attempt},
                   {"worker", evaluation.worker},
                   {"started", iso_time(evaluation.started)},
                   {"finished", optional_time(evaluation.finished)},
                   {"outcome", evaluation.outcome},
                   {"status", evaluation.has_verdict ? json(store::name_of(verdict.status)) : json(nullptr)},
                   {"message", verdict.message},
                   {"hint", verdict.hint}};
  for (const char* list : {"stages", "metrics", "artifacts"}) document[list] = json::array();
  for (const store::StageResult& stage : verdict.stages) document["stages"].push_back(document_of(stage));
  for (const store::Metric& metric : verdict.metrics) document["metrics"].push_back(document_of(metric));
  for (const store::Artifact& artifact : verdict.artifacts) {
    if (artifact.name != kCreditsArtifact) document["artifacts"].push_back(document_of(artifact));
  }
  return document;
}

json document_of(const store::FrontPoint& point) {
  return {{"submission", document_of(point.submission)},
          {"value", point.value},
          {"speed", point.speed},
          {"basis", basis(point.is_confirmed)}};
}

json document_of(const store::HistoryPoint& point) {
  return {{"submission", point.submission},
          {"agent", point.agent},
          {"name", point.name},
          {"finished", iso_time(point.finished)},
          {"value", point.value},
          {"best", point.best},
          {"suite", run_settings(point.settings).value("suite", json())}};
}

json document_of(const store::FinalsComparison& comparison) {
  json reversed = json::array();
  for (const auto& [by_final, by_first] : comparison.reversed) {
    reversed.push_back({{"better_by_final", finalist_document(by_final)}, {"better_by_first", finalist_document(by_first)}});
  }
  json divided = json::array();
  for (const store::Finalist& flow : comparison.divided) divided.push_back(finalist_document(flow));
  return {{"flows", comparison.flows},
          {"passed_both", comparison.passed_both},
          {"agreement", optional_number(comparison.agreement)},
          {"reversed", std::move(reversed)},
          {"reversed_total", comparison.reversed_total},
          {"divided", std::move(divided)},
          {"divided_total", comparison.divided_total}};
}

json document_of(const store::AgentSummary& agent) {
  return {{"name", agent.name},
          {"role", name_of(agent.role)},
          {"created", iso_time(agent.created)},
          {"submissions", agent.submissions},
          {"passed", agent.passed},
          {"best_score", optional_number(agent.best_score)}};
}

json document_of(const store::Study& study) {
  json trials = json::object();
  for (const auto state : {store::TrialState::kWaiting, store::TrialState::kRunning, store::TrialState::kComplete,
                           store::TrialState::kFailed, store::TrialState::kPruned}) {
    const auto found = study.trials.find(state);
    trials[store::name_of(state)] = found == study.trials.end() ? 0 : found->second;
  }
  return {{"id", study.id},
          {"agent", study.agent},
          {"name", study.name},
          {"goal", study.goal},
          {"settings", parsed(study.settings)},
          {"state", store::name_of(study.state)},
          {"created", iso_time(study.created)},
          {"trials", std::move(trials)}};
}

json document_of(const store::Trial& trial) {
  return {{"study", trial.study},
          {"number", trial.number},
          {"agent", trial.agent},
          {"submission", trial.submission},
          {"params", parsed(trial.parameters)},
          {"seed", optional_number(trial.seed)},
          {"state", store::name_of(trial.state)},
          {"is_told", trial.is_told},
          {"evaluation", optional_number(trial.evaluation)},
          {"status", trial.status ? json(store::name_of(*trial.status)) : json(nullptr)},
          {"message", trial.message},
          {"hint", trial.hint},
          {"values", values_of(trial.values)},
          {"created", iso_time(trial.created)},
          {"started", optional_time(trial.started)},
          {"finished", optional_time(trial.finished)}};
}

json document_of(const store::Event& event) {
  return {{"sequence", event.sequence},
          {"time", iso_time(event.time)},
          {"submission", event.submission ? json(*event.submission) : json(nullptr)},
          {"kind", event.kind},
          {"data", parsed(event.data)}};
}

json document_of(const store::Ranked& ranked) {
  return {{"rank", ranked.rank},
          {"submission", document_of(ranked.submission)},
          {"metric", document_of(ranked.metric)},
          {"basis", basis(ranked.is_confirmed)},
          {"by_final", ranked.by_final},
          {"finished", iso_time(ranked.finished)}};
}

}  // namespace sluice
