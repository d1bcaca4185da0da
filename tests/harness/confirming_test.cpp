// Confirmations from the verdict that asks for them to the board that goes by them, and what they are for: seeds that survive a
// search.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>

#include "agents/evaluation/report.h"
#include "agents/evaluation/statistics.h"
#include "agents/orchestrator/orchestrator.h"
#include "agents/orchestrator/verdict.h"
#include "store/database/ranks.h"
#include "tests/harness/fake_judge.h"
#include "tests/harness/harness_test.h"
#include "tests/support/eventually.h"

namespace sluice {
namespace {

using store::ConfirmationState;
using store::Status;
using testing::answered;
using testing::eventually;
using testing::FakeJudge;

constexpr int kSamples = 64;

/// What a flow of these tests answers: its script is that share.
double truth_of(const std::string& script) { return std::stod(script.substr(script.find(' '))); }
std::string script_of(double truth, int number) { return fmt::format("-- {:.6f} {}", truth, number); }

class Confirming : public testing::HarnessTest {
 protected:
  void start(FakeJudge::Judging judging, bool by_itself, bool holds_out = false) {
    judge_ = std::make_unique<FakeJudge>(std::move(judging));
    OrchestratorOptions all = options();
    all.check = nullptr;
    all.start_worker = judge_->factory();
    all.suite = "quick";
    all.confirms = by_itself;
    all.holds_out = holds_out;
    all.poll_seconds = 0.01;
    orchestrator_ = std::make_unique<Orchestrator>(database_, std::move(all));
  }

  store::SubmissionId submit(const std::string& script, const std::string& agent = "ada") {
    store::Draft draft;
    draft.name = "flow";
    draft.script = script;
    draft.settings = R"({"model":"mini","suite":"quick","device":"cpu"})";
    const auto id = store_->submit(agent, draft).id;
    orchestrator_->wake();
    return id;
  }
  store::SubmissionId judged(const std::string& script) {
    const auto id = submit(script);
    EXPECT_TRUE(eventually([&] { return store::is_final(*store_->find_status(id)); }));
    return id;
  }
  store::Confirmation ended(store::SubmissionId id) {
    EXPECT_TRUE(eventually([&] {
      const auto confirmation = store_->confirmation(id);
      return confirmation && store::is_final(confirmation->state);
    }));
    return store_->confirmation(id).value();
  }
  double score_of(store::SubmissionId id) {
    for (const store::Metric& metric : store_->metrics(id)) {
      if (metric.name == "score") return metric.value;
    }
    throw std::out_of_range("score");
  }

  std::unique_ptr<FakeJudge> judge_;
  std::unique_ptr<Orchestrator> orchestrator_;
};

TEST_F(Confirming, AJobHasASeedOfItsOwnAndMoreSamplesAndNobodyKeepsWhatIsDoneForIt) {
  start([](const WorkerJob& job) { return answered(job, truth_of(job.script), kSamples); }, false);
  const auto id = judged(script_of(0.6, 1));
  store_->ask_confirmation("ada", id);
  orchestrator_->wake();
  const store::Confirmation confirmation = ended(id);
  EXPECT_EQ(confirmation.state, ConfirmationState::kDone);
  const auto jobs = judge_->jobs();
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].factor, 1);
  EXPECT_TRUE(jobs[0].is_seed_kept);
  EXPECT_EQ(jobs[0].seed, options().seed);
  EXPECT_EQ(jobs[1].factor, confirmation.factor);
  EXPECT_FALSE(jobs[1].is_seed_kept);
  EXPECT_EQ(jobs[1].seed.hex(), confirmation.seed);
  EXPECT_EQ(jobs[1].script, jobs[0].script);
  EXPECT_EQ(store_->confirmation_evaluation(id)->verdict.seed, confirmation.seed);
  EXPECT_EQ(store_->last_evaluation(id)->verdict.seed, "") << "that of all submissions stays secret";
  int progress = 0;
  for (const store::Event& event : store_->events_after(0, 100)) {
    progress += event.kind == "progress" && nlohmann::json::parse(event.data).value("of", "") == "confirmation" ? 1 : 0;
  }
  EXPECT_EQ(progress, 1);
}

/// Judges as `answered` does; what it says of a holdout `change` makes something else of.
FakeJudge::Judging with_holdout(double truth, const std::function<void(nlohmann::json& flow)>& change) {
  return [truth, change](const WorkerJob& job) {
    WorkerReport report = answered(job, truth, kSamples);
    if (!job.kinds) return report;
    auto document = nlohmann::json::parse(report.report);
    document["seconds"] = 2.5;
    change(document["flows"][0]);
    return WorkerReport{document.dump()};
  };
}

const store::Metric* find_metric(const std::vector<store::Metric>& metrics, const std::string& name) {
  const auto found = std::find_if(metrics.begin(), metrics.end(), [&](const auto& metric) { return metric.name == name; });
  return found == metrics.end() ? nullptr : &*found;
}

TEST_F(Confirming, TheHoldoutIsAskedOnceAndTellsNothingButWhatCameOfIt) {
  start(with_holdout(0.6,
                     [](nlohmann::json& flow) {
                       flow["mean"] = {{"accuracy", 0.25},       {"low", 0.2},       {"high", 0.3},
                                       {"dense_accuracy", 0.75}, {"dense_low", 0.7}, {"dense_high", 0.8}};
                     }),
        false, true);
  const auto id = judged(script_of(0.6, 1));
  EXPECT_EQ(judge_->jobs().size(), 1U) << "what is not confirmed answers none of it";
  store_->ask_confirmation("ada", id);
  orchestrator_->wake();
  const store::Confirmation confirmation = ended(id);
  ASSERT_EQ(confirmation.state, ConfirmationState::kDone);
  const auto jobs = judge_->jobs();
  ASSERT_EQ(jobs.size(), 3U);
  EXPECT_FALSE(jobs[0].kinds);
  EXPECT_FALSE(jobs[1].kinds);
  ASSERT_TRUE(jobs[2].kinds);
  // Nothing of it follows from the seed that is told.
  for (const Seed& secret : {jobs[2].seed, *jobs[2].kinds}) {
    EXPECT_NE(secret, jobs[0].seed);
    EXPECT_NE(secret, jobs[1].seed);
    for (const char* name : {"holdout", "kinds", "questions"}) EXPECT_NE(secret, jobs[1].seed.derived(name));
  }
  EXPECT_NE(jobs[2].seed, *jobs[2].kinds);
  EXPECT_FALSE(jobs[2].is_seed_kept);
  const store::Metric* held_out = find_metric(confirmation.metrics, "holdout_accuracy");
  ASSERT_NE(held_out, nullptr);
  EXPECT_EQ(held_out->value, 0.25);
  EXPECT_LT(*held_out->low, 0.2) << "as wide as the number of tries makes it";
  EXPECT_EQ(find_metric(store_->metrics(id), "holdout_accuracy"), nullptr);
  const auto evaluation = store_->confirmation_evaluation(id).value();
  const store::StageResult& stage = evaluation.verdict.stages.back();
  EXPECT_EQ(stage.stage, "holdout");
  EXPECT_EQ(stage.seconds, 0) << "how long it took would tell how much was asked";
  EXPECT_EQ(nlohmann::json::parse(stage.details)["dense_accuracy"], 0.75);
  int of_holdout = 0;
  for (const store::Event& event : store_->events_after(0, 100)) {
    const auto data = nlohmann::json::parse(event.data);
    if (event.kind != "progress" || data["stage"] != "holdout") continue;
    ++of_holdout;
    EXPECT_EQ(data["task"], "") << "nobody is told what is asked";
  }
  EXPECT_EQ(of_holdout, 1);
}

TEST_F(Confirming, AFlowThatFallsAtTheHoldoutIsRefuted) {
  start(with_holdout(0.5,
                     [](nlohmann::json& flow) {
                       flow["status"] = "incorrect_numerical";
                       flow["message"] = "salad_hard 3016: secret";
                     }),
        false, true);
  const auto id = judged(script_of(0.6, 1));
  store_->ask_confirmation("ada", id);
  orchestrator_->wake();
  const store::Confirmation confirmation = ended(id);
  EXPECT_EQ(confirmation.state, ConfirmationState::kDone);
  EXPECT_TRUE(confirmation.is_refutation());
  EXPECT_EQ(confirmation.message.find("secret"), std::string::npos) << confirmation.message;
  EXPECT_EQ(confirmation.message.find("3016"), std::string::npos) << confirmation.message;
}

TEST_F(Confirming, OneThatEndsByAnErrorTellsNothingOfWhatWasMeasured) {
  start(with_holdout(0.5,
                     [](nlohmann::json& flow) {
                       flow["status"] = "runtime_error";
                       flow["stage"] = "holdout";
                     }),
        false, true);
  const auto id = judged(script_of(0.6, 1));
  store_->ask_confirmation("ada", id);
  orchestrator_->wake();
  EXPECT_EQ(ended(id).state, ConfirmationState::kFailed) << "it may be asked for again";
  const store::Verdict verdict = store_->confirmation_evaluation(id)->verdict;
  EXPECT_TRUE(verdict.metrics.empty());
  EXPECT_TRUE(verdict.artifacts.empty());
  for (const store::StageResult& stage : verdict.stages) EXPECT_EQ(stage.details, "{}") << stage.stage;
}

TEST_F(Confirming, AHoldoutThatDenseAttentionDoesNotAnswerSaysNothing) {
  start(with_holdout(0.5,
                     [](nlohmann::json& flow) {
                       flow["status"] = "runtime_error";
                       flow["stage"] = kUnjudged;
                       flow["stages"] = {{{"name", "verify"}, {"seconds", 0}}, {{"name", "holdout"}, {"seconds", 0}}};
                     }),
        false, true);
  const auto id = judged(script_of(0.6, 1));
  store_->ask_confirmation("ada", id);
  orchestrator_->wake();
  const store::Confirmation confirmation = ended(id);
  EXPECT_EQ(confirmation.state, ConfirmationState::kDone);
  EXPECT_EQ(confirmation.status, Status::kPassed);
  EXPECT_EQ(find_metric(confirmation.metrics, "holdout_accuracy"), nullptr);
  EXPECT_EQ(store_->confirmation_evaluation(id)->verdict.stages.back().status, store::StageStatus::kSkipped);
}

TEST_F(Confirming, LaterTriesHaveWiderIntervals) {
  start([](const WorkerJob& job) { return answered(job, truth_of(job.script), kSamples); }, false);
  double before = 0;
  for (int i = 1; i <= 4; ++i) {
    const auto id = judged(script_of(0.5, i));
    store_->ask_confirmation("ada", id);
    orchestrator_->wake();
    const store::Confirmation confirmation = ended(id);
    EXPECT_EQ(confirmation.tries, i);
    const store::Metric& score = confirmation.metrics.at(0);
    const Interval plain = wilson(score.value * kSamples * 4, kSamples * 4);
    const double factor = (*score.high - *score.low) / (plain.high - plain.low);
    EXPECT_GT(factor, before) << "try " << i;
    EXPECT_GT(factor, 1.1);
    before = factor;
  }
}

TEST_F(Confirming, WhatEntersTheFrontIsConfirmedByItself) {
  start([](const WorkerJob& job) { return answered(job, truth_of(job.script), kSamples); }, true);
  const auto good = judged(script_of(0.9, 1));
  EXPECT_EQ(ended(good).state, ConfirmationState::kDone);
  EXPECT_TRUE(store_->confirmation(good)->is_automatic);
  const auto beaten = judged(script_of(0.2, 2));
  EXPECT_FALSE(store_->confirmation(beaten));
  EXPECT_TRUE(store_->leaderboard({.metric = "score"}).at(0).is_confirmed);
}

TEST_F(Confirming, NothingIsConfirmedByItselfUnlessItIsTo) {
  start([](const WorkerJob& job) { return answered(job, truth_of(job.script), kSamples); }, false);
  EXPECT_FALSE(store_->confirmation(judged(script_of(0.9, 1))));
  EXPECT_EQ(judge_->jobs().size(), 1U);
}

TEST_F(Confirming, AWorkersFaultIsNoVerdictAndAFlowsFallIs) {
  std::atomic<bool> crashes = true;
  start(
      [&crashes](const WorkerJob& job) -> WorkerMessage {
        if (job.factor == 1) return answered(job, 0.9, kSamples);
        if (crashes) return WorkerFailure{"no power", "", false};
        return WorkerReport{
            R"({"model": "/m", "flows": [{"status": "below_threshold", "stage": "short", "message": "too little", "tasks": [], "stages": []}]})"};
      },
      false);
  const auto id = judged(script_of(0.9, 1));
  store_->ask_confirmation("ada", id);
  orchestrator_->wake();
  EXPECT_EQ(ended(id).state, ConfirmationState::kFailed);
  EXPECT_EQ(store_->leaderboard({.metric = "score"}).size(), 1U) << "that says nothing of the flow";
  crashes = false;
  EXPECT_TRUE(store_->ask_confirmation("ada", id).is_new);
  orchestrator_->wake();
  const store::Confirmation refuted = ended(id);
  EXPECT_EQ(refuted.status, Status::kBelowThreshold);
  EXPECT_EQ(refuted.message, "too little");
  EXPECT_TRUE(store_->leaderboard({.metric = "score"}).empty());
  EXPECT_EQ(store_->get(id)->status, Status::kPassed) << "the verdict stays what it is";
}

/// Climbs by the score of one seed, as a script would: each flow is the best one so far, changed a little.
template <typename Judge>
std::string hill_climb(std::mt19937& random, const Judge& score_of) {
  constexpr int kSubmissions = 200;
  std::uniform_real_distribution<double> change(-0.01, 0.01);
  std::string best = script_of(0.6, 0);
  double best_score = score_of(best);
  for (int i = 1; i < kSubmissions; ++i) {
    const std::string next = script_of(std::clamp(truth_of(best) + change(random), 0.0, 1.0), i);
    if (const double score = score_of(next); score > best_score) {
      best = next;
      best_score = score;
    }
  }
  return best;
}

TEST_F(Confirming, ASearchByOneSeedIsRankedWhereFreshQuestionsDo) {
  start([](const WorkerJob& job) { return answered(job, truth_of(job.script), kSamples); }, true);
  std::mt19937 random(7);
  std::map<std::string, store::SubmissionId> ids;
  const std::string winner = hill_climb(random, [&](const std::string& script) {
    ids[script] = judged(script);
    return score_of(ids[script]);
  });
  const store::Confirmation confirmation = ended(ids.at(winner));
  EXPECT_TRUE(confirmation.is_automatic) << "nobody had to ask";
  const store::Metric& score = confirmation.metrics.at(0);
  EXPECT_LE(*score.low, truth_of(winner));
  EXPECT_GE(*score.high, truth_of(winner));
  EXPECT_GT(score_of(ids.at(winner)) - score.value, 0.05) << "so much the judged score flattered it";
  const auto board = store_->leaderboard({.metric = "score", .limit = 1000});
  const auto row =
      std::find_if(board.begin(), board.end(), [&](const store::Ranked& each) { return each.submission.id == ids.at(winner); });
  ASSERT_NE(row, board.end());
  EXPECT_TRUE(row->is_confirmed);
  EXPECT_EQ(row->metric.value, score.value);
  EXPECT_NE(row, board.begin()) << "others, that nobody asked about, are still as lucky as it was";
  const auto compared = [](const store::Metric& metric) { return store::Comparable{metric.value, metric.low, metric.high}; };
  const auto is_known_better = [&](const store::Ranked& each) {
    return each.is_confirmed && store::is_better(compared(each.metric), compared(row->metric), true);
  };
  EXPECT_TRUE(std::none_of(board.begin(), board.end(), is_known_better)) << "of those that were asked about none is better";
}

TEST(Search, ConfirmedIntervalsHaveTheTruthThatJudgedOnesHaveSeldom) {
  constexpr int kRepetitions = 300;
  std::mt19937 random(2026);
  int judged_right = 0;
  int confirmed_right = 0;
  double flattered = 0;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    WorkerJob job;
    job.seed = Seed::parse(fmt::format("the server's of repetition {}", repetition));
    const auto verdict = [&](const std::string& script) {
      job.script = script;
      return verdict_of(answered(job, truth_of(script), kSamples).report);
    };
    const auto score = [](const store::Verdict& of) { return of.metrics.at(0); };
    const std::string winner = hill_climb(random, [&](const std::string& script) { return score(verdict(script)).value; });
    const store::Metric before = score(verdict(winner));
    job.seed = Seed::parse(fmt::format("fresh, of repetition {}", repetition));
    job.factor = 4;
    const store::Metric after = score(confirmed_verdict(verdict(winner), {.seed = job.seed.hex(), .tries = 1, .factor = 4}));
    const double truth = truth_of(winner);
    judged_right += *before.low <= truth && truth <= *before.high ? 1 : 0;
    confirmed_right += *after.low <= truth && truth <= *after.high ? 1 : 0;
    flattered += (before.value - after.value) / kRepetitions;
  }
  EXPECT_GE(confirmed_right, 0.93 * kRepetitions);
  EXPECT_LT(judged_right, 0.3 * kRepetitions);
  EXPECT_GT(flattered, 0.05);
  RecordProperty("judged_intervals_with_the_truth", judged_right);
  RecordProperty("confirmed_intervals_with_the_truth", confirmed_right);
  RecordProperty("mean_flattery", fmt::format("{:.3f}", flattered));
}

}  // namespace
}  // namespace sluice
