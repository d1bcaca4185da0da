#include "agents/harness/submission_diff.h"

#include <map>
#include <tuple>

#include "agents/evaluation/credits.h"
#include "agents/harness/documents.h"
#include "scripting/base/error.h"
#include "store/lineage/text_diff.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr const char* kFile = "flow.lua";  // as the Git repository calls it

const char* name_of(store::DiffLine::Kind kind) {
  switch (kind) {
    case store::DiffLine::Kind::kContext:
      return "context";
    case store::DiffLine::Kind::kAdded:
      return "added";
    case store::DiffLine::Kind::kRemoved:
      return "removed";
  }
  return "";
}

json number_of_line(int line) { return line > 0 ? json(line) : json(nullptr); }

json document_of(const store::DiffHunk& hunk) {
  json lines = json::array();
  for (const store::DiffLine& line : hunk.lines) {
    lines.push_back({{"kind", name_of(line.kind)},
                     {"old", number_of_line(line.old_line)},
                     {"new", number_of_line(line.new_line)},
                     {"text", line.text}});
  }
  return {{"header", hunk.header}, {"lines", std::move(lines)}};
}

json settings_of(const std::optional<DiffSide>& side) {
  return side ? json::parse(side->submission.settings, nullptr, false) : json::object();
}

json changed_settings(const json& from, const json& to) {
  std::map<std::string, std::pair<json, json>> all;
  for (const auto& [key, value] : from.items()) all[key].first = value;
  for (const auto& [key, value] : to.items()) all[key].second = value;
  json changed = json::array();
  for (const auto& [key, values] : all) {
    if (values.first != values.second) changed.push_back({{"key", key}, {"from", values.first}, {"to", values.second}});
  }
  return changed;
}

/// Metrics of either side beside one another; null where one has none.
json compared_metrics(const std::optional<DiffSide>& from, const DiffSide& to) {
  using Key = std::tuple<std::string, std::string, int64_t>;
  std::map<Key, std::pair<json, json>> all;
  if (from) {
    for (const store::Metric& metric : from->metrics) all[{metric.name, metric.task, metric.length}].first = metric.value;
  }
  for (const store::Metric& metric : to.metrics) all[{metric.name, metric.task, metric.length}].second = metric.value;
  json metrics = json::array();
  for (const auto& [key, values] : all) {
    const auto& [name, task, tokens] = key;
    json metric = {{"name", name}, {"from", values.first}, {"to", values.second}};
    if (!task.empty()) metric["task"] = task;
    if (tokens > 0) metric["tokens"] = tokens;
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

std::optional<FlowDifference> difference_between(const DiffSide& from, const DiffSide& to) {
  if (from.credits.empty() || to.credits.empty()) return std::nullopt;
  try {
    return difference_of_credits(to.credits, from.credits);
  } catch (const InputError&) {
    return std::nullopt;  // kept by another version
  }
}

/// Of `to` beside `from` on the same questions; null where they were not asked the same.
json paired(const std::optional<DiffSide>& from, const DiffSide& to) {
  const std::optional<FlowDifference> difference = from ? difference_between(*from, to) : std::nullopt;
  if (!difference) return nullptr;
  return {{"tasks", difference->tasks},
          {"difference", difference->difference},
          {"low", difference->interval.low},
          {"high", difference->interval.high},
          {"p_value", difference->p_value}};
}

}  // namespace

json diff_document(const std::optional<DiffSide>& from, const DiffSide& to, bool whole) {
  const store::TextDiff diff = store::diff_texts(from ? from->submission.script : std::string(), to.submission.script, kFile,
                                                 whole ? store::kWholeContext : store::kUsualContext);
  json hunks = json::array();
  for (const store::DiffHunk& hunk : diff.hunks) hunks.push_back(document_of(hunk));
  return {{"from", from ? document_of(from->summary) : json(nullptr)},
          {"to", document_of(to.summary)},
          {"hunks", std::move(hunks)},
          {"unified", diff.unified},
          {"settings", changed_settings(settings_of(from), settings_of(to))},
          {"metrics", compared_metrics(from, to)},
          {"paired", paired(from, to)}};
}

}  // namespace sluice
