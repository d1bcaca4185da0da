#include "agents/mcp/list_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "agents/mcp/brief.h"
#include "agents/mcp/text_page.h"
#include "agents/mcp/tool_schemas.h"

namespace sluice::mcp {

using nlohmann::json;

ToolResult list_result(const char* member, json items, const std::string& title,
                       const std::function<std::string(const json& item)>& text, const std::string& how_on, int64_t behind) {
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

int64_t behind(const json& document, const char* member, int64_t skip) {
  const int64_t shown = skip + static_cast<int64_t>(document.at(member).size());
  return std::max<int64_t>(document.at("total").get<int64_t>() - shown, 0);
}

json skip_property(const char* what) { return integer_property(what, 0, int64_t{1} << 40, 0); }

json list_schema(const char* member, const json& item) {
  return output_object({{member, output_list(item)}, {"left_out", {{"type", "string"}}}}, {member});
}

json brief_rows(const json& summaries) {
  json rows = json::array();
  std::transform(summaries.begin(), summaries.end(), std::back_inserter(rows), brief_row);
  return rows;
}

std::string text_argument(const JsonObject& arguments, const char* name, const std::string& otherwise) {
  const std::string* text = arguments.find_text(name);
  return text == nullptr ? otherwise : *text;
}

}  // namespace sluice::mcp
