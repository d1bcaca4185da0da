#include "agents/mcp/harness_tools.h"

#include <algorithm>
#include <utility>

#include "agents/mcp/comparison_tools.h"
#include "agents/mcp/language_tools.h"
#include "agents/mcp/lineage_tools.h"
#include "agents/mcp/submission_tools.h"

namespace sluice::mcp {
namespace {

/// The service's own hint would be an address of the HTTP API; a model has tools.
Tool with_hint(Tool tool) {
  tool.call = [call = std::move(tool.call)](const JsonObject& arguments, const ToolCall& caller) {
    try {
      return call(arguments, caller);
    } catch (HttpProblem& problem) {
      if (problem.status() == 404) problem.with("hint", "list_submissions tells which there are");
      throw;
    }
  };
  return tool;
}

}  // namespace

std::vector<Tool> harness_tools(HarnessService& service) {
  std::vector<Tool> tools = {guide_tool(service),
                             operators_tool(service),
                             shipped_flows_tool(service),
                             check_flow_tool(service),
                             submit_flow_tool(service),
                             wait_result_tool(service),
                             get_submission_tool(service),
                             cancel_submission_tool(service),
                             confirm_submission_tool(service),
                             list_submissions_tool(service),
                             leaderboard_tool(service),
                             finals_tool(service),
                             front_tool(service),
                             lineage_tool(service),
                             diff_tool(service)};
  std::transform(tools.begin(), tools.end(), tools.begin(), with_hint);
  return tools;
}

std::string harness_instructions() {
  return "Sluice judges sparse-attention flows: short Lua scripts that say which pages of the KV cache a decode step of an LLM "
         "attends to. Each flow that is handed in runs on a real model beside dense attention; accuracy and speed are measured, "
         "and "
         "every attempt is kept with its parents. The aim is a flow that answers as dense attention does and decodes faster.\n"
         "Call `guide` first: it explains the language and how flows are judged. Then: look at `leaderboard` and `front`, take a "
         "flow to begin with (`shipped_flows`, `get_submission`), change it, `check_flow` until it compiles, `submit_flow` with "
         "the flows that it came from as parents, `wait_result`, and improve on what the stages and tasks tell. A score that was "
         "searched for on the same questions flatters: `confirm_submission` has the best judged once more on new ones.";
}

}  // namespace sluice::mcp
