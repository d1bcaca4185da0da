#pragma once

#include <nlohmann/json.hpp>

#include "scripting/base/json_object.h"
#include "store/records.h"

// What the tools of the harness take and give, beside the pieces of tool_schemas.h.

namespace sluice::mcp {

/// Properties by which submissions are chosen, and what they say in arguments that follow them.
nlohmann::json filter_properties();
store::Filter filter_of(const JsonObject& arguments);

/// `brief_row` and `brief_submission`.
nlohmann::json row_schema();
nlohmann::json submission_schema();
nlohmann::json metric_schema();

}  // namespace sluice::mcp
