#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "agents/client/confirmation_text.h"
#include "agents/client/diff_text.h"
#include "agents/client/final_text.h"
#include "agents/client/harness_client.h"
#include "agents/client/lineage_tree.h"
#include "agents/client/submission_text.h"
#include "agents/client/verdict_wait.h"
#include "tests/harness/api_fixture.h"

namespace sluice {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

struct Printed {
  std::string text;  // both streams
  int status = 0;
};

/// Commands of the program against a server that judges nothing by itself.
class Client : public testing::ApiTest {
 protected:
  Printed run(const std::string& arguments) const {
    const std::string line = fmt::format("SLUICE_TOKEN={} {} {} --server http://127.0.0.1:{} 2>&1", token_, SLUICE_PROGRAM,
                                         arguments, server_->port());
    FILE* pipe = ::popen(line.c_str(), "r");
    Printed printed;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) printed.text += static_cast<char>(c);
    printed.status = ::pclose(pipe);
    return printed;
  }

  HarnessClient connection() const { return HarnessClient({fmt::format("http://127.0.0.1:{}", server_->port()), token_}); }

  static store::Metric metric(const std::string& name, double value, double low, double high, const std::string& task = {}) {
    store::Metric metric;
    metric.name = name;
    metric.task = task;
    metric.length = task.empty() ? 0 : 1024;
    metric.value = value;
    metric.low = low;
    metric.high = high;
    return metric;
  }

  static store::Verdict verdict(double accuracy, double speedup) {
    store::Verdict verdict;
    verdict.metrics = {{"score", "", 0, accuracy / 2, {}, {}, ""},
                       metric("accuracy", accuracy, accuracy - 0.1, 1),
                       metric("dense_accuracy", 1, 0.9, 1),
                       metric("speedup", speedup, speedup - 0.5, speedup + 0.5),
                       metric("accuracy", accuracy, accuracy - 0.2, 1, "salad"),
                       metric("dense_accuracy", 1, 0.8, 1, "salad")};
    store::StageResult speed;
    speed.stage = "speed";
    speed.seconds = 1.5;
    speed.details = R"({"mass": [1.0, 0.25]})";
    verdict.stages = {speed};
    return verdict;
  }
};

/// A part of a text that must be there.
void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" in:\n" << text;
}

TEST_F(Client, ShowsWhatWasMeasured) {
  submit(draft("quest", {{"notes", "as shipped"}}));
  decide(verdict(0.8, 2.5));
  const std::string shown = run("show 1").text;
  expect_part(shown, "submission 1, quest by ada: passed, score 40.0%, accuracy 80.0%, speedup 2.50x\n");
  expect_part(shown, "  as shipped\n");
  expect_part(shown,
              "score  accuracy      dense          speed            pages  mass  loss  trace mass  regret  error\n"
              "-----  ------------  -------------  ---------------  -----  ----  ----  ----------  ------  -----\n"
              "40.0%  80.0% 70–100  100.0% 90–100  2.50x 2.00–3.00  -      -     -     -           -       -\n");
  expect_part(shown, "speed  passed  1.50 s\n");
  expect_part(shown, "salad  1024    80.0% 60–100  100.0% 80–100\n");
  expect_part(shown, "layer  0  100.0%  ################################\nlayer  1   25.0%  ########\n");
}

TEST_F(Client, ListsAndRanks) {
  for (const auto& [flow, accuracy, speed] : {std::tuple{"quest", 0.8, 1.5}, {"full", 1.0, 1.0}, {"h2o", 0.6, 2.0}}) {
    submit(draft(flow));
    decide(verdict(accuracy, speed));
  }
  const std::string list = run("list --limit 2").text;
  EXPECT_EQ(std::count(list.begin(), list.end(), '\n'), 5) << list;
  EXPECT_LT(list.find("h2o"), list.find("full")) << list;
  expect_part(list, "3   passed  ada    h2o   30.0%  60.0% 50–100");
  expect_part(list, "\n2 of 3: --limit shows more\n");
  expect_part(run("list --limit 1 --text sluice").text, "\nthere are more: --limit shows them\n");
  const std::string best = run("leaderboard").text;
  expect_part(best, "1     2   ada    full   judged  50.0%  100.0% 90–100  100.0% 90–100  1.00x 0.50–1.50");
  const std::string fastest = run("leaderboard --by speedup --limit 1").text;
  expect_part(fastest, "\n1     3   ada    h2o");
  EXPECT_EQ(fastest.find("suites"), std::string::npos) << "there is one";
  EXPECT_EQ(run("leaderboard --order ascending --limit 1 --json").status, 0);
  expect_part(run("list --status nonsense").text, "422");
}

TEST_F(Client, ShowsWhatWasConfirmedBesideWhatWasJudged) {
  submit(draft("quest"));
  EXPECT_NE(run("confirm 1 --wait=0").status, 0) << "it is not judged yet";
  decide(verdict(0.9, 2.5));
  const Printed asked = run("confirm 1 --wait=0");
  EXPECT_EQ(asked.status, 0) << asked.text;
  expect_part(asked.text, "confirmation: queued, asked for by ada, 4 times the samples, try 1 of its model, device and suite\n");
  std::thread judge([&] {
    std::this_thread::sleep_for(300ms);
    decide(verdict(0.5, 2.5));
  });
  const Printed confirmed = run("confirm 1");
  judge.join();
  EXPECT_EQ(confirmed.status, 0);
  expect_part(confirmed.text, "; confirmed: ");
  expect_part(confirmed.text, "\nconfirmation: confirmed, asked for by ada");
  expect_part(confirmed.text, "metric          judged           confirmed\n");
  expect_part(confirmed.text, "the judged score flattered the flow by 20.0 points\n");
  expect_part(run("show 1").text, "\nconfirmation: confirmed");
  expect_part(run("leaderboard").text, "1     1   ada    quest  confirmed");
  expect_part(run("tree 1").text, "; confirmed: ");
  submit(draft("full"));
  store::Verdict below = verdict(0.1, 1);
  below.status = store::Status::kBelowThreshold;
  decide(below);
  const Printed refused = run("confirm 2");
  EXPECT_NE(refused.status, 0);
  expect_part(refused.text, "submission 2 is below_threshold: only what passed is confirmed");
}

TEST_F(Client, SaysThatNewQuestionsRefuteAFlow) {
  submit(draft("quest"));
  decide(verdict(0.9, 2.5));
  run("confirm 1 --wait=0");
  store::Verdict below = verdict(0.1, 2.5);
  below.status = store::Status::kBelowThreshold;
  below.message = "too little is right";
  decide(below);
  const std::string shown = run("confirm 1").text;
  expect_part(shown, "; refuted: below_threshold\n");
  expect_part(shown, "confirmation: refuted, below_threshold, asked for by ada");
  expect_part(shown, "  too little is right\n");
  expect_part(run("leaderboard").text, "none that passed");
}

TEST_F(Client, ShowsWhatBothModelsSayAndWhereTheyDisagree) {
  const store::FinalRun to_large{{}, R"({"model":"large","suite":"real"})", "score"};
  const auto twice = [&](const char* flow, const store::Verdict& first, const store::Verdict& last) {
    submit(draft(flow, {{"settings", {{"model", "mini"}}}}));
    decide(first);
    EXPECT_EQ(store_->ask_finals(to_large).size(), 1U);
    decide(last);
  };
  store::Verdict below = verdict(0.1, 1);
  below.status = store::Status::kBelowThreshold;
  twice("quest", verdict(0.9, 2), verdict(0.4, 2));
  twice("full", verdict(0.5, 1), verdict(0.8, 1));
  twice("random", verdict(0.7, 3), below);
  expect_part(run("show 3").text, "; on large: passed, score 40.0%, accuracy 80.0%, speedup 1.00x\n");
  expect_part(run("show 3").text, "\nfinal: submission 4, on large by suite real: passed\n");
  expect_part(run("show 3").text, "\nscore           25.0%            40.0%\n");
  expect_part(run("show 4").text, "; the final of 3\n");
  const std::string list = run("list").text;
  EXPECT_EQ(std::count(list.begin(), list.end(), '\n'), 5) << list;
  const std::string all = run("list --finals").text;
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 8) << all;
  const std::string board = run("leaderboard").text;
  expect_part(board, "flow    basis   mini   large            score");
  expect_part(board, "1     3   ada    full    judged  25.0%  40.0%            25.0%");
  expect_part(board, "3     5   ada    random  judged  35.0%  below_threshold  35.0%");
  expect_part(board, "\n3 flows were judged on both models, 2 passed on both\n");
  expect_part(board, "better on large  mini   large  better on mini  mini   large\n");
  expect_part(board, "3 full           25.0%  40.0%  1 quest         45.0%  20.0%\n");
  expect_part(board, "passed on one alone  mini    large\n");
  expect_part(board, "5 random             passed  below_threshold\n");
  EXPECT_EQ(run("leaderboard --by speedup").text.find("both models"), std::string::npos);
  const std::string of_mini = run("leaderboard --model mini").text;
  expect_part(of_mini, "1     1   ada    quest ");
  EXPECT_EQ(of_mini.find("both models"), std::string::npos);
}

TEST_F(Client, RanksTheFewestPagesFirst) {
  for (const auto& [flow, pages] : {std::pair{"quest", 0.5}, {"full", 1.0}, {"h2o", 0.25}}) {
    submit(draft(flow));
    store::Verdict verdict;
    verdict.metrics = {metric("pages_read", pages, pages, pages)};
    decide(verdict);
  }
  expect_part(run("leaderboard --by pages_read --limit 1").text, "\n1     3   ada    h2o");
  expect_part(run("leaderboard --by pages_read --order descending --limit 1").text, "\n1     2   ada    full");
}

TEST_F(Client, WarnsOfRowsThatAreNoFairComparison) {
  submit(draft("quest", {{"settings", {{"suite", "full"}}}}));
  decide(verdict(0.8, 1.5));
  submit(draft("full", {{"settings", {{"suite", "quick"}}}}));
  decide(verdict(0.9, 1));
  EXPECT_TRUE(
      run("leaderboard").text.ends_with("\nrows of several suites (quick, full) are no fair comparison: --suite quick\n"));
  EXPECT_EQ(run("leaderboard --suite full").text.find("several"), std::string::npos);
}

TEST_F(Client, ComparesTwoSubmissions) {
  submit(draft("quest"));
  decide(verdict(0.8, 2.5));
  std::string changed = read_flow("quest").source;
  changed.replace(changed.find("1 / 8"), 5, "1 / 4");
  submit({{"name", "wider"}, {"script", changed}, {"parents", {1}}});
  decide(verdict(0.9, 2.5));
  const std::string diff = run("diff 2").text;
  expect_part(diff, "\n-  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })");
  expect_part(diff, "\n+  return sluice.topk(score, { ratio = 1 / 4, first = 1, last = 2 })");
  expect_part(diff, "accuracy  all    -       80.0%  90.0%\n");
  expect_part(diff, "accuracy  salad  1024    80.0%  90.0%\n");
  EXPECT_EQ(diff.find("speedup"), std::string::npos) << "it has not changed";
  EXPECT_EQ(run("diff 1 2").text, diff);
  expect_part(run("diff 2 1").text, "accuracy  all    -       90.0%  80.0%\n");
  EXPECT_EQ(json::parse(run("diff 2 --json").text)["to"]["id"], 2);
}

TEST_F(Client, SaysWhatTheServerSays) {
  const Printed missing = run("show 99");
  EXPECT_NE(missing.status, 0);
  expect_part(missing.text, "there is no submission 99");
  expect_part(run("submit quest --token wrong").text, "SLUICE_TOKEN");
  expect_part(run("submit quest --parents 7").text, "404");
  server_->stop();
  expect_part(run("list").text, "does not answer");
}

TEST_F(Client, ShowsNoControlCharacters) {
  submit(draft("quest", {{"notes", "a\x1b[31mb"}}));
  const std::string shown = run("show 1").text;
  expect_part(shown, "[31mb");
  EXPECT_EQ(shown.find('\x1b'), std::string::npos);
}

TEST_F(Client, TellsOfAttemptsThatCameToNothing) {
  submit(draft("quest"));
  store_->fail(store_->claim("worker", 60'000'000).value(), "the worker ended");
  decide(verdict(0.8, 2.5));
  expect_part(run("show 1").text, "  attempt 1 failed: the worker ended\n");
}

TEST_F(Client, WaitsForAVerdictThatComesLater) {
  submit(draft("quest"));
  std::thread judge([&] {
    std::this_thread::sleep_for(300ms);
    decide(verdict(0.8, 2.5));
  });
  HarnessClient client = connection();
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_for_verdict(client, 1, {.most = 30s})["status"], "passed");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s) << "an event ends it, not the time";
  judge.join();
}

TEST_F(Client, WaitsNoLongerThanItIsTold) {
  submit(draft("quest"));
  HarnessClient client = connection();
  EXPECT_EQ(wait_for_verdict(client, 1, {.most = 1s})["status"], "queued");
  int asked = 0;
  const auto interrupted = [&] { return ++asked == 3; };
  EXPECT_EQ(wait_for_verdict(client, 1, {.most = 60s, .interrupted = interrupted})["status"], "queued");
  EXPECT_EQ(asked, 3);
}

/// Writes down what a Progress is told, what is told twice in a row once.
class Notes final : public Progress {
 public:
  void start(double work) override { total = work; }
  void show(const std::string& stage, const std::string& task, const std::string& flow) override {
    const std::string line = fmt::format("{} {} {}", stage, task, flow);
    if (seen.empty() || seen.back() != line) seen.push_back(line);
  }
  void advance(double work) override {
    done += work;
    has_advanced = true;
  }
  void shrink(double) override {}
  void finish() override { seen.emplace_back("finished"); }

  double total = 0;
  double done = 0;
  std::vector<std::string> seen;
  std::atomic<bool> has_advanced = false;  // for other threads
};

TEST_F(Client, TellsHowFarItIs) {
  submit(draft("quest"));
  submit(draft("full"));
  Notes notes;
  std::atomic<bool> is_over = false;
  HarnessClient client = connection();
  std::thread judge([&] {
    while (!notes.has_advanced && !is_over) {  // until the stream is open nobody hears it
      store_->append_event("progress", 1, R"({"stage": "short", "task": "salad", "share": 0.25})");
      std::this_thread::sleep_for(20ms);
    }
    store_->append_event("progress", 2, R"({"stage": "another's", "task": "", "share": 1.0})");
    store_->append_event("progress", 1, R"({"stage": "long", "task": "", "share": 0.75})");
    decide(verdict(0.8, 2.5));
  });
  wait_for_verdict(client, 1, {.most = 30s, .progress = &notes});
  is_over = true;
  judge.join();
  EXPECT_EQ(notes.total, 1);
  EXPECT_EQ(notes.done, 0.75);
  const std::vector<std::string> told = {"queued  quest", "short salad quest", "long  quest", "running  quest", "finished"};
  EXPECT_EQ(notes.seen, told);
}

TEST(ClientText, DiffsAreColouredAsGitsAre) {
  const json diff = {{"unified", "--- a\n+++ b\n@@ -1 +1 @@\n same\n--- old\n+new \x1b[2J\n"},
                     {"settings", {{{"key", "suite"}, {"from", "quick"}, {"to", "full"}}}},
                     {"metrics", json::array()}};
  EXPECT_EQ(diff_text(diff, true),
            "\x1b[1m--- a\x1b[m\n\x1b[1m+++ b\x1b[m\n\x1b[36m@@ -1 +1 @@\x1b[m\n same\n\x1b[31m--- old\x1b[m\n"
            "\x1b[32m+new \\x1b[2J\x1b[m\n\nsetting suite: full instead of quick\n");
  EXPECT_EQ(diff_text({{"unified", ""}}, true), "the scripts are the same\n");
  json paired = {{"difference", 0.031}, {"low", -0.01}, {"high", 0.072}, {"p_value", 0.25}};
  EXPECT_EQ(diff_text({{"unified", ""}, {"paired", paired}}, false),
            "the scripts are the same\n\non the same questions +3.1 points of accuracy (95% -1.0 to +7.2), p = 0.25\n");
  paired["low"] = "x";
  EXPECT_NE(diff_text({{"unified", ""}, {"paired", paired}}, false).find("nan"), std::string::npos);
}

TEST(ClientText, ATreeShowsEachOnce) {
  const auto node = [](int64_t id, const std::vector<int64_t>& parents) {
    return json{{"id", id}, {"name", "flow"}, {"agent", "ada"}, {"status", "passed"}, {"parents", parents}};
  };
  EXPECT_EQ(lineage_tree({node(1, {}), node(2, {1}), node(3, {1, 2}), node(4, {2}), node(5, {99})}),
            "1 flow by ada: passed\n"
            "  2 flow by ada: passed\n"
            "    4 flow by ada: passed\n"
            "  3 flow by ada: passed (parents [1,2])\n"
            "5 flow by ada: passed\n");
}

TEST(ClientText, ADeepTreeNamesItsDepths) {
  json nodes = json::array();
  for (int64_t id = 1; id <= 1000; ++id) {
    nodes.push_back({{"id", id}, {"parents", id > 1 ? json{id - 1} : json::array()}});
  }
  const std::string tree = lineage_tree(nodes);
  expect_part(tree, "\n" + std::string(40, ' ') + "21 - by -: -\n" + std::string(40, ' ') + "[depth 21] 22 - by -: -\n");
  expect_part(tree, " [depth 999] 1000 - by -: -\n");
  EXPECT_LT(tree.size(), 100'000U);
}

TEST(ClientText, WhatAServerLeavesOutIsADash) {
  expect_part(submission_table(json::array({json{{"id", 7}, {"metrics", nullptr}}})),
              "7   -       -      -     -      -         -");
  EXPECT_EQ(submission_line(json::object()), "submission -, - by -: -\n");
  EXPECT_EQ(submission_line({{"id", 7}, {"same_as", 3}}), "submission 7, - by -: -; the same flow as 3\n");
  EXPECT_EQ(submission_line({{"id", 7}, {"same_as", nullptr}}), "submission 7, - by -: -\n");
  expect_part(submission_text({{"id", 1}, {"evaluation", {{"stages", {1, "x"}}}}}, nullptr, {}), "submission 1");
}

TEST(ClientText, FinalsOfAnyShapeAreShown) {
  EXPECT_EQ(final_text(json::object()), "");
  EXPECT_EQ(disagreement_text(nullptr), "");
  std::mt19937 random(4);
  const std::vector<json> values = {
      nullptr, 1, -0.5, "text", json::array(), json::object(), true, "passed", json::array({1, json::object()})};
  const auto any = [&] { return values[random() % values.size()]; };
  for (int i = 0; i < 3000; ++i) {
    json last = json::object();
    for (const char* name : {"id", "status", "confirmed", "passed", "settings", "metrics"}) {
      if (random() % 3 > 0) last[name] = any();
    }
    const json submission = {{"metrics", any()}, {"settings", any()}, {"final", last}, {"final_of", any()}};
    EXPECT_NO_THROW(final_text(submission)) << submission;
    EXPECT_NO_THROW(final_note(submission)) << submission;
    EXPECT_NO_THROW(final_score_text(submission)) << submission;
    const json finals = {{"flows", any()}, {"passed_both", any()}, {"agreement", any()}, {"reversed", any()}, {"divided", any()}};
    EXPECT_NO_THROW(disagreement_text(finals)) << finals;
  }
}

TEST(ClientText, AConfirmationOfAnyShapeIsShown) {
  EXPECT_EQ(confirmation_text(json::object()), "");
  EXPECT_EQ(confirmation_text({{"confirmation", nullptr}}), "");
  expect_part(confirmation_text({{"confirmation", json::object()}}), "confirmation: -, asked for by -");
  const json strange = {{"state", "done"}, {"status", "passed"}, {"metrics", 7}, {"flattered", {{"value", 0.5}}}};
  expect_part(confirmation_text({{"confirmation", strange}, {"metrics", "none"}}),
              "the judged score flattered the flow by 50.0 points");
  EXPECT_EQ(standing_metrics({{"metrics", "none"}, {"confirmation", strange}}), "none");
  std::mt19937 random(3);
  const std::vector<json> values = {nullptr, 1, -0.5, "text", json::array(), json::object(), true, "done", "passed"};
  for (int i = 0; i < 3000; ++i) {
    json confirmation = json::object();
    for (const char* name :
         {"state", "status", "agent", "automatic", "tries", "factor", "seed", "message", "hint", "metrics", "flattered"}) {
      if (random() % 3 > 0) confirmation[name] = values[random() % values.size()];
    }
    const json submission = {{"metrics", values[random() % values.size()]}, {"confirmation", confirmation}};
    EXPECT_NO_THROW(confirmation_text(submission)) << submission;
    EXPECT_NO_THROW(confirmation_note(submission)) << submission;
    EXPECT_NO_THROW(standing_metrics(submission)) << submission;
  }
}

}  // namespace
}  // namespace sluice
