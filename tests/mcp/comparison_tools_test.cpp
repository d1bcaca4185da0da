// Tools that show submissions beside one another, and answers that are too long.

#include "agents/mcp/comparison_tools.h"

#include <fmt/format.h>

#include "tests/mcp/harness_tools_fixture.h"

namespace sluice::mcp::test {
namespace {

TEST_F(HarnessTools, ListsAreFilteredAndPaged) {
  for (const char* flow : {"quest", "h2o", "block_topk"}) submit(flow);
  decide(0.9, 2);
  EXPECT_EQ(structured("list_submissions", {{"status", "queued"}})["submissions"].size(), 2U);
  EXPECT_EQ(structured("list_submissions", {{"text", "BLOCK_top"}})["submissions"].size(), 1U);
  EXPECT_EQ(structured("list_submissions", {{"agent", "bob"}})["submissions"].size(), 0U);
  const json page = structured("list_submissions", {{"limit", 2}});
  EXPECT_EQ(page["submissions"].size(), 2U);
  EXPECT_NE(text("list_submissions", {{"limit", 2}}).find("3 in all: call list_submissions with cursor"), std::string::npos);
  const json rest = structured("list_submissions", {{"limit", 2}, {"cursor", page["next"]}});
  EXPECT_EQ(rest["submissions"].size(), 1U);
  EXPECT_FALSE(rest.contains("next"));
  text("list_submissions", {{"cursor", "nonsense"}}, true);
}

TEST_F(HarnessTools, ComparisonsRankWhatPassed) {
  const int64_t quest = submit("quest");
  decide(0.9, 2);
  const int64_t blocks = submit("block_topk", {{"parents", {quest}}});
  decide(0.8, 3);
  submit("random");
  decide(0.1, 4, store::Status::kBelowThreshold);

  const json board = structured("leaderboard", json::object())["entries"];
  ASSERT_EQ(board.size(), 2U);
  EXPECT_EQ(board[0]["submission"]["id"], quest);
  EXPECT_EQ(board[0]["rank"], 1);
  const json fast = structured("leaderboard", {{"metric", "speedup"}, {"limit", 1}})["entries"];
  ASSERT_EQ(fast.size(), 1U);
  EXPECT_EQ(fast[0]["submission"]["id"], blocks);
  EXPECT_EQ(structured("leaderboard", {{"order", "ascending"}})["entries"][0]["submission"]["id"], blocks);
  EXPECT_EQ(structured("leaderboard", {{"task", "salad"}, {"tokens", 1024}})["entries"].size(), 2U);
  EXPECT_EQ(structured("leaderboard", {{"status", "below_threshold"}})["entries"].size(), 1U);
  EXPECT_EQ(structured("front", json::object())["points"].size(), 2U);
  EXPECT_EQ(structured("front", {{"agent", "bob"}})["points"].size(), 0U);

  const json nodes = structured("lineage", {{"id", quest}})["nodes"];
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[1]["parents"], json({quest}));
  EXPECT_EQ(structured("lineage", {{"id", quest}, {"of", "ancestors"}})["nodes"].size(), 0U);

  const std::string diff = text("diff", {{"id", blocks}});
  EXPECT_NE(diff.find("accuracy: 0.9 -> 0.8"), std::string::npos) << diff;
  EXPECT_NE(diff.find("-  c.hi = c.k:max(\"token\")\n"), std::string::npos) << diff;
  EXPECT_NE(text("diff", {{"id", quest}}).find("nothing, since it has no parent"), std::string::npos);
  EXPECT_NE(text("diff", {{"id", quest}, {"from", quest}}).find("the scripts are the same"), std::string::npos);
}

TEST_F(HarnessTools, LongAnswersAreCutAndSayHowToGoOn) {
  std::string script = "-- " + std::string(100, 'x') + "\n";
  while (script.size() < 60'000) script += "-- a comment\n";
  const int64_t id = submit("quest", {{"script", script}});
  json answer = structured("get_submission", {{"id", id}});
  std::string all = answer["script"];
  ASSERT_TRUE(answer.contains("script_continues_at_line"));
  EXPECT_NE(text("get_submission", {{"id", id}}).find("from_line"), std::string::npos);
  while (answer.contains("script_continues_at_line")) {
    answer = structured("get_submission", {{"id", id}, {"from_line", answer["script_continues_at_line"]}});
    all += answer["script"].get<std::string>();
  }
  EXPECT_EQ(all, script);

  const std::string diff = text("diff", {{"id", id}});
  EXPECT_NE(diff.find("call diff again with from_line"), std::string::npos);
  const std::string name(200, 'n');
  int64_t parent = id;
  for (int i = 0; i < 180; ++i) {
    parent = submit("quest", {{"name", name}, {"script", fmt::format("return {}", i)}, {"parents", {parent}}});
  }
  const json nodes = structured("lineage", {{"id", id}});
  EXPECT_LT(nodes["nodes"].size(), 181U);
  EXPECT_NE(nodes["left_out"].get<std::string>().find("ancestors or descendants"), std::string::npos);
  EXPECT_NE(text("lineage", {{"id", id}}).find("(181 in all)"), std::string::npos);
  const auto shown = static_cast<int64_t>(nodes["nodes"].size());
  EXPECT_TRUE(nodes["left_out"].get<std::string>().starts_with(fmt::format("{} more", 181 - shown)));
  EXPECT_EQ(structured("lineage", {{"id", id}, {"skip", 180}})["nodes"].size(), 1U);
  const json last = structured("lineage", {{"id", parent}})["nodes"];
  EXPECT_EQ(last[0]["id"], parent) << "the nearest first";
  EXPECT_EQ(last[1]["id"], last[0]["parents"][0]);
  EXPECT_EQ(structured("lineage", {{"id", parent}, {"of", "ancestors"}})["nodes"][0]["id"], last[1]["id"]);
  EXPECT_EQ(structured("lineage", {{"id", id}, {"of", "descendants"}})["nodes"][0]["parents"], json({id}));
}

TEST_F(HarnessTools, AVerdictOfAnyLengthHasRoom) {
  const int64_t id = submit("quest", {{"notes", std::string(16'000, 'n')}, {"script", std::string(60'000, '-')}});
  store::Verdict verdict;
  verdict.message = verdict.hint = std::string(50'000, 'm');
  for (int i = 0; i < 10; ++i) {
    verdict.stages.push_back({fmt::format("stage{}", i), store::StageStatus::kFailed, 1, std::string(9'000, 's'), "{}"});
  }
  for (int i = 0; i < 500; ++i) verdict.metrics.push_back({"accuracy", fmt::format("task{}", i), 1024, 0.5, 0.1, 0.9, ""});
  store_->complete(store_->claim("a test", 60'000'000).value(), verdict);
  const json judged = structured("get_submission", {{"id", id}});
  EXPECT_EQ(judged["stages"].size(), 10U);
  EXPECT_EQ(judged["tasks"].size() + judged["tasks_left_out"].get<size_t>(), 500U);
  EXPECT_NE(text("wait_result", {{"id", id}}).find("more\n"), std::string::npos);
}

TEST_F(HarnessTools, FinalsAreToldAndWhereTheyDisagree) {
  const store::FinalRun run{{}, R"({"model":"large","suite":"real"})", "score"};
  const auto twice = [&](const char* flow, double first, double last, store::Status status = store::Status::kPassed) {
    const int64_t id = submit(flow);
    decide(first, 2);
    EXPECT_EQ(store_->ask_finals(run).size(), 1U);
    decide(last, 2, status);
    return id;
  };
  const int64_t quest = twice("quest", 0.9, 0.4);
  const int64_t blocks = twice("block_topk", 0.5, 0.8);
  const int64_t fell = twice("random", 0.95, 0.1, store::Status::kBelowThreshold);
  const json board = structured("leaderboard", json::object())["entries"];
  EXPECT_EQ(board[0]["submission"]["id"], blocks);
  EXPECT_EQ(board[0]["by_final"], true);
  EXPECT_EQ(board[0]["submission"]["final"]["model"], "large");
  EXPECT_EQ(board[2]["submission"]["id"], fell);
  EXPECT_NE(text("leaderboard", json::object()).find("by the final"), std::string::npos);
  EXPECT_NE(text("get_submission", {{"id", quest}}).find("on large: passed (score 0.4"), std::string::npos);
  const int64_t last = board[0]["submission"]["final"]["id"];
  EXPECT_EQ(structured("get_submission", {{"id", last}})["final_of"], blocks);

  const json finals = structured("finals", json::object());
  EXPECT_EQ(finals["flows"], 3);
  ASSERT_EQ(finals["disagreements"].size(), 2U);
  EXPECT_EQ(finals["disagreements"][0]["better_by_final"]["first"]["id"], blocks);
  EXPECT_EQ(finals["disagreements"][1]["flow"]["final"]["status"], "below_threshold");
  EXPECT_NE(text("finals", json::object()).find("is better on the final model"), std::string::npos);
  EXPECT_EQ(structured("finals", {{"agent", "bob"}})["flows"], 0);
}

}  // namespace
}  // namespace sluice::mcp::test
