#pragma once

#include "agents/harness/harness_service.h"
#include "agents/mcp/tool.h"

// Tools that show submissions beside one another.

namespace sluice::mcp {

Tool list_submissions_tool(HarnessService& service);
Tool leaderboard_tool(HarnessService& service);
Tool finals_tool(HarnessService& service);
Tool front_tool(HarnessService& service);

}  // namespace sluice::mcp
