#include "agents/evaluation/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agents/evaluation/load_source.h"
#include "tests/evaluation/fake_runner.h"

namespace sluice::test {
namespace {

TEST(Report, JsonHasTheDocumentedMembers) {
  FakeRunner runner;
  const std::string text = to_json(run(runner, {"right", "refused"}));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["schema"], "sluice.eval/1");
  for (const char* key : {"device", "model", "seed", "suite", "dialect", "dense", "flows"})
    EXPECT_TRUE(json.contains(key)) << key;
  const auto& passed = json["flows"][0];
  EXPECT_EQ(passed["status"], "passed");
  for (const char* key : {"name", "tokens", "samples", "documents", "accuracy", "low", "high", "whole", "dense_accuracy",
                          "dense_low", "dense_high", "dense_whole", "lost", "gained", "p_value"}) {
    EXPECT_TRUE(passed["tasks"][0].contains(key)) << key;
  }
  for (const char* key : {"accuracy", "low", "high", "dense_accuracy", "dense_low", "dense_high", "difference", "difference_low",
                          "difference_high"}) {
    EXPECT_TRUE(passed["mean"].contains(key)) << key;
  }
  EXPECT_TRUE(json["flows"][1]["mean"].is_null());
  for (const char* key : {"ratio", "low", "high"}) EXPECT_TRUE(passed["speedup"].contains(key)) << key;
  EXPECT_TRUE(passed.contains("pages_read"));
  EXPECT_TRUE(passed.contains("mass"));
  EXPECT_EQ(json["flows"][1]["status"], "rejected_static");
  EXPECT_TRUE(json["flows"][1]["speedup"].is_null());
}

TEST(Report, NeverTellsAnswers) {
  FakeRunner runner;
  const Report report = run(runner, {"wrong", "half"});
  constexpr size_t kWindow = 3;  // words; fewer could stand in any text
  for (const std::string& text : {to_json(report), to_table(report, true)}) {
    for (const std::string& prompt : runner.asked) {
      const std::vector<std::string> words = words_of(prompt);
      for (size_t i = 0; i + kWindow <= words.size(); ++i) {
        const std::string part = words[i] + " " + words[i + 1] + " " + words[i + 2];
        ASSERT_EQ(text.find(part), std::string::npos) << part;
      }
    }
    for (const std::string& answer : runner.answers) {
      if (words_of(answer).size() < kWindow) continue;
      EXPECT_EQ(text.find(answer), std::string::npos) << answer;
    }
    EXPECT_EQ(text.find("nothing\""), std::string::npos) << "what a flow generated is not told either";
  }
}

TEST(Report, TableHasALineForEachFlowAndItsReason) {
  FakeRunner runner;
  const std::string table = to_table(run(runner, {"right", "wrong", "refused"}));
  for (const char* part : {"(dense)", "passed", "below_threshold", "rejected_static", "hint: try max", "Seed "}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
}

TEST(Report, DetailsHaveARowForEachFlowAndTask) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "half"});
  EXPECT_EQ(to_table(report).find("lost"), std::string::npos);
  const std::string table = to_table(report, true);
  size_t rows = 0;
  for (const std::string& line : lines_of(table))
    rows += line.find("needle_multiquery 256  needle_multiquery  256") != std::string::npos;
  EXPECT_EQ(rows, 4U) << "accuracy and speed of two flows\n" << table;
  for (const char* part : {"lost", "gained", "  p\n"}) EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
}

TEST(Report, SpeedWithoutQuietIsMarked) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "restless"});
  const auto json = nlohmann::json::parse(to_json(report));
  const auto& quiet = json["flows"][0]["speedup"];
  EXPECT_EQ(quiet["quiet"], true);
  EXPECT_EQ(quiet["others_busy"], 0.125);
  const auto& restless = json["flows"][1]["speedup"];
  EXPECT_EQ(restless["quiet"], false);
  EXPECT_EQ(restless["others_busy"], 1.5);
  EXPECT_EQ(restless["cores"], 2);
  EXPECT_GE(restless["waited"], kOneLook);
  EXPECT_TRUE(restless["clocks"].is_null());
  const std::string table = to_table(report);
  const std::vector<std::string> lines = lines_of(table);
  EXPECT_EQ(lines[3].find('*'), std::string::npos) << table;
  EXPECT_NE(lines[4].find("x 2.00–2.00 *"), std::string::npos) << table;
  EXPECT_NE(table.find("others kept cores busy while these were timed: restless (1.5 of 2)."), std::string::npos) << table;
  EXPECT_EQ(table.find("held down"), std::string::npos) << table;
  EXPECT_NE(to_table(report, true).find("others busy  cores  waited (s)\n"), std::string::npos) << to_table(report, true);
}

TEST(Report, WhatIsNotKnownOfTheMachineIsNull) {
  Report report;
  report.flows.emplace_back().speed.emplace();
  const auto speed = nlohmann::json::parse(to_json(report))["flows"][0]["speedup"];
  for (const char* key : {"quiet", "others_busy", "cores", "clocks"}) {
    ASSERT_TRUE(speed.contains(key)) << key;
    EXPECT_TRUE(speed[key].is_null()) << key;
  }
  EXPECT_EQ(to_table(report).find('*'), std::string::npos);
}

TEST(Report, TellsHowFastAGpuRan) {
  Report report;
  FlowReport& flow = report.flows.emplace_back();
  flow.name = "quest";
  flow.speed.emplace().conditions.clocks = {{1500, 1980, 2619, false, {"power_cap"}, 1}, {1320, 1980, 2619, false, {}, {}}};
  const auto clocks = nlohmann::json::parse(to_json(report))["flows"][0]["speedup"]["clocks"];
  EXPECT_EQ(clocks["samples"], 2);
  EXPECT_EQ(clocks["sm_mhz"], 1410);
  EXPECT_EQ(clocks["sm_mhz_low"], 1320);
  EXPECT_EQ(clocks["sm_mhz_limit"], 1980);
  EXPECT_EQ(clocks["memory_mhz"], 2619);
  EXPECT_EQ(clocks["held_by"], nlohmann::json({"power_cap"}));
  EXPECT_EQ(clocks["other_processes"], 1);
  const std::string held = "clocks were held down while these were timed: quest (power_cap, 1410 of 1980 MHz).";
  EXPECT_NE(to_table(report).find(held), std::string::npos) << to_table(report);
  report.dense.emplace_back();
  EXPECT_NE(to_table(report, true).find("power_cap  1\n"), std::string::npos) << to_table(report, true);
}

TaskResult problems(const std::string& file, int k, double pass) {
  TaskResult result;
  result.task = result.group = "jsonl:" + file;
  result.clusters = {{1, 4}, {2, 4}};
  result.documents = 2;
  result.generations = 4;
  result.k = k;
  result.pass_at_k = pass;
  result.dense_clusters = result.clusters;
  result.gains = result.losses = {{0, result.clusters[0].samples}};
  return result;
}

TEST(Report, TableHasProblemSetsApartAndTheirPassAtK) {
  Report report;
  report.dense = {problems("sets/amc.jsonl", 4, 0.75), problems("aime.jsonl", 1, 0.375), problems("other/aime.jsonl", 2, 0.5)};
  report.flows.emplace_back();
  report.flows[0].name = "flow";
  report.flows[0].tasks = {problems("sets/amc.jsonl", 4, 0.625)};
  const std::vector<std::string> lines = lines_of(to_table(report));
  EXPECT_EQ(words_of(lines[0]), words_of("flow amc amc pass@4 jsonl:aime.jsonl jsonl:other/aime.jsonl jsonl:other/aime.jsonl "
                                         "pass@2 mean speed pages mass status"));
  EXPECT_NE(lines[2].find("  75%  "), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("  50%  "), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find("  62%  "), std::string::npos) << lines[3];
}

}  // namespace
}  // namespace sluice::test
