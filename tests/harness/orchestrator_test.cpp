#include "agents/orchestrator/orchestrator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "agents/flow_script.h"
#include "agents/orchestrator/verdict.h"
#include "scripting/graph/error.h"
#include "tests/harness/harness_test.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using store::Status;

class Orchestration : public testing::HarnessTest {
 protected:
  /// A worker that is a shell script, which says that it is ready first.
  OrchestratorOptions shell(const std::string& text, int workers = 1) const {
    OrchestratorOptions all = options(workers);
    all.program = "/bin/sh";
    all.worker_arguments = {"-c", R"(echo '{"type": "ready", "device": "cpu", "description": "d", "model": "m"}'; )" + text};
    return all;
  }

  store::SubmissionId submit(const std::string& script, const std::string& settings = "{}") {
    store::Draft draft;
    draft.name = "flow";
    draft.script = script;
    draft.settings = settings;
    return store_->submit("ada", draft).id;
  }

  /// `count` flows that differ.
  std::vector<store::SubmissionId> submit_many(int count) {
    const std::string source = read_flow("quest").source;
    std::vector<store::SubmissionId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(submit(fmt::format("-- {}\n{}", i, source)));
    return ids;
  }

  store::Submission wait(store::SubmissionId id, std::chrono::seconds time = 60s) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (!store::is_final(store_->get(id)->status) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(10ms);
    }
    return *store_->get(id);
  }

  store::Evaluation last_evaluation(store::SubmissionId id) { return store_->evaluations(id).back(); }
};

TEST_F(Orchestration, JudgesWhatIsSubmitted) {
  Orchestrator orchestrator(database_, options());
  const std::string quest = read_flow("quest").source;
  const auto good = submit(quest);
  const auto wrong = submit("return 1 +");
  const auto weak = submit(read_flow("random").source, R"({"suite": "quick", "seconds": 300})");
  orchestrator.wake();
  EXPECT_EQ(wait(good).status, Status::kPassed);
  const store::Submission rejected = wait(wrong);
  EXPECT_EQ(rejected.status, Status::kRejectedStatic);
  EXPECT_NE(last_evaluation(wrong).verdict.message.find("flow.lua:1"), std::string::npos);
  EXPECT_EQ(wait(weak, 120s).status, Status::kBelowThreshold);
  const store::Verdict verdict = last_evaluation(weak).verdict;
  ASSERT_EQ(verdict.stages.size(), 3U);
  EXPECT_EQ(verdict.stages[2].stage, "short");
  EXPECT_EQ(verdict.stages[2].status, store::StageStatus::kFailed);
  std::set<std::string> metrics;
  for (const store::Metric& metric : verdict.metrics) metrics.insert(metric.name);
  EXPECT_EQ(metrics, (std::set<std::string>{"accuracy", "dense_accuracy", "speedup", "pages_read", "mass"}));
  ASSERT_EQ(verdict.artifacts.size(), 1U);
  EXPECT_EQ(verdict.artifacts[0].bytes.find(options().seed.hex()), std::string::npos) << "the seed is secret";
  std::set<std::string> kinds;
  for (const store::Event& event : store_->events_after(0, 1000)) kinds.insert(event.kind);
  EXPECT_TRUE(kinds.contains("progress"));
  EXPECT_TRUE(kinds.contains("finished"));
}

TEST_F(Orchestration, CrashesAreTriedAgainAndThenReported) {
  Orchestrator orchestrator(database_, shell("read job; kill -SEGV $$"));
  const auto id = submit(read_flow("quest").source);
  const store::Submission submission = wait(id);
  EXPECT_EQ(submission.status, Status::kRuntimeError);
  const auto evaluations = store_->evaluations(id);
  EXPECT_EQ(evaluations.size(), 3U);
  EXPECT_NE(evaluations[0].verdict.message.find("signal 11"), std::string::npos) << evaluations[0].verdict.message;
}

TEST_F(Orchestration, HangsEndAsTimeouts) {
  Orchestrator orchestrator(
      database_,
      shell(R"(read job; echo '{"type": "progress", "stage": "long", "task": "salad 4096", "share": 0.5}'; sleep 60)"));
  const auto id = submit(read_flow("quest").source, R"({"seconds": 1})");
  EXPECT_EQ(wait(id).status, Status::kTimeout);
  EXPECT_NE(last_evaluation(id).verdict.message.find("long, salad 4096"), std::string::npos);
  EXPECT_EQ(store_->evaluations(id).size(), 1U);
}

TEST_F(Orchestration, NonsenseIsNoVerdict) {
  for (const std::string answer :
       {"hello", R"({"type": "ready", "device": "d", "description": "d", "model": "m"})", R"({"type": "report", "report": "{}"})",
        R"({"type": "report", "report": "{\"flows\": [{\"status\": \"passed\"}]}"})"}) {
    Orchestrator orchestrator(database_, shell("while read job; do echo '" + answer + "'; done"));
    const auto id = submit(read_flow("quest").source + "\n-- " + answer);
    EXPECT_EQ(wait(id).status, Status::kRuntimeError) << answer;
  }
}

TEST_F(Orchestration, CancelledOnesAreEnded) {
  Orchestrator orchestrator(database_, shell("read job; sleep 60"));
  const auto running = submit(read_flow("quest").source);
  while (store_->get(running)->status == Status::kQueued) std::this_thread::sleep_for(5ms);
  const auto waiting = submit(read_flow("h2o").source);
  EXPECT_TRUE(store_->cancel(running));
  EXPECT_TRUE(store_->cancel(waiting));
  EXPECT_EQ(wait(running).status, Status::kCancelled);
  const auto next = submit(read_flow("full").source, R"({"seconds": 1})");  // the worker is free again
  EXPECT_EQ(wait(next).status, Status::kTimeout);
  EXPECT_EQ(store_->get(waiting)->status, Status::kCancelled);
}

TEST_F(Orchestration, SeveralServersShareAQueue) {
  const auto ids = submit_many(40);
  {
    Orchestrator one(database_, options(2));
    Orchestrator other(database_, options(1));
    for (const auto id : ids) EXPECT_EQ(wait(id).status, Status::kPassed);
  }
  for (const auto id : ids) EXPECT_EQ(store_->evaluations(id).size(), 1U) << "judged twice";
}

TEST_F(Orchestration, WhatAStoppedServerLeftIsJudgedLater) {
  const auto ids = submit_many(6);
  OrchestratorOptions slow = shell("read job; sleep 60");
  slow.lease_seconds = 0.5;
  {
    Orchestrator orchestrator(database_, slow);
    while (store_->get(ids[0])->status == Status::kQueued) std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(store_->get(ids[0])->status, Status::kRunning);
  Orchestrator orchestrator(database_, options(2));
  for (const auto id : ids) EXPECT_EQ(wait(id).status, Status::kPassed);
}

TEST_F(Orchestration, SurvivesWorkersThatAreKilledAtRandom) {
  const auto ids = submit_many(24);
  // Each worker ends itself after a random number of jobs: the real one, in a pipe that is cut.
  OrchestratorOptions fragile = options(2);
  fragile.program = "/bin/sh";
  fragile.worker_arguments = {
      "-c", "(sleep 0.$(od -An -N1 -tu1 /dev/urandom | tr -d ' '); kill -9 $$) & exec " SLUICE_PROGRAM " worker --threads 1"};
  Orchestrator orchestrator(database_, fragile);
  int passed = 0;
  for (const auto id : ids) {
    const Status status = wait(id, 120s).status;
    EXPECT_TRUE(status == Status::kPassed || status == Status::kRuntimeError) << store::name_of(status);
    passed += status == Status::kPassed ? 1 : 0;
  }
  EXPECT_GT(passed, 8);
}

TEST(VerdictOf, RefusesWhatIsNoReport) {
  for (const char* bad : {"", "{}", "[]", R"({"flows": []})", R"({"flows": [{"status": "unheard_of", "tasks": []}]})",
                          R"({"flows": [{"status": "passed", "tasks": [{}]}]})"}) {
    EXPECT_ANY_THROW(verdict_of(bad)) << bad;
  }
}

}  // namespace
}  // namespace sluice
