#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "agents/mcp/tool.h"
#include "scripting/base/json_object.h"

// Answers of tools that are lists: as many entries as have room, how many are left out, and how to ask for them.

namespace sluice::mcp {

/// The list `member` of a document, cut to what has room; `text` writes an item in a line. `behind`: how many more there are than
/// `items`; `how_on`: how to see them.
ToolResult list_result(const char* member, nlohmann::json items, const std::string& title,
                       const std::function<std::string(const nlohmann::json& item)>& text, const std::string& how_on,
                       int64_t behind = 0);
/// Of such an answer.
nlohmann::json list_schema(const char* member, const nlohmann::json& item);

/// How many entries a document has not, behind those that it has after `skip` others.
int64_t behind(const nlohmann::json& document, const char* member, int64_t skip);
/// What such a `skip` is asked for by.
nlohmann::json skip_property(const char* what);

/// Each of a list of summaries as `brief_row` has it.
nlohmann::json brief_rows(const nlohmann::json& summaries);

std::string text_argument(const JsonObject& arguments, const char* name, const std::string& otherwise);

}  // namespace sluice::mcp
