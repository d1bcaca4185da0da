#include "tests/store/reading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

namespace sluice::store::test {
namespace {

std::string text_of(const Metric& metric) {
  const auto bound = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : std::string("-"); };
  return fmt::format(" {}/{}/{}={} [{}, {}] {}", metric.name, metric.task, metric.length, metric.value, bound(metric.low),
                     bound(metric.high), metric.unit);
}

std::string text_of(const Evaluation& evaluation) {
  const Verdict& verdict = evaluation.verdict;
  std::string text =
      fmt::format("  {} attempt {} {} {}-{} {} {} \"{}\" \"{}\" {}", evaluation.id, evaluation.attempt, evaluation.worker,
                  evaluation.started, evaluation.finished.value_or(0), evaluation.outcome,
                  evaluation.has_verdict ? name_of(verdict.status) : "-", verdict.message, verdict.hint, verdict.seed);
  for (const StageResult& stage : verdict.stages) {
    text +=
        fmt::format(" {}:{}:{}:{}:{}", stage.stage, static_cast<int>(stage.status), stage.seconds, stage.message, stage.details);
  }
  for (const Metric& metric : verdict.metrics) text += text_of(metric);
  for (const Artifact& artifact : verdict.artifacts) {
    text += fmt::format(" {} {} {}", artifact.name, artifact.media_type, artifact.size);
  }
  return text + "\n";
}

std::string text_of(Store& store, const SubmissionSummary& summary) {
  const Submission whole = store.get(summary.id).value();
  std::string text =
      fmt::format("{} {} \"{}\" {} {}-{} {} of {} \"{}\" {} {} priority {} judged {}", summary.id, summary.agent, summary.name,
                  name_of(summary.status), summary.created, summary.updated, summary.settings, fmt::join(summary.parents, "+"),
                  whole.notes, whole.script.size(), whole.content_hash, whole.priority, whole.judged.value_or(0));
  for (const Metric& metric : store.metrics(summary.id)) text += text_of(metric);
  if (const auto artifact = store.artifact(summary.id, "report.json")) text += " report " + artifact->bytes;
  text += "\n";
  for (const Evaluation& evaluation : store.evaluations(summary.id)) text += text_of(evaluation);
  return text;
}

std::string submissions_of(Store& store) {
  std::string text;
  std::string cursor;
  do {
    const Page page = store.list({}, cursor, 30);
    text += fmt::format("page of {}\n", page.total.value_or(0));
    for (const SubmissionSummary& summary : page.submissions) text += text_of(store, summary);
    cursor = page.next;
  } while (!cursor.empty());
  return text;
}

std::string comparisons_of(Store& store) {
  std::string text;
  for (const char* suite : {"", "quick", "full"}) {
    const Ranking ranking{.metric = "accuracy", .filter = {.suite = suite}};
    text += fmt::format("{} measured in \"{}\":", store.count_measured(ranking), suite);
    for (const Ranked& row : store.leaderboard(ranking)) text += fmt::format(" {}", row.submission.id);  // ranks were others
    text += "\nfront:";
    for (const FrontPoint& point : store.pareto_front("accuracy", "speedup", ranking.filter)) {
      text += fmt::format(" {}", point.submission.id);
    }
    text += "\nhistory:";
    for (const HistoryPoint& point : store.history(ranking)) text += fmt::format(" {}={}", point.submission, point.best);
    text += "\n";
  }
  return text;
}

std::string relatives_of(Store& store, SubmissionId id) {
  std::string text = fmt::format("{}:", id);
  for (const SubmissionSummary& node : store.ancestors(id).nodes) text += fmt::format(" <{}", node.id);
  for (const SubmissionSummary& node : store.descendants(id).nodes) text += fmt::format(" >{}", node.id);
  return text + fmt::format(" of {}\n", store.family(id).total);
}

}  // namespace

std::string reading_of(Store& store) {
  std::string text;
  for (const AgentSummary& agent : store.agents()) {
    const Quota quota = store.quota_of(agent.name);
    text += fmt::format("{} {} {} {} {} {} quota {} of {}\n", agent.name, static_cast<int>(agent.role), agent.created,
                        agent.submissions, agent.passed, agent.best_score.value_or(-1), quota.used, quota.limit);
  }
  text += submissions_of(store) + comparisons_of(store);
  for (const SubmissionId id : {1, 40, 77, 100}) text += relatives_of(store, id);
  std::map<std::string, int> kinds;
  for (const Event& event : store.events_after(0, 1000)) ++kinds[event.kind];
  for (const auto& [kind, count] : kinds) text += fmt::format("{} {}, ", count, kind);
  return text + fmt::format("last {}, {} for others, digests {}\n", store.last_event(),
                            store.count_waiting_for_others({{.model = "mini", .model_digest = {}, .device = "cpu"}}),
                            fmt::join(store.model_digests("mini"), " "));
}

}  // namespace sluice::store::test
