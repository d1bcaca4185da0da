#include "tests/mcp/harness_tools_fixture.h"

#include <algorithm>
#include <utility>

#include "agents/mcp/argument_schema.h"
#include "agents/mcp/text_page.h"
#include "scripting/base/error.h"

namespace sluice::mcp::test {

HarnessTools::HarnessTools() {
  HarnessServiceOptions options;
  options.suite = "verify";
  options.inspect = [](const FlowScript& script) -> json {
    const FlowGraph graph = script.trace({});
    return {{"name", graph.name}, {"page", graph.geometry.page}, {"graph", json::object()}, {"plan", "the plan"}};
  };
  service_.emplace(database_, std::move(options));
  tools_ = harness_tools(*service_);
}

const Tool& HarnessTools::tool(const std::string& name) const {
  const auto found = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& candidate) { return candidate.name == name; });
  if (found == tools_.end()) throw InternalError("no tool " + name);
  return *found;
}

json HarnessTools::call(const std::string& name, const json& arguments, std::optional<Identity> identity) {
  ToolCall caller = {.identity = std::move(identity),
                     .caller = "agent ada",
                     .sent_token = sent_token_,
                     .is_wanted = [this] { return wanted_.load(); },
                     .deadline = std::chrono::steady_clock::now() + patience_,
                     .limit = {}};
  json result = call_tool(tool(name), arguments, caller);
  EXPECT_EQ(result["content"].size(), 1U);
  constexpr size_t kMost = kMostBytes + 4096;  // with what stands around a long text or list
  EXPECT_LT(result["content"][0]["text"].get<std::string>().size(), kMost);
  const json& schema = tool(name).output_schema;
  if (result.contains("structuredContent")) {
    EXPECT_EQ(schema_problems(schema, result["structuredContent"]), std::vector<std::string>());
    EXPECT_LT(result["structuredContent"].dump().size(), kMost);
  } else {
    EXPECT_TRUE(schema.is_null() || result["isError"] == true) << name;
  }
  return result;
}

json HarnessTools::structured(const std::string& name, const json& arguments) {
  const json result = call(name, arguments);
  EXPECT_EQ(result["isError"], false) << result.dump();
  return result.value("structuredContent", json::object());
}

std::string HarnessTools::text(const std::string& name, const json& arguments, bool is_error) {
  const json result = call(name, arguments);
  EXPECT_EQ(result["isError"], is_error) << result.dump();
  return result["content"][0]["text"];
}

int64_t HarnessTools::submit(const std::string& flow, const json& more) {
  json draft = {{"name", flow}, {"script", read_flow(flow).source}};
  draft.update(more);
  return structured("submit_flow", draft).value("id", int64_t{0});
}

void HarnessTools::decide(double accuracy, double speedup, store::Status status) {
  constexpr store::Time kMinute = 60'000'000;
  store::Verdict verdict;
  verdict.status = status;
  verdict.message = status == store::Status::kPassed ? "" : "it answers too little";
  verdict.hint = status == store::Status::kPassed ? "" : "read more pages";
  verdict.stages = {{"verify", store::StageStatus::kPassed, 0.12345, "", "{}"}};
  verdict.metrics = {{"score", "", 0, accuracy, {}, {}, ""},
                     {"accuracy", "", 0, accuracy, {}, {}, ""},
                     {"speedup", "", 0, speedup, speedup - 0.1, speedup + 0.1, "x dense"},
                     {"accuracy", "salad", 1024, accuracy, accuracy / 2, 1.0, ""}};
  store_->complete(store_->claim("a test", kMinute).value(), verdict);
}

}  // namespace sluice::mcp::test
