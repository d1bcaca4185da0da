#include "agents/mcp/comparison_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <utility>

#include "agents/evaluation/metric_table.h"
#include "agents/harness/documents.h"
#include "agents/mcp/brief.h"
#include "agents/mcp/submission_schemas.h"
#include "agents/mcp/text_page.h"
#include "agents/mcp/tool_schemas.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

constexpr int64_t kMostRows = 50;
constexpr int64_t kMostRelatives = 100;
constexpr int64_t kUsualRows = 20;

json brief_rows(const json& summaries) {
  json rows = json::array();
  std::transform(summaries.begin(), summaries.end(), std::back_inserter(rows), brief_row);
  return rows;
}

json with_filters(json properties) {
  properties.update(filter_properties());
  return properties;
}

std::string text_argument(const JsonObject& arguments, const char* name, const std::string& otherwise) {
  const std::string* text = arguments.find_text(name);
  return text == nullptr ? otherwise : *text;
}

int limit_of(const JsonObject& arguments) {
  return static_cast<int>(arguments.find_integer("limit", 1, kMostRows).value_or(kUsualRows));
}

json limit_property() { return integer_property("Most entries", 1, kMostRows, kUsualRows); }

/// The list `member` of a document, cut to what has room; `text` writes an item in a line. `behind`: how many more there are than
/// `items`.
template <typename Text>
ToolResult list_result(const char* member, json items, const std::string& title, const Text& text, const std::string& how_on,
                       int64_t behind = 0) {
  const int64_t left_out = static_cast<int64_t>(cut_list(items, kMostBytes)) + behind;
  std::string lines = fmt::format("{}: {}\n", title, items.empty() ? "none" : std::to_string(items.size()));
  for (const json& item : items) lines += text(item) + "\n";
  json structured = {{member, std::move(items)}};
  if (left_out > 0) {
    structured["left_out"] = fmt::format("{} more: {}", left_out, how_on);
    lines += structured["left_out"].get<std::string>() + "\n";
  }
  return {.text = std::move(lines), .structured = std::move(structured)};
}

/// How many entries a document has not, behind those that it has after `skip` others.
int64_t behind(const json& document, const char* member, int64_t skip) {
  const int64_t shown = skip + static_cast<int64_t>(document.at(member).size());
  return std::max<int64_t>(document.at("total").get<int64_t>() - shown, 0);
}

json skip_property(const char* what) { return integer_property(what, 0, int64_t{1} << 40, 0); }

json list_schema(const char* member, const json& item) {
  return output_object({{member, output_list(item)}, {"left_out", {{"type", "string"}}}}, {member});
}

store::Ranking ranking_of(const JsonObject& arguments) {
  store::Ranking ranking;
  ranking.metric = known_metric(text_argument(arguments, "metric", metrics::kAccuracy.name));
  ranking.task = text_argument(arguments, "task", "");
  ranking.length = arguments.find_integer("tokens", 0, INT64_MAX).value_or(0);
  ranking.higher_is_better =
      text_argument(arguments, "order", metrics::is_better_high(ranking.metric) ? "descending" : "ascending") == "descending";
  ranking.filter = filter_of(arguments);
  ranking.limit = limit_of(arguments);
  ranking.skip = arguments.find_integer("skip", 0, int64_t{1} << 40).value_or(0);
  return ranking;
}

json brief_entry(const json& entry) {
  json brief = {{"rank", entry.at("rank")}, {"metric", brief_metric(entry.at("metric"))}};
  brief["submission"] = brief_row(entry.at("submission"));
  return brief;
}

json brief_point(const json& point) {
  return {{"accuracy", rounded(point.at("accuracy"))},
          {"speed", rounded(point.at("speed"))},
          {"submission", brief_row(point.at("submission"))}};
}

std::string text_of_side(const char* name, const json& summary) {
  return fmt::format("{}: {}\n", name, summary.is_null() ? "nothing, since it has no parent" : text_of_row(brief_row(summary)));
}

std::string text_of_change(const json& change) {
  const auto text = [](const json& value) { return value.is_null() ? "none" : rounded(value).dump(); };
  return fmt::format("{} -> {}", text(change.at("from")), text(change.at("to")));
}

/// Of single tasks only what both have and differs; the rest says nothing about the change.
bool is_telling(const json& metric) {
  if (!metric.contains("task")) return true;
  return !metric.at("from").is_null() && !metric.at("to").is_null() && metric["from"] != metric["to"];
}

std::string text_of_diff(const json& diff) {
  std::string lines = text_of_side("from", diff.at("from")) + text_of_side("to", diff.at("to"));
  for (const json& change : diff.at("settings")) {
    lines += fmt::format("setting {}: {}\n", change.at("key").get<std::string>(), text_of_change(change));
  }
  for (const json& metric : diff.at("metrics")) {
    if (!is_telling(metric)) continue;
    lines += fmt::format("{}{}{}: {}\n", metric.at("name").get<std::string>(),
                         metric.contains("task") ? " of " + metric["task"].get<std::string>() : "",
                         metric.contains("tokens") ? fmt::format(" at {} tokens", metric["tokens"].get<int64_t>()) : "",
                         text_of_change(metric));
  }
  const std::string unified = diff.at("unified");
  return lines + (unified.empty() ? "the scripts are the same\n" : unified);
}

}  // namespace

Tool list_submissions_tool(HarnessService& service) {
  Tool tool;
  tool.name = "list_submissions";
  tool.title = "List submissions";
  tool.description =
      "Submissions of all agents, the newest first, with status and metrics. All filters that are given must hold. `next`, if it "
      "is "
      "there, is the cursor of the next page. For the best ones use leaderboard.";
  tool.input_schema =
      input_object(with_filters({{"cursor", text_property("`next` of the page before", 200)}, {"limit", limit_property()}}));
  tool.output_schema = list_schema("submissions", row_schema());
  tool.output_schema["properties"]["next"] = {{"type", "string"}};
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const json page = service.list(filter_of(arguments), text_argument(arguments, "cursor", ""), limit_of(arguments), caller);
    ToolResult result = list_result("submissions", brief_rows(page.at("submissions")), "submissions", text_of_row,
                                    "ask again with a smaller limit, and go on with next");
    const std::string next = page.at("next");
    if (!next.empty() && !result.structured.contains("left_out")) {
      result.structured["next"] = next;
      const std::string there =
          page.contains("total") ? fmt::format("{} in all", page.at("total").get<int64_t>()) : "There are more";
      result.text += fmt::format("{}: call list_submissions with cursor {}\n", there, excerpt(next));
    }
    return result;
  };
  return tool;
}

Tool leaderboard_tool(HarnessService& service) {
  Tool tool;
  tool.name = "leaderboard";
  tool.title = "Leaderboard";
  tool.description =
      "The best submissions by one metric, of those that passed unless `status` says otherwise. Flows that were judged by "
      "another "
      "suite, model or device are no fair comparison: filter by suite. For accuracy and speed together use front.";
  tool.input_schema = input_object(with_filters(
      {{"metric", {{"type", "string"}, {"default", metrics::kAccuracy.name}, {"description", metrics::compared(true)}}},
       {"task", text_property("The metric of this task alone, for example needle_multikey", 200)},
       {"tokens", integer_property("The metric at this length of prompt alone; 0: all", 0, int64_t{1} << 30, 0)},
       {"order",
        choice_property("without it the best first: ascending for " + metrics::better_low(), {"descending", "ascending"})},
       {"limit", limit_property()},
       {"skip", skip_property("Entries to leave out: the best")}}));
  tool.output_schema = list_schema(
      "entries", output_object({{"rank", {{"type", "integer"}}}, {"metric", metric_schema()}, {"submission", row_schema()}},
                               {"rank", "metric", "submission"}));
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const store::Ranking ranking = ranking_of(arguments);
    const json board = service.leaderboard(ranking, caller);
    json entries = json::array();
    for (const json& entry : board.at("entries")) entries.push_back(brief_entry(entry));
    return list_result(
        "entries", std::move(entries), "submissions by " + ranking.metric,
        [](const json& entry) {
          return fmt::format("{}. {}; submission {}", entry.at("rank").get<int64_t>(), text_of_metric(entry.at("metric")),
                             text_of_row(entry.at("submission")));
        },
        "ask again with skip, with another limit or with filters", behind(board, "entries", ranking.skip));
  };
  return tool;
}

Tool front_tool(HarnessService& service) {
  Tool tool;
  tool.name = "front";
  tool.title = "Pareto front of accuracy and speed";
  tool.description =
      "The submissions that no other beats in both accuracy and speed: the frontier that a new flow should move. Filter by suite "
      "for "
      "a fair comparison.";
  tool.input_schema = input_object(with_filters({}));
  const json number = {{"type", "number"}};
  tool.output_schema =
      list_schema("points", output_object({{"accuracy", number}, {"speed", number}, {"submission", row_schema()}},
                                          {"accuracy", "speed", "submission"}));
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const json front = service.front(metrics::kAccuracy.name, metrics::kSpeedup.name, filter_of(arguments), caller);
    json points = json::array();
    for (const json& point : front.at("points")) points.push_back(brief_point(point));
    return list_result(
        "points", std::move(points), "submissions on the front",
        [](const json& point) {
          return fmt::format("accuracy {}, {} times as fast as dense: submission {}", point.at("accuracy").dump(),
                             point.at("speed").dump(), text_of_row(point.at("submission")));
        },
        "ask again with filters");
  };
  return tool;
}

/// Relatives by how many steps from parent to child are between them and `id`, so that what is left out of a long answer is far.
json nearest_first(json nodes, int64_t id) {
  std::multimap<int64_t, int64_t> kin;
  for (const json& node : nodes) {
    for (const json& parent : node.at("parents")) {
      kin.emplace(node.at("id"), parent);
      kin.emplace(parent, node.at("id"));
    }
  }
  std::map<int64_t, int> steps = {{id, 0}};
  std::deque<int64_t> reached = {id};
  for (; !reached.empty(); reached.pop_front()) {
    const auto [first, last] = kin.equal_range(reached.front());
    for (auto next = first; next != last; ++next) {
      if (steps.try_emplace(next->second, steps.at(reached.front()) + 1).second) reached.push_back(next->second);
    }
  }
  const auto rank = [&](const json& node) {
    const int64_t own = node.at("id");
    const auto found = steps.find(own);
    // Ancestors come without `id` itself: parents are older than children, so that the newest are the nearest.
    return std::pair(found == steps.end() ? std::numeric_limits<int>::max() : found->second, -own);
  };
  std::sort(nodes.begin(), nodes.end(), [&](const json& a, const json& b) { return rank(a) < rank(b); });
  return nodes;
}

Tool lineage_tool(HarnessService& service) {
  Tool tool;
  tool.name = "lineage";
  tool.title = "Relatives of a submission";
  tool.description =
      "What a submission was made from, what was made from it, or all that is related to it, with parents, status and metrics: "
      "shows "
      "which changes helped, the nearest first. diff shows what a change was.";
  tool.input_schema = input_object({{"id", id_property("The submission")},
                                    {"of", choice_property("family, unless told otherwise: all related, itself among them",
                                                           {"family", "ancestors", "descendants"})},
                                    {"skip", skip_property("Relatives to leave out: the nearest")}},
                                   {"id"});
  tool.output_schema = list_schema("nodes", row_schema());
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const std::string of = text_argument(arguments, "of", "family");
    const int64_t id = arguments.integer("id", 1, INT64_MAX);
    const int64_t skip = arguments.find_integer("skip", 0, int64_t{1} << 40).value_or(0);
    const json page = service.lineage(id, of, skip, kMostRelatives, caller);
    const std::string first = skip > 0 ? fmt::format(", after the {} nearest", skip) : std::string();
    return list_result("nodes", brief_rows(nearest_first(page.at("nodes"), id)),
                       fmt::format("{} of submission {} ({} in all{})", of, id, page.at("total").get<int64_t>(), first),
                       text_of_row, "ask again with skip, or for ancestors or descendants of one of these",
                       behind(page, "nodes", skip));
  };
  return tool;
}

Tool diff_tool(HarnessService& service) {
  Tool tool;
  tool.name = "diff";
  tool.title = "What changed between two submissions";
  tool.description =
      "The change from one submission to another, as text: settings, metrics before and after, and a unified diff of the "
      "scripts. "
      "Without `from`, the change from its first parent.";
  tool.input_schema =
      input_object({{"id", id_property("The submission to look at")},
                    {"from", id_property("The submission to compare with; its first parent unless told otherwise")},
                    {"from_line", first_line_property()}},
                   {"id"});
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const json diff =
        service.diff(arguments.integer("id", 1, INT64_MAX), arguments.find_integer("from", 1, INT64_MAX), false, caller);
    return ToolResult{.text = paged_text(text_of_diff(diff), arguments)};
  };
  return tool;
}

}  // namespace sluice::mcp
