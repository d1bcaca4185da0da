#include "agents/client/final_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "agents/client/metric_text.h"
#include "agents/evaluation/metric_table.h"
#include "scripting/base/text_table.h"

namespace sluice {
namespace {

using nlohmann::json;

std::string model_of(const json& document) { return text_of(member_of(document, "settings"), "model"); }

/// "passed", "below_threshold", or that it passed and was refuted or confirmed.
std::string outcome_of(const json& last) {
  std::string status = text_of(last, "status");
  const json& confirmed = member_of(last, "confirmed");
  if (status != "passed" || !confirmed.is_string()) return status;
  return confirmed == "passed" ? "passed, confirmed" : "refuted, " + text_of(last, "confirmed");
}

std::string scores_of(const json& finalist, const char* which) {
  return metric_text(metrics::kScore.name, member_of(member_of(finalist, which), "score"));
}

/// "7 quest": the number by which the flow is known, that of the first.
std::string flow_of(const json& finalist) {
  return fmt::format("{} {}", text_of(member_of(finalist, "first"), "id"), text_of(finalist, "name"));
}

std::string model_in(const json& finalist, const char* which) { return text_of(member_of(finalist, which), "model"); }

int64_t count_of(const json& document, const char* name) {
  const json& count = member_of(document, name);
  return count.is_number_integer() ? count.get<int64_t>() : 0;
}

/// "3 of 12 are shown", if some are left out.
std::string rest_text(const json& listed, int64_t total) {
  const auto shown = static_cast<int64_t>(listed.size());
  return total > shown ? fmt::format("{} of {} are shown; GET /v1/finals?limit= tells more\n", shown, total) : "";
}

std::string reversed_text(const json& finals) {
  const json& pairs = member_of(finals, "reversed");
  if (!pairs.is_array() || pairs.empty()) return {};
  const json& one = member_of(pairs.front(), "better_by_final");
  const std::string first = model_in(one, "first");
  const std::string last = model_in(one, "final");
  std::vector<TableRow> rows = {{"better on " + last, first, last, "better on " + first, first, last}};
  for (const json& pair : pairs) {
    TableRow row;
    for (const char* side : {"better_by_final", "better_by_first"}) {
      const json& flow = member_of(pair, side);
      row.insert(row.end(), {flow_of(flow), scores_of(flow, "first"), scores_of(flow, "final")});
    }
    rows.push_back(std::move(row));
  }
  return "\nIn opposite order, by more than their intervals:\n" + aligned_table(rows) +
         rest_text(pairs, count_of(finals, "reversed_total"));
}

std::string divided_text(const json& finals) {
  const json& flows = member_of(finals, "divided");
  if (!flows.is_array() || flows.empty()) return {};
  std::vector<TableRow> rows = {{"passed on one alone", model_in(flows.front(), "first"), model_in(flows.front(), "final")}};
  for (const json& flow : flows) {
    rows.push_back({flow_of(flow), text_of(member_of(flow, "first"), "status"), text_of(member_of(flow, "final"), "status")});
  }
  return "\n" + aligned_table(rows) + rest_text(flows, count_of(finals, "divided_total"));
}

}  // namespace

std::string final_note(const json& summary) {
  const json& last = member_of(summary, "final");
  if (last.is_object()) return fmt::format("; on {}: {}{}", model_of(last), outcome_of(last), measured_text(last));
  const json& first = member_of(summary, "final_of");
  return first.is_number_integer() ? fmt::format("; the final of {}", first.dump()) : std::string();
}

std::string final_text(const json& submission) {
  const json& last = member_of(submission, "final");
  if (!last.is_object()) return {};
  std::string text = fmt::format("\nfinal: submission {}, on {} by suite {}: {}\n", text_of(last, "id"), model_of(last),
                                 text_of(member_of(last, "settings"), "suite"), outcome_of(last));
  std::vector<TableRow> rows = {{"metric", model_of(submission), model_of(last)}};
  const auto add = [&](const MetricInfo& metric) {
    const json& after = member_of(member_of(last, "metrics"), metric.name);
    if (after.is_null()) return;
    rows.push_back({metric.name, metric_text(metric.name, member_of(member_of(submission, "metrics"), metric.name)),
                    metric_text(metric.name, after)});
  };
  std::for_each(metrics::kAll.begin(), metrics::kAll.end(), add);
  std::for_each(metrics::kOfConfirmations.begin(), metrics::kOfConfirmations.end(), add);
  return rows.size() > 1 ? text + "\n" + aligned_table(rows) : text;
}

std::string final_score_text(const json& summary) {
  const json& last = member_of(summary, "final");
  if (!last.is_object()) return "-";
  if (member_of(last, "passed") == true)
    return metric_text(metrics::kScore.name, member_of(member_of(last, "metrics"), metrics::kScore.name));
  return outcome_of(last);
}

std::string disagreement_text(const json& finals) {
  const int64_t flows = count_of(finals, "flows");
  if (flows == 0) return {};
  std::string text = fmt::format("\n{} flow{} judged on both models, {} passed on both", flows, flows == 1 ? " was" : "s were",
                                 count_of(finals, "passed_both"));
  const json& agreement = member_of(finals, "agreement");
  if (agreement.is_number()) text += fmt::format("; Kendall's tau of their scores {:.2f}", agreement.get<double>());
  return text + "\n" + reversed_text(finals) + divided_text(finals);
}

}  // namespace sluice
