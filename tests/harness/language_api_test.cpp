#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "scripting/lua/functions.h"
#include "tests/harness/api_fixture.h"

namespace sluice {
namespace {

using nlohmann::json;

class LanguageApi : public testing::ApiTest {};

TEST_F(LanguageApi, OperatorsAreThoseOfTheLanguage) {
  const json operators = get("/v1/operators")["operators"];
  std::vector<std::string> names;
  for (const json& each : operators) names.push_back(each["name"]);
  for (const std::string& name : function_names(false)) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  const auto sum = std::find_if(operators.begin(), operators.end(), [](const json& each) { return each["name"] == "sum"; });
  EXPECT_EQ((*sum)["stage"], "index and after");
  EXPECT_EQ((*sum)["signature"], "sluice.sum(x, axis, ...)");
}

TEST_F(LanguageApi, TheGuideIsMarkdownWithOperatorsAndSuites) {
  const auto answer = client().Get("/v1/guide");
  EXPECT_EQ(answer->get_header_value("Content-Type"), "text/markdown; charset=utf-8");
  for (const char* part :
       {"# Guide for agents", "`sluice.topk(", "`verify` (where you name none)", "*short*", "below_threshold"}) {
    EXPECT_NE(answer->body.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(answer->body.find("{{"), std::string::npos);
}

TEST_F(LanguageApi, TheFlowsOfTheGuideCompile) {
  Caller caller("agent ada");
  const std::string guide = service_->guide();
  const size_t begin = guide.find("```lua\n") + 7;
  const json checked = service_->check("guide", guide.substr(begin, guide.find("```", begin) - begin), caller);
  EXPECT_EQ(checked["ok"], true) << checked.dump();
}

TEST_F(LanguageApi, ShippedFlowsHaveTitles) {
  Caller caller("agent ada");
  const json flows = get("/v1/flows")["flows"];
  EXPECT_GE(flows.size(), 8U);
  for (const json& flow : flows) {
    EXPECT_FALSE(flow["title"].get<std::string>().empty()) << flow["name"];
    EXPECT_EQ(service_->check(flow["name"], flow["script"], caller)["ok"], true) << flow["name"];
  }
}

TEST_F(LanguageApi, SuitesTellWhatTheyAsk) {
  const json suites = get("/v1/suites")["suites"];
  ASSERT_EQ(suites.size(), 6U);
  EXPECT_EQ(suites[0]["name"], "verify");
  EXPECT_EQ(suites[0]["default"], true);
  EXPECT_EQ(suites[1]["stages"][0]["name"], "short");
  EXPECT_EQ(suites[1]["stages"][0]["threshold"], 0.15);
  EXPECT_GE(suites[1]["stages"][0]["tasks"].size(), 3U);
  EXPECT_EQ(suites[2]["name"], "standard");
  EXPECT_EQ(suites[4]["name"], "real");
  EXPECT_EQ(suites[4]["stages"][0]["tasks"][0]["task"], "text");
}

TEST_F(LanguageApi, ACheckShowsGraphAndPlan) {
  const json checked = post("/v1/check", draft("quest"), 200, token_);
  EXPECT_EQ(checked["ok"], true);
  EXPECT_EQ(checked["name"], "quest");
  EXPECT_EQ(checked["page"], 8);
  const json& nodes = checked["graph"]["nodes"];
  ASSERT_FALSE(nodes.empty());
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(nodes[i]["id"], i);
    EXPECT_NE(nodes[i]["text"].get<std::string>().find(fmt::format("%{} = ", i)), std::string::npos);
    for (const json& input : nodes[i]["inputs"]) EXPECT_LT(input, nodes[i]["id"]);
  }
  EXPECT_EQ(nodes.at(checked["graph"]["selection"].get<size_t>())["type"], "selection");
  EXPECT_NE(checked["plan"].get<std::string>().find("roofline"), std::string::npos);
  EXPECT_TRUE(get("/v1/submissions")["submissions"].empty()) << "nothing was handed in";
}

TEST_F(LanguageApi, ACheckShowsVariantsAndWhatIsComputedAgain) {
  const std::string script = R"(
    local flow = sluice.flow { name = "mixed", layers = { [0] = "ends", rest = "sparse" }, recompute = { layer = 2, rows = 5 } }
    function flow.index(q, c) return sluice.window { last = 4 } end
    local ends = flow.variant("ends")
    function ends.index(q, c) return sluice.window { first = 1, last = 2 } end
    function flow.recompute(r) return sluice.topk_tokens(r.mass:sum("head"), { ratio = 0.25 }) end
    return flow)";
  const json checked = post("/v1/check", {{"script", script}}, 200, token_);  // as the schema says, or the fixture complains
  ASSERT_EQ(checked["ok"], true) << checked.dump();
  ASSERT_EQ(checked["graph"]["variants"].size(), 1U);
  EXPECT_EQ(checked["graph"]["variants"][0]["name"], "ends");
  const json& rule = checked["graph"]["recompute"];
  EXPECT_EQ(rule["rule"], "selected");
  EXPECT_EQ(rule["layer"], 2);
  EXPECT_EQ(rule["rows"], 5);
  EXPECT_EQ(rule["nodes"][0]["text"].get<std::string>().substr(0, 14), "%0 = load mass");
}

TEST_F(LanguageApi, ACheckSaysWhatIsWrongAndWhere) {
  const json wrong = post("/v1/check", {{"script", "local flow = sluice.flow{name = 'x'}\nreturn flow:oops()"}}, 200, token_);
  EXPECT_EQ(wrong["ok"], false);
  EXPECT_EQ(wrong["line"], 2);
  EXPECT_EQ(wrong["file"], "flow.lua");
  const json endless = post("/v1/check", {{"script", "while true do end"}}, 200, token_);
  EXPECT_EQ(endless["ok"], false);
  const json hostile = post("/v1/check", {{"name", "<img onerror=alert(1)>"}, {"script", "return 1 +"}}, 200, token_);
  EXPECT_EQ(hostile["file"], "<img onerror=alert(1)>.lua");
  const std::string layers = "return sluice.flow{name = 'x', layers = {[99] = 'full', rest = 'sparse'}}";
  EXPECT_EQ(post("/v1/check", {{"script", layers}}, 200, token_)["ok"], false) << "the model has no such layer";
}

TEST_F(LanguageApi, ACacheManyTimesTheSizeOfKAndVIsRefused) {
  std::string fields;
  std::string sum = "0";
  for (int i = 1; i <= 9; ++i) {
    fields += fmt::format("c.f{} = c.k * {} ", i, i + 1);
    sum += fmt::format(" + c.f{}", i);
  }
  const std::string script = "local flow = sluice.flow{name = 'x', page = 16}\nfunction flow.cache(c) " + fields +
                             "end\nfunction flow.index(q, c) return sluice.topk(q:dot((" + sum +
                             "):mean('token')):max('head'), {k = 4}) end\nreturn flow";
  const json checked = post("/v1/check", {{"script", script}}, 200, token_);
  ASSERT_EQ(checked["ok"], false);
  EXPECT_NE(checked["message"].get<std::string>().find("times its K and V"), std::string::npos) << checked.dump();
}

TEST_F(LanguageApi, AChecksBodyIsRead) {
  post("/v1/check", draft("quest"), 401, "");
  post("/v1/check", json::array(), 400, token_);
  post("/v1/check", {{"name", "x"}}, 400, token_);
  post("/v1/check", {{"script", "x"}, {"settings", json::object()}}, 422, token_);
}

TEST_F(LanguageApi, ManyChecksTakeTurns) {
  std::vector<std::thread> askers;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&] {
      try {
        Caller caller("agent ada");
        good += service_->check("quest", read_flow("quest").source, caller)["ok"] == true ? 1 : 0;
      } catch (const HttpProblem& problem) {  // on a machine that is too busy
        good += problem.status() == 503 ? 1 : 0;
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(good, 8);
}

/// Checks that run until they are released.
class HeldCheck : public ::testing::Test {
 protected:
  json inspect() {
    ++running;
    std::unique_lock lock(mutex);
    released.wait(lock, [&] { return release; });
    return json{{"name", "x"}};
  }
  /// As many as run at once.
  void fill(FlowCheck& check) {
    for (int i = 0; i < FlowCheck::kLimits.most; ++i) {
      threads.emplace_back([&] { ask(check, "agent ada"); });
    }
    while (running < FlowCheck::kLimits.most) std::this_thread::yield();
  }
  /// The status of its answer.
  static int ask(FlowCheck& check, const std::string& name) {
    Caller caller(name);
    try {
      return check.check({"x", "x"}, caller)["ok"] == true ? 200 : 422;
    } catch (const HttpProblem& problem) {
      EXPECT_EQ(problem.headers().at("Retry-After"), "1");
      return problem.status();
    }
  }
  void finish() {
    {
      const std::lock_guard lock(mutex);
      release = true;
    }
    released.notify_all();
    for (std::thread& each : threads) each.join();
  }

  std::mutex mutex;
  std::condition_variable released;
  bool release = false;
  std::atomic<int> running = 0;
  std::vector<std::thread> threads;
};

TEST_F(HeldCheck, IsRefusedWhereItWouldWaitTooLong) {
  Turns::Limits limits = FlowCheck::kLimits;
  limits.patience = std::chrono::milliseconds(10);
  FlowCheck check([this](const FlowScript&) { return inspect(); }, limits);
  fill(check);
  EXPECT_EQ(ask(check, "agent ada"), 503);
  finish();
  EXPECT_EQ(ask(check, "agent ada"), 200);
}

TEST_F(HeldCheck, IsTheNextOfAnAgentThoughAnotherFillsTheLine) {
  FlowCheck check([this](const FlowScript&) { return inspect(); });
  fill(check);
  std::atomic<int> refused = 0;
  for (int i = 0; i < FlowCheck::kLimits.line + 10; ++i) {
    threads.emplace_back([&] { refused += ask(check, "agent ada") == 503 ? 1 : 0; });
  }
  while (refused < 10) std::this_thread::yield();  // the line is full
  std::atomic<int> status = 0;
  threads.emplace_back([&] { status = ask(check, "agent bob"); });
  while (refused < 11) std::this_thread::yield();  // one of ada's made room
  finish();
  EXPECT_EQ(status, 200);
}

}  // namespace
}  // namespace sluice
