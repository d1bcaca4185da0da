#include "store/database/results.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "store/database/jobs.h"
#include "store/error.h"
#include "store/folder/text_checks.h"
#include "store/store.h"

namespace sluice::store {

namespace {

constexpr std::array kStageStatusNames = {"passed", "failed", "skipped"};

StageStatus stage_status_of(const std::string& name) {
  for (size_t i = 0; i < kStageStatusNames.size(); ++i) {
    if (name == kStageStatusNames.at(i)) return static_cast<StageStatus>(i);
  }
  throw StoreError(ErrorKind::kCorrupted, "there is no status of a stage \"" + name + "\"");
}

[[noreturn]] void refuse(const std::string& message) { throw StoreError(ErrorKind::kInvalid, message); }

void check_metric(const Metric& metric) {
  check_text("metric's name", metric.name, Limits::kName);
  const bool finite =
      std::isfinite(metric.value) && std::isfinite(metric.low.value_or(0)) && std::isfinite(metric.high.value_or(0));
  if (!finite) refuse(fmt::format("the metric {} is not finite", metric.name));
}

constexpr const char* kSelectEvaluation =
    "SELECT id, submission, attempt, worker, started, finished, outcome, verdict, message, hint, seed FROM evaluations";
/// The evaluation of the confirmation of a submission's last verdict.
constexpr const char* kOfConfirmation =
    "(SELECT coalesce(c.evaluation, (SELECT MAX(e.id) FROM evaluations e "
    "WHERE e.submission = c.submission AND e.confirmation = c.id)) "
    "FROM submissions s JOIN submissions o ON o.id = coalesce(s.same_as, s.id) JOIN confirmations c ON c.judged = o.judged "
    "WHERE s.id = ?)";
/// The evaluation of a trial, given by study and number.
constexpr const char* kOfTrial =
    "(SELECT coalesce(t.evaluation, (SELECT MAX(e.id) FROM evaluations e "
    "WHERE e.submission = t.submission AND coalesce(e.trial, 0) = t.id)) FROM trials t WHERE t.study = ? AND t.number = ?)";

Evaluation read_evaluation(const Query& query) {
  Evaluation evaluation;
  evaluation.id = query.integer(0);
  evaluation.submission = query.integer(1);
  evaluation.attempt = query.integer(2);
  evaluation.worker = query.text(3);
  evaluation.started = query.integer(4);
  evaluation.finished = query.optional_integer(5);
  evaluation.outcome = query.text(6);
  evaluation.has_verdict = !query.is_null(7);
  if (evaluation.has_verdict) evaluation.verdict.status = status_of(query.text(7));
  evaluation.verdict.message = query.text(8);
  evaluation.verdict.hint = query.text(9);
  evaluation.verdict.seed = query.text(10);
  return evaluation;
}

}  // namespace

void check_results(const Verdict& verdict) {
  check_text("message", verdict.message, Limits::kArtifactBytes);
  std::set<std::tuple<std::string, std::string, int64_t>> metrics;
  for (const Metric& metric : verdict.metrics) {
    check_metric(metric);
    if (!metrics.emplace(metric.name, metric.task, metric.length).second) {
      refuse(fmt::format("the metric {} (task \"{}\", length {}) is given twice", metric.name, metric.task, metric.length));
    }
  }
  for (const StageResult& stage : verdict.stages) {
    static_cast<void>(canonical_object(fmt::format("details of the stage {}", stage.stage), stage.details));
    if (!std::isfinite(stage.seconds)) refuse(fmt::format("the time of the stage {} is not finite", stage.stage));
  }
  std::set<std::string> artifacts;
  for (const Artifact& artifact : verdict.artifacts) {
    if (!artifacts.insert(artifact.name).second) refuse(fmt::format("the artifact {} is given twice", artifact.name));
  }
}

void write_results(Database& database, EvaluationId evaluation, const Verdict& verdict) {
  int position = 0;
  for (const StageResult& stage : verdict.stages) {
    Query(
        database,
        "INSERT INTO stage_results (evaluation, position, stage, status, seconds, message, details) VALUES (?, ?, ?, ?, ?, ?, ?)",
        evaluation, position++, stage.stage, kStageStatusNames.at(static_cast<size_t>(stage.status)), stage.seconds,
        stage.message, stage.details)
        .run();
  }
  for (const Metric& metric : verdict.metrics) {
    Query(database,
          "INSERT INTO metrics (evaluation, name, task, length, value, low, high, unit) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
          evaluation, metric.name, metric.task, metric.length, metric.value, metric.low, metric.high, metric.unit)
        .run();
  }
  for (const Artifact& artifact : verdict.artifacts) {
    Query(database, "INSERT INTO artifacts (evaluation, name, media_type, size, bytes) VALUES (?, ?, ?, ?, ?)", evaluation,
          artifact.name, artifact.media_type, static_cast<int64_t>(artifact.bytes.size()),
          Blob{artifact.bytes.substr(0, Limits::kArtifactBytes)})
        .run();
  }
}

std::vector<Metric> read_metrics(Database& database, EvaluationId evaluation) {
  std::vector<Metric> metrics;
  Query query(database,
              "SELECT name, task, length, value, low, high, unit FROM metrics WHERE evaluation = ? ORDER BY name, task, length",
              evaluation);
  while (query.step()) {
    metrics.push_back({query.text(0), query.text(1), query.integer(2), query.real(3), query.optional_real(4),
                       query.optional_real(5), query.text(6)});
  }
  return metrics;
}

void read_results(Database& database, EvaluationId evaluation, Verdict& verdict) {
  Query stages(database,
               "SELECT stage, status, seconds, message, details FROM stage_results WHERE evaluation = ? ORDER BY position",
               evaluation);
  while (stages.step()) {
    verdict.stages.push_back({stages.text(0), stage_status_of(stages.text(1)), stages.real(2), stages.text(3), stages.text(4)});
  }
  verdict.metrics = read_metrics(database, evaluation);
  Query artifacts(database, "SELECT name, media_type, size FROM artifacts WHERE evaluation = ? ORDER BY name", evaluation);
  while (artifacts.step()) {
    verdict.artifacts.push_back({artifacts.text(0), artifacts.text(1), "", artifacts.integer(2)});
  }
}

std::optional<Evaluation> Store::last_evaluation(SubmissionId submission) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  Query query(*database_,
              fmt::format("{} WHERE submission = ? AND {} ORDER BY attempt DESC LIMIT 1", kSelectEvaluation, kOfSubmissions),
              submission);
  if (!query.step()) return std::nullopt;
  Evaluation evaluation = read_evaluation(query);
  read_results(*database_, evaluation.id, evaluation.verdict);
  return evaluation;
}

std::optional<Evaluation> Store::trial_evaluation(StudyId study, int64_t number) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  Query query(*database_, fmt::format("{} WHERE id = {}", kSelectEvaluation, kOfTrial), study, number);
  if (!query.step()) return std::nullopt;
  Evaluation evaluation = read_evaluation(query);
  read_results(*database_, evaluation.id, evaluation.verdict);
  return evaluation;
}

std::optional<Evaluation> Store::confirmation_evaluation(SubmissionId submission) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  Query query(*database_, fmt::format("{} WHERE id = {}", kSelectEvaluation, kOfConfirmation), submission);
  if (!query.step()) return std::nullopt;
  Evaluation evaluation = read_evaluation(query);
  read_results(*database_, evaluation.id, evaluation.verdict);
  return evaluation;
}

std::vector<Metric> Store::metrics(SubmissionId submission) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  Query query(*database_, "SELECT judged FROM submissions WHERE id = ?", submission);
  if (!query.step() || query.is_null(0)) return {};
  return read_metrics(*database_, query.integer(0));
}

std::optional<Artifact> Store::artifact(SubmissionId submission, const std::string& name) {
  Query query(*database_,
              "SELECT r.name, r.media_type, r.bytes, r.size FROM submissions s JOIN artifacts r ON r.evaluation = s.judged "
              "WHERE s.id = ? AND r.name = ?",
              submission, name);
  if (!query.step()) return std::nullopt;
  return Artifact{query.text(0), query.text(1), query.blob(2), query.integer(3)};
}

std::optional<Artifact> Store::trial_artifact(StudyId study, int64_t number, const std::string& name) {
  Query query(*database_,
              fmt::format("SELECT name, media_type, bytes, size FROM artifacts WHERE evaluation = {} AND name = ?", kOfTrial),
              study, number, name);
  if (!query.step()) return std::nullopt;
  return Artifact{query.text(0), query.text(1), query.blob(2), query.integer(3)};
}

std::vector<Evaluation> Store::evaluations(SubmissionId submission) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  std::vector<Evaluation> evaluations;
  Query query(*database_, fmt::format("{} WHERE submission = ? AND {} ORDER BY attempt", kSelectEvaluation, kOfSubmissions),
              submission);
  while (query.step()) {
    evaluations.push_back(read_evaluation(query));
    read_results(*database_, evaluations.back().id, evaluations.back().verdict);
  }
  return evaluations;
}

}  // namespace sluice::store
