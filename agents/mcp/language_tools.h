#pragma once

#include "agents/harness/harness_service.h"
#include "agents/mcp/tool.h"

// Tools that explain how flows are written. They answer with text alone, which is how it is best read.

namespace sluice::mcp {

Tool guide_tool(HarnessService& service);
Tool operators_tool(HarnessService& service);
Tool shipped_flows_tool(HarnessService& service);

}  // namespace sluice::mcp
