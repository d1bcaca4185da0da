#include "agents/harness/documents.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

namespace sluice {
namespace {

using nlohmann::json;

json optional_number(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

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
  return {{"name", artifact.name}, {"media_type", artifact.media_type}, {"bytes", artifact.size}};
}

}  // namespace

std::string time_text(store::Time time) {
  constexpr store::Time kSecond = 1'000'000;
  const std::time_t seconds = static_cast<std::time_t>(time / kSecond);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(seconds), time % kSecond);
}

json document_of(const store::SubmissionSummary& summary) {
  return {{"id", summary.id},
          {"agent", summary.agent},
          {"name", summary.name},
          {"status", store::name_of(summary.status)},
          {"created", time_text(summary.created)},
          {"updated", time_text(summary.updated)}};
}

json document_of(const store::Submission& submission) {
  return {{"id", submission.id},
          {"agent", submission.agent},
          {"name", submission.name},
          {"notes", submission.notes},
          {"script", submission.script},
          {"settings", parsed(submission.settings)},
          {"content_hash", submission.content_hash},
          {"status", store::name_of(submission.status)},
          {"priority", submission.priority},
          {"created", time_text(submission.created)},
          {"updated", time_text(submission.updated)},
          {"parents", submission.parents}};
}

json document_of(const store::Metric& metric) {
  json document = {{"name", metric.name},
                   {"value", metric.value},
                   {"low", optional_number(metric.low)},
                   {"high", optional_number(metric.high)}};
  if (!metric.task.empty()) document["task"] = metric.task;
  if (metric.length > 0) document["tokens"] = metric.length;
  if (!metric.unit.empty()) document["unit"] = metric.unit;
  return document;
}

json document_of(const store::Evaluation& evaluation) {
  const store::Verdict& verdict = evaluation.verdict;
  json document = {{"id", evaluation.id},
                   {"attempt", evaluation.attempt},
                   {"started", time_text(evaluation.started)},
                   {"finished", evaluation.finished ? json(time_text(*evaluation.finished)) : json(nullptr)},
                   {"outcome", evaluation.outcome},
                   {"message", verdict.message}};
  if (!evaluation.has_verdict) return document;
  document["status"] = store::name_of(verdict.status);
  document["hint"] = verdict.hint;
  for (const char* list : {"stages", "metrics", "artifacts"}) document[list] = json::array();
  for (const store::StageResult& stage : verdict.stages) document["stages"].push_back(document_of(stage));
  for (const store::Metric& metric : verdict.metrics) document["metrics"].push_back(document_of(metric));
  for (const store::Artifact& artifact : verdict.artifacts) document["artifacts"].push_back(document_of(artifact));
  return document;
}

json document_of(const store::Ranked& ranked) {
  return {{"submission", document_of(ranked.submission)},
          {"metric", document_of(ranked.metric)},
          {"finished", time_text(ranked.finished)}};
}

json document_of(const store::FrontPoint& point) {
  return {{"submission", document_of(point.submission)}, {"accuracy", point.accuracy}, {"speed", point.speed}};
}

json document_of(const store::HistoryPoint& point) {
  return {
      {"submission", point.submission}, {"finished", time_text(point.finished)}, {"value", point.value}, {"best", point.best}};
}

json document_of(const store::LineageNode& node) {
  json document = document_of(node.submission);
  document["parents"] = node.parents;
  return document;
}

json document_of(const store::Event& event) {
  return {{"sequence", event.sequence},
          {"time", time_text(event.time)},
          {"submission", event.submission ? json(*event.submission) : json(nullptr)},
          {"kind", event.kind},
          {"data", parsed(event.data)}};
}

json submission_schema() {
  const json text = {{"type", "string"}};
  const json number = {{"type", "integer"}};
  return {{"type", "object"},
          {"required", {"id", "agent", "name", "status", "created", "updated"}},
          {"properties",
           {{"id", number},
            {"agent", text},
            {"name", text},
            {"notes", text},
            {"script", text},
            {"settings", {{"type", "object"}}},
            {"content_hash", text},
            {"status", text},
            {"priority", number},
            {"created", {{"type", "string"}, {"format", "date-time"}}},
            {"updated", {{"type", "string"}, {"format", "date-time"}}},
            {"parents", {{"type", "array"}, {"items", number}}}}}};
}

json list_schema(const std::string& member) {
  return {{"type", "object"},
          {"required", {member}},
          {"properties", {{member, {{"type", "array"}, {"items", {{"type", "object"}}}}}}}};
}

}  // namespace sluice
