#include "agents/client/confirmation_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "agents/client/metric_text.h"
#include "agents/evaluation/metric_table.h"
#include "scripting/base/text_table.h"

namespace sluice {
namespace {

using nlohmann::json;

bool is_done(const json& confirmation) { return member_of(confirmation, "state") == "done"; }
bool is_confirmed(const json& confirmation) { return is_done(confirmation) && member_of(confirmation, "status") == "passed"; }

/// "  message\n    hint: hint\n", as far as there are any.
std::string words_of(const json& confirmation) {
  std::string text;
  for (const auto& [name, before] : {std::pair{"message", "  "}, std::pair{"hint", "    hint: "}}) {
    const json& said = member_of(confirmation, name);
    if (said.is_string() && !said.get<std::string>().empty()) text += fmt::format("{}{}\n", before, text_of(confirmation, name));
  }
  return text;
}

std::string table_of(const json& judged, const json& confirmed) {
  std::vector<TableRow> rows = {{"metric", "judged", "confirmed"}};
  const auto add = [&](const MetricInfo& metric) {
    const json& before = member_of(judged, metric.name);
    const json& after = member_of(confirmed, metric.name);
    if (before.is_null() && after.is_null()) return;
    rows.push_back({metric.name, metric_text(metric.name, before), metric_text(metric.name, after)});
  };
  std::for_each(metrics::kAll.begin(), metrics::kAll.end(), add);
  std::for_each(metrics::kOfConfirmations.begin(), metrics::kOfConfirmations.end(), add);
  return rows.size() > 1 ? "\n" + aligned_table(rows) : "";
}

std::string flattery_text(const json& flattered) {
  const auto points = [&](const char* name) { return 100 * member_of(flattered, name).get<double>(); };
  if (!member_of(flattered, "value").is_number()) return {};
  std::string text = fmt::format("the judged score flattered the flow by {:.1f} points", points("value"));
  if (member_of(flattered, "low").is_number() && member_of(flattered, "high").is_number()) {
    text += fmt::format(" ({:.1f} to {:.1f})", points("low"), points("high"));
  }
  return text + "\n";
}

}  // namespace

json standing_metrics(const json& summary) {
  json standing = member_of(summary, "metrics");
  const json& confirmation = member_of(summary, "confirmation");
  const json& confirmed = member_of(confirmation, "metrics");
  if (standing.is_object() && confirmed.is_object() && is_confirmed(confirmation)) standing.update(confirmed);
  return standing;
}

std::string confirmation_note(const json& summary) {
  const json& confirmation = member_of(summary, "confirmation");
  if (!is_done(confirmation)) return {};
  if (!is_confirmed(confirmation)) return fmt::format("; refuted: {}", text_of(confirmation, "status"));
  const std::string measured = measured_text(confirmation);
  return measured.empty() ? "; confirmed" : "; confirmed: " + measured.substr(2);  // without its comma
}

std::string confirmation_text(const json& submission) {
  const json& confirmation = member_of(submission, "confirmation");
  if (!confirmation.is_object()) return {};
  const std::string asker = member_of(confirmation, "automatic") == true ? "the server" : text_of(confirmation, "agent");
  std::string text =
      fmt::format("\nconfirmation: {}, asked for by {}, {} times the samples, try {} of its model, device and suite\n",
                  is_confirmed(confirmation) ? "confirmed"
                  : is_done(confirmation)    ? "refuted, " + text_of(confirmation, "status")
                                             : text_of(confirmation, "state"),
                  asker, text_of(confirmation, "factor"), text_of(confirmation, "tries"));
  text += words_of(confirmation);
  if (!is_done(confirmation)) return text;
  text += fmt::format("  seed {}\n", text_of(confirmation, "seed"));
  text += table_of(member_of(submission, "metrics"), member_of(confirmation, "metrics"));
  return text + flattery_text(member_of(confirmation, "flattered"));
}

}  // namespace sluice
