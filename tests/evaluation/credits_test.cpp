#include "agents/evaluation/credits.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "scripting/base/error.h"

namespace sluice::test {
namespace {

using nlohmann::json;

json report_with(const json& flow, const json& dense) {
  const json task = {{"name", "salad"}, {"stage", "long"}, {"tokens", 4096}, {"accuracy", 0.5}};
  json of_flow = task;
  of_flow["credits"] = flow;
  json of_dense = task;
  of_dense["credits"] = dense;
  json text = {{"name", "text"}, {"stage", "long"},   {"tokens", 4096},
               {"accuracy", 1},  {"dense_loss", 2.5}, {"loss_differences", {0.25, -0.125}}};
  json dense_text = text;
  dense_text["loss_differences"] = {0, 0};
  return {{"dense", {{"tasks", {of_dense, dense_text}}}}, {"flows", {{{"name", "quest"}, {"tasks", {of_flow, text}}}}}};
}

TEST(TakeCredits, LeavesNoneInTheReport) {
  json report = report_with({{1, 0}, {1, 0.5}}, {{1, 1}, {1, 1}});
  const json credits = take_credits(report);
  EXPECT_EQ(report.dump().find("credits"), std::string::npos);
  EXPECT_EQ(report.dump().find("loss_differences"), std::string::npos);
  EXPECT_EQ(report["flows"][0]["tasks"][0]["accuracy"], 0.5);
  ASSERT_EQ(credits["tasks"].size(), 2U);
  EXPECT_EQ(credits["tasks"][0]["credits"], json({{1, 0}, {1, 0.5}}));
  EXPECT_EQ(credits["tasks"][0]["dense_credits"], json({{1, 1}, {1, 1}}));
  EXPECT_EQ(credits["tasks"][1]["loss_differences"], json({0.25, -0.125}));
}

TEST(TakeCredits, OfAReportWithoutTasksAreNone) {
  json report = {{"flows", {{{"name", "quest"}}}}};
  EXPECT_TRUE(take_credits(report)["tasks"].empty());
  report = {{"dense", 3}, {"flows", {{{"tasks", {7, "x", json::object()}}}}}};
  EXPECT_EQ(take_credits(report)["tasks"].size(), 3U) << "whoever reads them says what is wrong";
}

std::string text_of(const json& flow, const json& dense) {
  json report = report_with(flow, dense);
  return take_credits(report).dump();
}

TEST(DifferenceOfCredits, IsOfTheSameQuestions) {
  const json dense = {{1, 1}, {1, 1}};
  const auto difference = difference_of_credits(text_of({{1, 1}, {1, 1}}, dense), text_of({{1, 0}, {1, 0}}, dense));
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->tasks, 2) << "with the text, of which both lose the same";
  EXPECT_NEAR(difference->difference, 0.25, 1e-12) << "half the points of one of two tasks";
  EXPECT_NEAR(difference->p_value, 0.5, 1e-12);
  // Where dense attention answered otherwise, or documents are others, the text alone is left.
  for (const auto& [flow, answers] :
       {std::pair(json({{1, 1}, {1, 1}}), json({{1, 0}, {1, 1}})), std::pair(json({{1, 1}}), json({{1, 1}})),
        std::pair(json({{1, 1}, {1}}), json({{1, 1}, {1}})), std::pair(json({{1, 1}, {1, 1}}), json({{1, 1}, {1}})),
        std::pair(json({{1, 1}, {1, 1}}), json({{1, 1}}))}) {
    const auto rest = difference_of_credits(text_of(flow, answers), text_of({{1, 0}, {1, 0}}, dense));
    ASSERT_TRUE(rest) << flow << answers;
    EXPECT_EQ(rest->tasks, 1) << flow << answers;
  }
}

TEST(DifferenceOfCredits, RefusesWhatIsNoSuchDocument) {
  const std::string good = text_of({{1, 0}, {1, 0}}, {{1, 1}, {1, 1}});
  for (const std::string bad :
       {"", "{", "[]", R"({"schema": "sluice.eval/1", "tasks": []})", R"({"schema": "sluice.credits/1"})",
        R"({"schema": "sluice.credits/1", "tasks": [7]})",
        R"({"schema": "sluice.credits/1", "tasks": [{"name": "a", "stage": "b", "tokens": 1, "accuracy": 1}]})",
        R"({"schema": "sluice.credits/1", "tasks": [{"name": "a", "stage": "b", "tokens": 1, "accuracy": 1, "credits": [[2]],
            "dense_credits": [[1]]}]})",
        R"({"schema": "sluice.credits/1", "tasks": [{"name": "a", "stage": "b", "tokens": 1, "accuracy": 1, "credits": [1],
            "dense_credits": [[1]]}]})"}) {
    EXPECT_THROW(difference_of_credits(good, bad), InputError) << bad;
    EXPECT_THROW(difference_of_credits(bad, good), InputError) << bad;
  }
}

/// Whatever bytes of a document are lost or changed, it is read or refused.
TEST(DifferenceOfCredits, DamagedDocumentsAreRefusedOrRead) {
  std::mt19937_64 random(3);
  const std::string good = text_of({{1, 0}, {1, 0.25}, {0, 0, 1}}, {{1, 1}, {1, 1}, {1, 1, 0}});
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % bad.size();
      if (random() % 2 == 0)
        bad.erase(at, 1 + random() % 4);
      else
        bad[at] = "0179[]{},.:-\"e"[random() % 15];
    }
    try {
      difference_of_credits(bad, good);
      difference_of_credits(good, bad);
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace sluice::test
