#pragma once

#include "agents/harness/harness_service.h"
#include "agents/mcp/tool.h"

// Tools for one flow: checking it, handing it in, and what became of it.

namespace sluice::mcp {

Tool check_flow_tool(HarnessService& service);
Tool submit_flow_tool(HarnessService& service);
Tool wait_result_tool(HarnessService& service);
Tool get_submission_tool(HarnessService& service);
Tool cancel_submission_tool(HarnessService& service);
Tool confirm_submission_tool(HarnessService& service);

}  // namespace sluice::mcp
