#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/sanitized.h"

namespace sluice::test {
namespace {

void expect_refused(const Ran& ran, const std::string& part) {
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_NE(ran.err.find(part), std::string::npos) << ran.err;
}

/// The report of `sluice bench serve` with these arguments.
nlohmann::json serve(std::vector<std::string> arguments, const std::string& seconds = "0.2") {
  const Folder folder;
  const std::string file = folder.path("report.json");
  arguments.insert(arguments.begin(), {"bench", "serve", "--seconds", seconds, "--json", file});
  const Ran ran = run_sluice(arguments);
  EXPECT_EQ(ran.exit_code, 0) << ran.err << ran.out;
  return ran.exit_code == 0 ? nlohmann::json::parse(read_file(file)) : nlohmann::json();
}

TEST(BenchServe, MeasuresARandomModelByOperation) {
  const auto report = serve({"--random-weights", "qwen3-0.6b", "--layers", "1", "--batch", "2", "--tokens", "200", "--generate",
                             "8", "--k", "3", "--profile"});
  ASSERT_EQ(report.at("rows").size(), 3U);
  EXPECT_EQ(report.at("rows")[0].at("name"), "prefill");
  const auto& dense = report.at("rows")[1];
  const auto& flow = report.at("rows")[2];
  EXPECT_EQ(dense.at("steps"), 8);
  EXPECT_EQ(dense.at("weight_bytes"), flow.at("weight_bytes"));
  EXPECT_GT(dense.at("cache_bytes"), flow.at("cache_bytes"));
  EXPECT_GT(dense.at("limit_us"), 0);
  // 3 pages beside the first and the last two, of 13 or 14.
  EXPECT_NEAR(flow.at("pages_share").get<double>(), 6.0 / 13, 0.05);
  ASSERT_EQ(report.at("profiles").size(), 2U);
  double share = 0;
  for (const auto& row : report.at("profiles")[1].at("rows")) share += row.at("share").get<double>();
  EXPECT_NEAR(share, 1, 1e-6);
}

TEST(BenchServe, SaysSoWhereNothingCouldBeMeasured) {
  expect_refused(run_sluice({"bench", "serve", "--rate", "4", "--seconds", "0", "--tokens", "64", "--batch", "2"}),
                 "too few to measure");
  expect_refused(run_sluice({"bench", "serve", "--rate", "4", "--profile"}), "--profile");
}

TEST(BenchServe, ServesRequestsThatArrive) {
  const std::string rates = kIsSanitized ? "2,4.5" : "20,40.5";
  const auto report = serve({"--rate", rates, "--tokens", "64", "--generate", "4", "--batch", "3"}, kIsSanitized ? "15" : "1.5");
  ASSERT_EQ(report.at("rows").size(), 4U);
  EXPECT_EQ(report.at("rows")[2].at("requests_per_s"), kIsSanitized ? 4.5 : 40.5);
  for (const auto& row : report.at("rows")) {
    EXPECT_GE(row.at("requests"), 1);
    EXPECT_LE(row.at("finished"), row.at("requests"));
  }
  EXPECT_EQ(report.at("rows")[0].at("requests"), report.at("rows")[1].at("requests"));
}

TEST(BenchServe, WhatCannotRunIsRefusedBeforeTheWork) {
  const auto refused = [](std::vector<std::string> arguments, const std::string& part) {
    arguments.insert(arguments.begin(), {"bench", "serve"});
    expect_refused(run_sluice(arguments), part);
  };
  refused({"--random-weights", "qwen3-7b"}, "qwen3-8b");
  refused({"--random-weights", "qwen3-8b", "--model", "."}, "--model");
  refused({"--layers", "2"}, "--random-weights");
  refused({"--random-weights", "qwen3-8b", "--layers", "37"}, "it has 36");
  refused({"--random-weights", "qwen3-32b", "--batch", "256", "--tokens", "20000"}, "GiB are free");
  refused({"--random-weights", "qwen3-32b", "--tokens", "41000"}, "40960 positions");
  refused({"--tokens", "16300", "--generate", "65536", "--batch", "1"}, "98308 to decode, untimed ones included: the model has");
  refused({"--tokens", "16300", "--generate", "200", "--rate", "4"}, "and 200 to decode");
  refused({"--random-weights", "qwen3-0.6b", "--layers", "1", "--batch", "256", "--tokens", "40960"}, "--generate or --batch");
  refused({"--dimension", "96", "--other"}, "bench serve does not take: --dimension 96 --other");
  refused({"--batch", "9", "--chunk", "17"}, "at least 18");
  refused({"--rate", "0"}, "--rate");
  refused({"--rate", "1,x"}, "--rate");
  refused({"--flow", "full", "--k", "3"}, "selects no pages");
  refused({"--flow", "streaming", "--k", "3"}, "window");
  refused({"--k", "0", "--first", "0", "--last", "0"}, "with the budget of --k, --first and --last: topk: the budget is empty");
}

}  // namespace
}  // namespace sluice::test
