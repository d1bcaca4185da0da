#pragma once

#include <string>
#include <vector>

#include "agents/harness/harness_service.h"
#include "agents/mcp/tool.h"

namespace sluice::mcp {

/// What agents may do with the harness, in the order in which they are listed. `service` must outlive the tools.
std::vector<Tool> harness_tools(HarnessService& service);

/// What clients tell their model of the server before it has called anything.
std::string harness_instructions();

}  // namespace sluice::mcp
