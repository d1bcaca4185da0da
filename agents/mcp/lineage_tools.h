#pragma once

#include "agents/harness/harness_service.h"
#include "agents/mcp/tool.h"

// Tools that show what submissions were made from, and what was changed.

namespace sluice::mcp {

Tool lineage_tool(HarnessService& service);
Tool diff_tool(HarnessService& service);

}  // namespace sluice::mcp
