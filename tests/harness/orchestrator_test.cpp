#include "agents/orchestrator/orchestrator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <thread>

#include "agents/evaluation/flow_script.h"
#include "agents/orchestrator/worker_gpus.h"
#include "scripting/base/resource_error.h"
#include "store/database/sqlite.h"
#include "tests/harness/harness_test.h"
#include "tests/support/eventually.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using store::Status;
using testing::eventually;

class Orchestration : public testing::HarnessTest {
 protected:
  static constexpr const char* kReady = R"(echo '{"type": "ready", "device": "cpu", "description": "d", "model": "m"}'; )";

  /// A worker that is a shell script, which says that it is ready first.
  OrchestratorOptions shell(const std::string& text, int workers = 1) const {
    OrchestratorOptions all = options(workers);
    all.start_worker = worker_processes(command(kReady + text));
    return all;
  }

  static WorkerCommand command(const std::string& text) { return {"/bin/sh", {"-c", text}}; }

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
  if (test::kIsSanitized) GTEST_SKIP() << "it judges by the suite quick";
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
  ASSERT_EQ(verdict.stages.size(), 5U);
  for (const store::StageResult& stage : verdict.stages) EXPECT_GT(stage.seconds, 0) << stage.stage;
  EXPECT_EQ(verdict.stages[2].stage, "traces");
  EXPECT_EQ(nlohmann::json::parse(verdict.stages[2].details)["heads"].size(), 6U) << "three KV heads in each of two layers";
  EXPECT_EQ(verdict.stages[3].stage, "short");
  EXPECT_EQ(verdict.stages[3].status, store::StageStatus::kFailed);
  const auto tasks = nlohmann::json::parse(verdict.stages[3].details)["tasks"];
  ASSERT_FALSE(tasks.empty());
  EXPECT_GT(tasks[0]["lost"], 0);
  EXPECT_EQ(verdict.stages[4].stage, "speed");
  const auto speed = nlohmann::json::parse(verdict.stages[4].details);
  EXPECT_EQ(speed["mass"].size(), 8U) << "a layer each";
  EXPECT_GT(speed["ratio"], 0);
  EXPECT_LT(speed["pages_read"], 1);
  std::set<std::string> metrics;
  for (const store::Metric& metric : verdict.metrics) metrics.insert(metric.name);
  EXPECT_EQ(metrics, (std::set<std::string>{"score", "accuracy", "dense_accuracy", "speedup", "pages_read", "mass", "trace_mass",
                                            "trace_regret", "trace_error"}));
  ASSERT_EQ(verdict.artifacts.size(), 2U) << "the report, and what each question gave";
  EXPECT_EQ(store_->artifact(weak, "report.json")->bytes.find(options().seed.hex()), std::string::npos) << "the seed is secret";
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

TEST_F(Orchestration, WhatTheMachineLacksIsNoTry) {
  OrchestratorOptions all = options();
  std::atomic<int> looks = 0;
  all.check = [&looks](const FlowScript&) -> CheckedFlow {
    if (++looks == 1) throw_system_error("memfd_create", EMFILE);
    if (looks == 2) throw std::system_error(EAGAIN, std::generic_category());
    return {};
  };
  Orchestrator orchestrator(database_, std::move(all));
  const auto id = submit(read_flow("quest").source);
  EXPECT_EQ(wait(id).status, Status::kPassed);
  EXPECT_EQ(store_->evaluations(id).size(), 1U) << "one try";
  EXPECT_EQ(looks, 3);
}

TEST_F(Orchestration, WhatAWorkerLacksIsNoTry) {
  const std::string lack = R"({"type": "failure", "message": "sandbox: pipe: Too many open files", "hint": "", "lack": true})";
  const std::string seen = directory_.file("seen");
  Orchestrator orchestrator(database_, shell("while read job; do echo x >> " + seen + "; echo '" + lack + "'; done"));
  const auto id = submit(read_flow("quest").source);
  orchestrator.wake();
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(seen) && std::filesystem::file_size(seen) >= 4 * 2; }));
  EXPECT_FALSE(store::is_final(store_->get(id)->status)) << "more often than there are tries";
  EXPECT_LE(store_->evaluations(id).size(), 1U);
}

TEST_F(Orchestration, WorkersHaveAGpuEach) {
  // Each worker that gets a job writes which GPU it sees, and never ends it.
  const std::string seen = directory_.file("seen");
  OrchestratorOptions all = options(3);
  WorkerCommand worker = command(kReady + ("read job; echo $CUDA_VISIBLE_DEVICES >> " + seen) + "; sleep 60");
  worker.gpus = {"7", "GPU-5", "0"};
  all.start_worker = worker_processes(std::move(worker));
  Orchestrator orchestrator(database_, std::move(all));
  submit_many(3);
  orchestrator.wake();
  const auto lines = [&] {
    std::ifstream file(seen);
    std::multiset<std::string> found;
    for (std::string line; std::getline(file, line);) found.insert(line);
    return found;
  };
  EXPECT_TRUE(eventually([&] { return lines().size() == 3; }));
  EXPECT_EQ(lines(), (std::multiset<std::string>{"7", "GPU-5", "0"}));
}

TEST(WorkerGpus, AreOneEachFromTheLastOn) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(gpus_of_workers({"4", "5", "6"}, 0), (Names{"6", "5", "4"}));
  EXPECT_EQ(gpus_of_workers({"4", "5", "6"}, 1), Names{"6"});
  EXPECT_EQ(gpus_of_workers({"0"}, 1), Names{"0"});
  EXPECT_THROW(gpus_of_workers({}, 0), InputError);
  EXPECT_THROW(gpus_of_workers({}, 1), InputError);
  try {
    gpus_of_workers({"0"}, 2);
    FAIL() << "two workers on one GPU";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("one GPU is visible"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("--workers 1"), std::string::npos) << error.hint();
  }
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

TEST_F(Orchestration, WhatTheCheckFoundIsKeptHoweverItEnds) {
  const auto with_graph = [](OrchestratorOptions options) {
    options.check = [](const FlowScript& script) {
      script.trace({});
      return CheckedFlow{"", {{"graph.json", "application/json", "{}", 0}}};
    };
    return options;
  };
  const auto names = [&](store::SubmissionId id) {
    wait(id);
    std::set<std::string> found;
    for (const store::Artifact& artifact : last_evaluation(id).verdict.artifacts) found.insert(artifact.name);
    return found;
  };
  using Names = std::set<std::string>;
  {
    Orchestrator orchestrator(database_, with_graph(options()));
    const auto rejected = submit("return 1 +");
    EXPECT_EQ(names(submit(read_flow("quest").source)), (Names{"graph.json", "report.json"}));
    EXPECT_EQ(names(rejected), Names{}) << "it has none, and that of another is not its own";
  }
  {
    Orchestrator orchestrator(database_, with_graph(shell("read job; sleep 60")));
    EXPECT_EQ(names(submit(read_flow("h2o").source, R"({"seconds": 1})")), Names{"graph.json"});
  }
  Orchestrator orchestrator(database_, with_graph(shell("read job; exit 1")));
  EXPECT_EQ(names(submit(read_flow("full").source)), Names{"graph.json"});
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
  ASSERT_TRUE(eventually([&] { return store_->get(running)->status != Status::kQueued; }));
  const auto waiting = submit(read_flow("h2o").source);
  EXPECT_TRUE(store_->cancel(running));
  EXPECT_TRUE(store_->cancel(waiting));
  EXPECT_EQ(wait(running).status, Status::kCancelled);
  const auto next = submit(read_flow("full").source, R"({"seconds": 1})");  // the worker is free again
  EXPECT_EQ(wait(next).status, Status::kTimeout);
  EXPECT_EQ(store_->get(waiting)->status, Status::kCancelled);
}

TEST_F(Orchestration, ACancelledStartIsTheNextOnes) {
  const std::string starts = directory_.file("starts");
  OrchestratorOptions slow = options();
  slow.start_worker = worker_processes(command("echo start >> " + starts + "; sleep 2; " + kReady + R"(while read -r job; do
    echo '{"type": "failure", "message": "m", "hint": ""}'; done)"));
  Orchestrator orchestrator(database_, slow);
  const auto cancelled = submit(read_flow("quest").source);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(starts); }));
  EXPECT_TRUE(store_->cancel(cancelled));
  EXPECT_EQ(wait(submit(read_flow("h2o").source)).status, Status::kRuntimeError);
  EXPECT_EQ(std::filesystem::file_size(starts), std::string("start\n").size());
}

TEST_F(Orchestration, AWorkerInWhichAFlowFailedJudgesNoOther) {
  // Reports name the process that made them.
  Orchestrator orchestrator(database_, shell(R"(while read -r job; do
    status=passed; case $job in *bad*) status=runtime_error; esac
    echo '{"type": "report", "report": "{\"model\": \"/a/b\", \"flows\": [{\"status\": \"'$status'\", \"stage\": \"s\",
      \"message\": \"'$$'\", \"tasks\": [], \"stages\": []}]}"}' | tr -d '\n'; echo; done)"));
  const auto judged_by = [&](const std::string& script, Status status) {
    const auto id = submit(script);
    EXPECT_EQ(wait(id).status, status);
    EXPECT_EQ(store_->evaluations(id).size(), 1U);
    return last_evaluation(id).verdict.message;
  };
  const std::string source = read_flow("quest").source;
  const std::string first = judged_by(source, Status::kPassed);
  EXPECT_EQ(judged_by(source + "-- bad", Status::kRuntimeError), first);
  EXPECT_NE(judged_by(source + "-- good", Status::kPassed), first);
}

TEST_F(Orchestration, AStoreThatIsBusyForLongLosesNothing) {
  const std::string locked = directory_.file("locked");
  Orchestrator orchestrator(database_, shell("while read -r job; do while ! [ -e " + locked + R"( ]; do sleep 0.1; done
    echo '{"type": "report", "report": "{\"model\": \"m\", \"flows\": [{\"status\": \"passed\", \"stage\": \"\",
      \"message\": \"\", \"tasks\": [], \"stages\": []}]}"}' | tr -d '\n'; echo; done)"));
  const auto id = submit(read_flow("quest").source);
  ASSERT_TRUE(eventually([&] { return store_->get(id)->status == Status::kRunning; }));
  {
    store::Database other(database_, store::Database::Mode::kReadWrite, 10000);
    const store::Transaction writing(other, store::Transaction::Kind::kWrite);
    std::ofstream(locked) << "now";
    std::this_thread::sleep_for(12s);  // longer than writers wait, and than the lease lasts
    EXPECT_EQ(store_->get(id)->status, Status::kRunning);
  }
  EXPECT_EQ(wait(id).status, Status::kPassed);
  EXPECT_EQ(store_->evaluations(id).size(), 1U);
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
    ASSERT_TRUE(eventually([&] { return store_->get(ids[0])->status != Status::kQueued; }));
  }
  EXPECT_EQ(store_->get(ids[0])->status, Status::kQueued);
  Orchestrator orchestrator(database_, options(2));
  for (const auto id : ids) EXPECT_EQ(wait(id).status, Status::kPassed);
  EXPECT_EQ(store_->evaluations(ids[0]).size(), 1U) << "a server that stops in order is no attempt that failed";
}

TEST_F(Orchestration, WorkersThatDoNotStartAreNobodysFault) {
  const auto ids = submit_many(3);
  for (const char* start : {"exit 3", "sleep 60", "echo hello; sleep 60"}) {
    OrchestratorOptions broken = options();
    broken.start_worker = worker_processes(command(start));
    broken.ready_seconds = 0.2;
    const Orchestrator orchestrator(database_, broken);
    const auto seen = store_->last_event();
    const auto released = [&] {
      const auto events = store_->events_after(seen, 1000);
      return std::any_of(events.begin(), events.end(), [](const store::Event& event) { return event.kind == "retried"; });
    };
    EXPECT_TRUE(eventually(released)) << start;
  }
  for (const auto id : ids) EXPECT_EQ(store_->get(id)->status, Status::kQueued);
  Orchestrator orchestrator(database_, options());
  for (const auto id : ids) {
    EXPECT_EQ(wait(id).status, Status::kPassed);
    EXPECT_EQ(store_->evaluations(id).size(), 1U);
  }
}

TEST_F(Orchestration, AnAnswerThatCameTooLateIsNobodyElses) {
  // It answers with the name of the flow that it was given, after the store has refused to renew the lease once.
  Orchestrator orchestrator(database_, shell(R"(while read -r job; do
    sleep 0.8; name=${job#*\"name\":\"}; echo "{\"type\": \"failure\", \"message\": \"${name%%\"*}\", \"hint\": \"\"}"
  done)"));
  store::Database database(database_, store::Database::Mode::kReadWrite, 10000);
  database.execute(
      "CREATE TRIGGER broken BEFORE UPDATE OF lease_expiry ON queue WHEN old.lease_expiry IS NOT NULL "
      "BEGIN SELECT RAISE(ABORT, 'broken'); END");
  store::Draft draft;
  draft.script = read_flow("quest").source;
  draft.name = "first";
  const auto first = store_->submit("ada", draft).id;
  ASSERT_TRUE(eventually([&] { return store_->get(first)->status != Status::kQueued; }));
  std::this_thread::sleep_for(300ms);
  database.execute("DROP TRIGGER broken");
  draft.name = "second";
  draft.script += "\n-- second";
  draft.priority = 1;
  const auto second = store_->submit("ada", draft).id;
  for (const auto id : {second, first}) {
    EXPECT_EQ(wait(id).status, Status::kRuntimeError);
    for (const store::Evaluation& evaluation : store_->evaluations(id)) {
      if (evaluation.outcome == "expired") continue;
      EXPECT_EQ(evaluation.verdict.message, store_->get(id)->name);
    }
  }
}

TEST_F(Orchestration, TrialsWithSeedsHaveQuestionsOfTheirOwn) {
  // It answers with the seed that it was given.
  Orchestrator orchestrator(database_, shell(R"(while read -r job; do
    seed=${job#*\"seed\":\"}; echo "{\"type\": \"failure\", \"message\": \"${seed%%\"*}\", \"hint\": \"\"}"
  done)"));
  const auto study = store_->create_study("ada", {"study", "", "{}"}).id;
  const auto id = submit(read_flow("quest").source);
  const auto seeded = [&](int64_t seed) {
    return store::TrialDraft{.submission = id, .flow = {}, .parameters = "{}", .seed = seed};
  };
  store_->add_trials("ada", study, {seeded(7), seeded(7), seeded(8)});
  orchestrator.wake();
  const auto ended = [&] { return store_->trials(study, {.state = store::TrialState::kFailed}).trials; };
  ASSERT_TRUE(eventually([&] { return ended().size() == 3; }));
  EXPECT_EQ(wait(id).status, Status::kRuntimeError);
  const Seed seed = options().seed;
  EXPECT_EQ(last_evaluation(id).verdict.message, seed.hex());
  EXPECT_EQ(ended()[0].message, seed.derived("trial 7").hex());
  EXPECT_EQ(ended()[1].message, seed.derived("trial 7").hex());
  EXPECT_EQ(ended()[2].message, seed.derived("trial 8").hex());
}

TEST_F(Orchestration, ProgressWithoutEndIsNoWayPastTheDeadline) {
  Orchestrator orchestrator(
      database_, shell(R"(read job; while true; do echo '{"type": "progress", "stage": "s", "task": "t", "share": 0}'; done)"));
  const auto id = submit(read_flow("quest").source, R"({"seconds": 1})");
  EXPECT_EQ(wait(id).status, Status::kTimeout);
}

TEST_F(Orchestration, MessagesMayBeAnyBytes) {
  Orchestrator orchestrator(database_, options());
  const auto id = submit("error('\xff' .. string.char(0, 255) .. string.rep('\xc3\xa4', 20000))");
  EXPECT_EQ(wait(id, 20s).status, Status::kRejectedStatic);
  EXPECT_NE(last_evaluation(id).verdict.message.find("\xef\xbf\xbd"), std::string::npos);
  EXPECT_EQ(store_->evaluations(id).size(), 1U);
}

TEST_F(Orchestration, SurvivesWorkersThatAreKilledAtRandom) {
  const auto ids = submit_many(24);
  // Each worker is killed with all around it, most within a second after they were ready.
  OrchestratorOptions fragile = options(2);
  fragile.start_worker = worker_processes(command(SLUICE_PROGRAM R"( worker --threads 1 | while IFS= read -r line; do
        printf '%s\n' "$line"
        case $line in *'"ready"'*)
          lot=$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')
          (sleep $((lot % 4 ? 0 : 5)).$lot; kill -9 0) &
        esac
      done)"));
  Orchestrator orchestrator(database_, fragile);
  int passed = 0;
  for (const auto id : ids) {
    const Status status = wait(id, 120s).status;
    EXPECT_TRUE(status == Status::kPassed || status == Status::kRuntimeError) << store::name_of(status);
    const auto evaluations = store_->evaluations(id);
    passed += status == Status::kPassed ? 1 : 0;
    EXPECT_LE(evaluations.size(), 3U);
    EXPECT_EQ(evaluations.back().outcome, status == Status::kPassed ? "judged" : "failed");
  }
  EXPECT_GT(passed, 0);
}

}  // namespace
}  // namespace sluice
