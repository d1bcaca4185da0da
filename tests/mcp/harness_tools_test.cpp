// Tools for one flow, from the guide to its verdict.

#include "agents/mcp/harness_tools.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <thread>

#include "tests/mcp/harness_tools_fixture.h"

namespace sluice::mcp::test {
namespace {

using namespace std::chrono_literals;

TEST_F(HarnessTools, AreWhatTheyAreAlways) {
  std::vector<std::string> names;
  for (const Tool& each : tools_) names.push_back(each.name);
  EXPECT_EQ(names, (std::vector<std::string>{"guide", "operators", "shipped_flows", "check_flow", "submit_flow", "wait_result",
                                             "get_submission", "cancel_submission", "confirm_submission", "list_submissions",
                                             "leaderboard", "finals", "front", "lineage", "diff"}));
  std::vector<Tool> again = harness_tools(*service_);
  for (size_t i = 0; i < tools_.size(); ++i) EXPECT_EQ(definition_of(tools_[i]), definition_of(again[i]));
}

TEST_F(HarnessTools, TellAModelHowToUseThem) {
  for (const Tool& each : tools_) {
    EXPECT_GT(each.description.size(), 60U) << each.name;
    EXPECT_FALSE(each.title.empty());
    EXPECT_EQ(each.input_schema["type"], "object");
    EXPECT_EQ(each.input_schema["additionalProperties"], false);
    for (const auto& [member, property] : each.input_schema["properties"].items()) {
      EXPECT_TRUE(property.contains("description")) << each.name << "." << member;
    }
    const std::set<std::string> writing = {"submit_flow", "cancel_submission", "confirm_submission"};
    EXPECT_EQ(each.annotations["readOnlyHint"], !writing.contains(each.name)) << each.name;
  }
}

TEST_F(HarnessTools, ExplainTheLanguage) {
  EXPECT_NE(text("guide", json::object()).find("submit_flow"), std::string::npos);
  const std::string operators = text("operators", json::object());
  EXPECT_NE(operators.find("topk"), std::string::npos);
  const std::string topk = text("operators", {{"name", "topk"}});
  EXPECT_LT(topk.size(), operators.size());
  EXPECT_NE(text("operators", {{"name", "no such"}}, true).find("hint:"), std::string::npos);
  EXPECT_NE(text("shipped_flows", json::object()).find("quest"), std::string::npos);
  EXPECT_EQ(text("shipped_flows", {{"name", "quest"}}), read_flow("quest").source);
  EXPECT_NE(text("shipped_flows", {{"name", "nothing"}}, true).find("block_topk"), std::string::npos);
}

TEST_F(HarnessTools, LongTextsGoOnAtALine) {
  const std::string first = text("guide", json::object());
  EXPECT_EQ(text("guide", {{"from_line", 3}}), first.substr(first.find('\n', first.find('\n') + 1) + 1));
}

TEST_F(HarnessTools, CheckWithoutJudging) {
  const json good = structured("check_flow", {{"script", read_flow("quest").source}});
  EXPECT_EQ(good["ok"], true);
  EXPECT_EQ(good["name"], "quest");
  EXPECT_EQ(good["plan"], "the plan");
  const json bad = call("check_flow", {{"script", "local flow = sluice.flow { name = 'a' }\nflow.cach = 1\nreturn flow"}});
  EXPECT_EQ(bad["isError"], true);
  EXPECT_EQ(bad["structuredContent"]["ok"], false);
  EXPECT_EQ(bad["structuredContent"]["line"], 2);
  EXPECT_NE(bad["content"][0]["text"].get<std::string>().find("line 2"), std::string::npos);
  EXPECT_EQ(structured("list_submissions", json::object())["submissions"].size(), 0U);
}

TEST_F(HarnessTools, WritingNeedsAToken) {
  const json arguments = {{"name", "a"}, {"script", "return 1"}, {"id", 1}};
  const std::map<std::string, std::vector<std::string>> tools = {{"check_flow", {"script"}},
                                                                 {"submit_flow", {"name", "script"}},
                                                                 {"cancel_submission", {"id"}},
                                                                 {"confirm_submission", {"id"}}};
  for (const bool sent : {false, true}) {
    sent_token_ = sent;
    for (const auto& [name, members] : tools) {
      json some = json::object();
      for (const std::string& member : members) some[member] = arguments[member];
      const json result = call(name, some, std::nullopt);
      EXPECT_EQ(result["isError"], true);
      const std::string text = result["content"][0]["text"];
      EXPECT_NE(text.find(sent ? "belongs to no agent" : "none came"), std::string::npos) << text;
      EXPECT_NE(text.find("claude mcp add"), std::string::npos);
      EXPECT_NE(text.find("codex mcp add"), std::string::npos);
    }
  }
  EXPECT_EQ(call("leaderboard", json::object(), std::nullopt)["isError"], false);
}

TEST_F(HarnessTools, FromASubmissionToItsVerdict) {
  const json first = structured(
      "submit_flow", {{"name", "quest"}, {"script", read_flow("quest").source}, {"notes", "as shipped"}, {"suite", "quick"}});
  const int64_t id = first["id"];
  EXPECT_EQ(first["is_new"], true);
  EXPECT_EQ(first["status"], "queued");
  EXPECT_EQ(first["settings"]["suite"], "quick");
  EXPECT_EQ(first["created"].get<std::string>().size(), std::string("2026-07-28T09:30:00Z").size());
  EXPECT_NE(first["next_step"].get<std::string>().find(fmt::format("wait_result with id {}", id)), std::string::npos);
  EXPECT_EQ(structured("wait_result", {{"id", id}, {"seconds", 0}})["status"], "queued");

  decide(0.91237, 2.5);
  const json judged = structured("wait_result", {{"id", id}});
  EXPECT_EQ(judged["status"], "passed");
  EXPECT_EQ(judged["metrics"]["accuracy"]["value"], 0.9124);
  EXPECT_EQ(judged["metrics"]["speedup"], json({{"value", 2.5}, {"low", 2.4}, {"high", 2.6}}));
  EXPECT_EQ(judged["stages"][0]["stage"], "verify");
  ASSERT_EQ(judged["tasks"].size(), 1U);
  EXPECT_EQ(judged["tasks"][0]["task"], "salad");
  EXPECT_EQ(judged["tasks"][0]["tokens"], 1024);
  EXPECT_FALSE(judged.contains("script"));
  const std::string text = this->text("wait_result", {{"id", id}});
  EXPECT_NE(text.find("\"quest\" by ada: passed; score 0.9124, accuracy 0.9124, speedup 2.5 [2.4, 2.6]"), std::string::npos)
      << text;
  EXPECT_NE(text.find("salad at 1024 tokens"), std::string::npos) << text;
  EXPECT_EQ(structured("get_submission", {{"id", id}})["script"], read_flow("quest").source);
}

TEST_F(HarnessTools, AFlowThatFailsSaysWhy) {
  const int64_t id = submit("random");
  decide(0.1, 3, store::Status::kBelowThreshold);
  const json judged = structured("wait_result", {{"id", id}});  // a verdict is no error of the tool
  EXPECT_EQ(judged["status"], "below_threshold");
  EXPECT_EQ(judged["message"], "it answers too little");
  EXPECT_EQ(judged["hint"], "read more pages");
  EXPECT_NE(judged["next_step"].get<std::string>().find(fmt::format("parents [{}]", id)), std::string::npos);
  EXPECT_TRUE(judged["next_step"].get<std::string>().starts_with("see message, hint and stages")) << "they are there";
}

TEST_F(HarnessTools, NamesKeepTheirLetters) {
  submit("quest", {{"name", "größer \"als\" 大"}});
  const std::string list = text("list_submissions", json::object());
  EXPECT_NE(list.find("\"größer \\\"als\\\" 大\" by ada"), std::string::npos) << list;
}

TEST_F(HarnessTools, IntegersMayBeWrittenAsFractions) {
  const int64_t id = submit("quest");
  const json draft = {{"name", "child"}, {"script", read_flow("h2o").source}, {"parents", {static_cast<double>(id)}}};
  EXPECT_EQ(structured("submit_flow", draft)["parents"], json({id}));
  EXPECT_EQ(structured("get_submission", {{"id", static_cast<double>(id)}})["id"], id);
  EXPECT_EQ(structured("list_submissions", {{"limit", 1.0}})["submissions"].size(), 1U);
}

TEST_F(HarnessTools, TheSameFlowIsTheSameSubmission) {
  const int64_t id = submit("quest");
  const json draft = {{"name", "other"}, {"script", read_flow("quest").source}};
  EXPECT_EQ(structured("submit_flow", draft)["id"], id);
  EXPECT_EQ(structured("submit_flow", draft)["is_new"], false);
  EXPECT_NE(text("submit_flow", draft).find("submitted before"), std::string::npos);
}

TEST_F(HarnessTools, WhatIsRefusedSaysWhatToDo) {
  EXPECT_NE(text("get_submission", {{"id", 77}}, true).find("there is no submission 77\nhint: list_submissions"),
            std::string::npos);
  for (const char* name : {"wait_result", "get_submission", "cancel_submission", "lineage", "diff"}) {
    EXPECT_NE(text(name, {{"id", 77}}, true).find("list_submissions"), std::string::npos) << name;
    EXPECT_NE(text(name, json::object(), true).find("id is missing"), std::string::npos) << name;
    EXPECT_NE(text(name, {{"id", "77"}}, true).find("id is \"77\"; an integer is wanted"), std::string::npos) << name;
  }
  const json draft = {{"name", "a"}, {"script", "return 1"}, {"parents", {5}}};
  EXPECT_NE(text("submit_flow", draft, true).find("submission 5"), std::string::npos);
  EXPECT_NE(text("submit_flow", {{"name", "a"}, {"script", "x"}, {"suite", "slow"}}, true).find("suite is \"slow\""),
            std::string::npos);
  EXPECT_NE(text("list_submissions", {{"status", "done"}}, true).find("\"queued\""), std::string::npos);
  EXPECT_NE(text("submit_flow", {{"name", ""}, {"script", "return 1"}}, true), "");
}

TEST_F(HarnessTools, CancelEndsWhatWaits) {
  const int64_t id = submit("quest");
  EXPECT_EQ(structured("cancel_submission", {{"id", id}})["status"], "cancelled");
  EXPECT_NE(text("cancel_submission", {{"id", id}}, true).find("ended already"), std::string::npos);
  const json other = call("cancel_submission", {{"id", submit("h2o")}}, Identity{"bob", Role::kAgent});
  EXPECT_EQ(other["isError"], true);
}

TEST_F(HarnessTools, WaitingEndsWithTheVerdict) {
  const int64_t id = submit("quest");
  std::jthread judge([this] {
    std::this_thread::sleep_for(200ms);
    store::Store store(database_);
    store.complete(store.claim("a test", 60'000'000).value(), store::Verdict());
  });
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(structured("wait_result", {{"id", id}})["status"], "passed");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 20s);
}

TEST_F(HarnessTools, WaitingEndsWhenNobodyWaits) {
  const int64_t id = submit("quest");
  std::jthread leave([this] {
    std::this_thread::sleep_for(200ms);
    wanted_ = false;
  });
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(structured("wait_result", {{"id", id}})["status"], "queued");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 20s);
}

TEST_F(HarnessTools, WaitingKeepsToTheTimeOfTheRequest) {
  const int64_t id = submit("quest");
  patience_ = 0s;
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_NE(text("wait_result", {{"id", id}}).find("call wait_result with id"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 20s);
}

TEST_F(HarnessTools, ConfirmWhatPassedAndTellByHowMuchItWasFlattered) {
  const int64_t id = submit("quest");
  EXPECT_NE(text("confirm_submission", {{"id", id}}, true).find("is queued"), std::string::npos);
  decide(0.9, 2);
  const json asked = structured("confirm_submission", {{"id", id}, {"seconds", 0}});
  EXPECT_EQ(asked["confirmation"]["state"], "queued");
  EXPECT_NE(asked["next_step"].get<std::string>().find("call confirm_submission with id 1 again"), std::string::npos);
  const json others = call("confirm_submission", {{"id", id}}, Identity{"bob", Role::kAgent});
  EXPECT_EQ(others["isError"], true);
  decide(0.5, 2);
  const json done = structured("confirm_submission", {{"id", id}});
  EXPECT_EQ(done["confirmation"]["status"], "passed");
  EXPECT_EQ(done["confirmation"]["metrics"]["score"]["value"], 0.5);
  EXPECT_EQ(done["confirmation"]["flattered"]["value"], 0.4);
  EXPECT_EQ(done["confirmation"]["seed"].get<std::string>().size(), 64U);
  EXPECT_EQ(done["metrics"]["score"]["value"], 0.9);
  EXPECT_NE(text("get_submission", {{"id", id}}).find("confirmation passed (score 0.5"), std::string::npos);
  EXPECT_EQ(structured("leaderboard", json::object())["entries"][0]["basis"], "confirmed");
  EXPECT_EQ(structured("front", json::object())["points"][0]["score"], 0.5);
  EXPECT_EQ(structured("list_submissions", json::object())["submissions"][0]["confirmation"]["state"], "done");
}

}  // namespace
}  // namespace sluice::mcp::test
