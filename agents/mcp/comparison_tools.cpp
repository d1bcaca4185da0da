#include "agents/mcp/comparison_tools.h"

#include <fmt/format.h>

#include <utility>

#include "agents/evaluation/metric_table.h"
#include "agents/harness/documents.h"
#include "agents/harness/route_parts.h"
#include "agents/mcp/brief.h"
#include "agents/mcp/list_result.h"
#include "agents/mcp/submission_schemas.h"
#include "agents/mcp/text_page.h"
#include "agents/mcp/tool_schemas.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

constexpr int64_t kMostRows = 50;
constexpr int64_t kUsualRows = 20;

json with_filters(json properties) {
  properties.update(filter_properties());
  return properties;
}

int limit_of(const JsonObject& arguments) {
  return static_cast<int>(arguments.find_integer("limit", 1, kMostRows).value_or(kUsualRows));
}

json limit_property() { return integer_property("Most entries", 1, kMostRows, kUsualRows); }

store::Ranking ranking_of(const JsonObject& arguments) {
  store::Ranking ranking;
  ranking.task = text_argument(arguments, "task", "");
  ranking.length = arguments.find_integer("tokens", 0, INT64_MAX).value_or(0);
  ranking.metric = known_metric(text_argument(arguments, "metric", metrics::usual(ranking.is_of_all())));
  ranking.higher_is_better =
      text_argument(arguments, "order", metrics::is_better_high(ranking.metric) ? "descending" : "ascending") == "descending";
  ranking.filter = filter_of(arguments);
  ranking.limit = limit_of(arguments);
  ranking.skip = arguments.find_integer("skip", 0, int64_t{1} << 40).value_or(0);
  return ranking;
}

json basis_schema() { return {{"type", "string"}, {"enum", {"judged", "confirmed"}}}; }

json brief_entry(const json& entry) {
  json brief = {{"rank", entry.at("rank")}, {"metric", brief_metric(entry.at("metric"))}, {"basis", entry.at("basis")}};
  if (entry.at("by_final") == true) brief["by_final"] = true;
  brief["submission"] = brief_row(entry.at("submission"));
  return brief;
}

json brief_finalist(const json& flow) {
  json brief = {{"agent", flow.at("agent")}, {"name", flow.at("name")}};
  for (const char* which : {"first", "final"}) {
    const json& judged = flow.at(which);
    brief[which] = {{"id", judged.at("id")}, {"status", judged.at("status")}};
    if (judged.at("model").is_string()) brief[which]["model"] = judged["model"];
    if (judged.at("score").is_object()) brief[which]["score"] = brief_metric(judged["score"]);
  }
  return brief;
}

/// A pair in opposite order, or a flow that passed on one model alone.
json disagreements_of(const json& finals) {
  json rows = json::array();
  for (const json& pair : finals.at("reversed")) {
    rows.push_back({{"kind", "opposite_order"},
                    {"better_by_final", brief_finalist(pair.at("better_by_final"))},
                    {"better_by_first", brief_finalist(pair.at("better_by_first"))}});
  }
  for (const json& flow : finals.at("divided")) rows.push_back({{"kind", "passed_on_one"}, {"flow", brief_finalist(flow)}});
  return rows;
}

std::string text_of_finalist(const json& flow) {
  std::string line = fmt::format("submission {} {}", flow.at("first").at("id").dump(), quoted(flow.at("name")));
  for (const char* which : {"first", "final"}) {
    const json& judged = flow.at(which);
    line += fmt::format("{}{} {}", which == std::string_view("first") ? " (" : ", ", judged.value("model", which),
                        judged.contains("score") ? text_of_metric(judged["score"]) : judged.at("status").get<std::string>());
  }
  return line + ")";
}

std::string text_of_disagreement(const json& row) {
  if (row.at("kind") == "passed_on_one") {
    const json& flow = row.at("flow");
    return fmt::format("{}: {} on the first model, {} on the final one", text_of_finalist(flow),
                       flow.at("first").at("status").get<std::string>(), flow.at("final").at("status").get<std::string>());
  }
  return fmt::format("{} is better on the final model, {} on the first", text_of_finalist(row.at("better_by_final")),
                     text_of_finalist(row.at("better_by_first")));
}

json finalist_schema() {
  const json text = {{"type", "string"}};
  const json judged = output_object(
      {{"id", {{"type", "integer"}}}, {"model", text}, {"status", text}, {"score", metric_schema()}}, {"id", "status"});
  return output_object({{"agent", text}, {"name", text}, {"first", judged}, {"final", judged}},
                       {"agent", "name", "first", "final"});
}

json brief_point(const json& point) {
  return {{"score", rounded(point.at("value"))},
          {"speed", rounded(point.at("speed"))},
          {"basis", point.at("basis")},
          {"submission", brief_row(point.at("submission"))}};
}

}  // namespace

Tool list_submissions_tool(HarnessService& service) {
  Tool tool;
  tool.name = "list_submissions";
  tool.title = "List submissions";
  tool.description =
      "Submissions of all agents, the newest first, with status and metrics. All filters that are given must hold. `next`, if it "
      "is there, is the cursor of the next page. For the best ones use leaderboard.";
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
      "The best submissions by one metric, of those that passed unless `status` says otherwise: as confirmed or, without that, "
      "as "
      "judged (`basis`), which flatters what was searched for. Entries share a rank where intervals do not tell them apart. "
      "Where a final model judges what passed, those that pass there stand first, by its score (`by_final`), unless `model` "
      "names another. "
      "Flows that were judged by "
      "another suite, model or device are no fair comparison: filter by suite. For score and speed together use front.";
  tool.input_schema = input_object(with_filters(
      {{"metric",
        {{"type", "string"}, {"description", metrics::compared(true) + "; without it score, of a single task accuracy"}}},
       {"task", text_property("The metric of this task alone, for example needle_multiquery, at the length `tokens`", 200)},
       {"tokens", integer_property("Length of that task's prompts; 0 without a task", 0, int64_t{1} << 30, 0)},
       {"order",
        choice_property("without it the best first: ascending for " + metrics::better_low(), {"descending", "ascending"})},
       {"limit", limit_property()},
       {"skip", skip_property("Entries to leave out: the best")}}));
  tool.output_schema = list_schema("entries", output_object({{"rank", {{"type", "integer"}}},
                                                             {"metric", metric_schema()},
                                                             {"basis", basis_schema()},
                                                             {"by_final", {{"type", "boolean"}}},
                                                             {"submission", row_schema()}},
                                                            {"rank", "metric", "basis", "submission"}));
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
          return fmt::format("{}. {} {}{}; submission {}", entry.at("rank").get<int64_t>(), entry.at("basis").get<std::string>(),
                             text_of_metric(entry.at("metric")), entry.contains("by_final") ? " by the final" : "",
                             text_of_row(entry.at("submission")));
        },
        "ask again with skip, with another limit or with filters", behind(board, "entries", ranking.skip));
  };
  return tool;
}

Tool finals_tool(HarnessService& service) {
  Tool tool;
  tool.name = "finals";
  tool.title = "Where two models disagree";
  tool.description =
      "What passed may be judged once more by another model, its final. Tells where the two disagree by score: pairs of flows "
      "that both tell apart beyond their intervals, in opposite order, and flows that passed on one alone. `agreement` is "
      "Kendall's tau of the scores of what passed on both.";
  tool.input_schema = input_object(with_filters({{"limit", limit_property()}}));
  const json text = {{"type", "string"}};
  tool.output_schema = list_schema("disagreements", output_object({{"kind", text},
                                                                   {"better_by_final", finalist_schema()},
                                                                   {"better_by_first", finalist_schema()},
                                                                   {"flow", finalist_schema()}},
                                                                  {"kind"}));
  for (const char* count : {"flows", "passed_both"}) tool.output_schema["properties"][count] = {{"type", "integer"}};
  tool.output_schema["properties"]["agreement"] = {{"type", "number"}};
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const json finals = service.finals(filter_of(arguments), limit_of(arguments), caller);
    json rows = disagreements_of(finals);
    const int64_t behind = finals.at("reversed_total").get<int64_t>() + finals.at("divided_total").get<int64_t>() -
                           static_cast<int64_t>(rows.size());
    ToolResult result = list_result("disagreements", std::move(rows), "disagreements of the two models", text_of_disagreement,
                                    "ask again with another limit or with filters", behind);
    for (const char* count : {"flows", "passed_both"}) result.structured[count] = finals.at(count);
    result.text += fmt::format("{} flows have a verdict of both, {} passed on both\n", finals.at("flows").dump(),
                               finals.at("passed_both").dump());
    if (finals.at("agreement").is_number()) {
      result.structured["agreement"] = rounded(finals["agreement"]);
      result.text += fmt::format("Kendall's tau of their scores: {}\n", result.structured["agreement"].dump());
    }
    return result;
  };
  return tool;
}

Tool front_tool(HarnessService& service) {
  Tool tool;
  tool.name = "front";
  tool.title = "Pareto front of score and speed";
  tool.description =
      "The submissions that no other beats in both score and speed: the frontier that a new flow should move. Filter by suite "
      "for a fair comparison.";
  tool.input_schema = input_object(with_filters({}));
  const json number = {{"type", "number"}};
  tool.output_schema = list_schema(
      "points", output_object({{"score", number}, {"speed", number}, {"basis", basis_schema()}, {"submission", row_schema()}},
                              {"score", "speed", "basis", "submission"}));
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const json front = service.front(metrics::kScore.name, metrics::kSpeedup.name, filter_of(arguments), caller);
    json points = json::array();
    for (const json& point : front.at("points")) points.push_back(brief_point(point));
    return list_result(
        "points", std::move(points), "submissions on the front",
        [](const json& point) {
          return fmt::format("{} score {}, {} times as fast as dense: submission {}", point.at("basis").get<std::string>(),
                             point.at("score").dump(), point.at("speed").dump(), text_of_row(point.at("submission")));
        },
        "ask again with filters");
  };
  return tool;
}

}  // namespace sluice::mcp
