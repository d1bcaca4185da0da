#include "agents/mcp/lineage_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <utility>

#include "agents/mcp/brief.h"
#include "agents/mcp/list_result.h"
#include "agents/mcp/submission_schemas.h"
#include "agents/mcp/text_page.h"
#include "agents/mcp/tool_schemas.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;

constexpr int64_t kMostRelatives = 100;

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
  if (const json& paired = diff.at("paired"); !paired.is_null()) {
    lines += fmt::format("on the same questions {:+.1f} points of accuracy (95% {:+.1f} to {:+.1f}), p = {:.2g}\n",
                         100 * paired.at("difference").get<double>(), 100 * paired.at("low").get<double>(),
                         100 * paired.at("high").get<double>(), paired.at("p_value").get<double>());
  }
  const std::string unified = diff.at("unified");
  return lines + (unified.empty() ? "the scripts are the same\n" : unified);
}

}  // namespace

Tool lineage_tool(HarnessService& service) {
  Tool tool;
  tool.name = "lineage";
  tool.title = "Relatives of a submission";
  tool.description =
      "What a submission was made from, what was made from it, or all that is related to it, with parents, status and metrics: "
      "shows which changes helped, the nearest first. diff shows what a change was.";
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
