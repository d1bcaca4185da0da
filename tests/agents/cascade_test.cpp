#include "agents/evaluation/cascade.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "agents/evaluation/caching_runner.h"
#include "agents/evaluation/memory_limit.h"
#include "agents/evaluation/speed.h"
#include "agents/evaluation/terminal_progress.h"
#include "scripting/graph/error.h"
#include "tests/agents/fixtures.h"

namespace sluice::test {
namespace {

class FakeBatch : public PrefilledBatch {
 public:
  size_t bytes() const override { return samples.size(); }

  std::vector<Sample> samples;
};

/// Answers as the flow's file name says: "right", "wrong", "half", "seven" of ten, "throws", "large" (memory runs out),
/// "refused", "inexact"; or right, but "narrow" has no room to be timed, "hasty" is faster than can be, and "strays" answers
/// otherwise where it is timed. Dense is right unless `dense` says otherwise.
class FakeRunner : public Runner {
 public:
  Candidate prepare(const FlowScript& script) override {
    lack_at("prepare");
    if (script.file == "refused") throw FlowError({"refused.lua", 3}, "unknown operator", "try max");
    Candidate candidate;
    candidate.plan.graph.name = script.file;
    return candidate;
  }
  std::optional<std::string> check_numerically(const Candidate& candidate) override {
    lack_at("check");
    return candidate.plan.graph.name == "inexact" ? std::optional<std::string>("scores differ") : std::nullopt;
  }
  int batch_size(int) const override { return 4; }
  std::unique_ptr<PrefilledBatch> prefill(const std::vector<JobDocument>& documents) override {
    lack_at("prefill");
    auto batch = std::make_unique<FakeBatch>();
    for (const JobDocument& document : documents) {
      if (++prefills == failing_prefill) throw InputError("too large a document", "buy memory");
      for (const Job& job : document) batch->samples.push_back(job.sample);
    }
    return batch;
  }
  std::vector<Generation> decode(const PrefilledBatch& batch, const Plan* plan) override {
    const std::string name = plan != nullptr ? plan->graph.name : dense;
    ++decodes[plan != nullptr ? name : "dense"];
    if (plan != nullptr) lack_at("decode");
    if (name == "throws") throw std::runtime_error("out of something");
    if (name == "large") throw std::bad_alloc();
    std::vector<Generation> generations;
    for (const Sample& sample : dynamic_cast<const FakeBatch&>(batch).samples) {
      const bool right = name == "right" || name == "narrow" || name == "hasty" || name == "strays" ||
                         (name == "half" && generations.size() % 2 == 0) || (name == "seven" && generations.size() % 10 < 7);
      generations.push_back({right ? sample.answer : "nothing", true, {}});
      asked.insert(sample.prompt);
      answers.insert(sample.answer);
    }
    return generations;
  }
  TaskSpeed measure(const PrefilledBatch& batch, const Plan& plan, const Answers& given, const SpeedOptions& options) override {
    lack_at("measure");
    const std::string& name = plan.graph.name;
    if (name == "narrow") throw InputError("no room to time it", "shorten it");
    ++measured[name];
    timed.push_back(dynamic_cast<const FakeBatch&>(batch).samples.front().prompt);
    TaskSpeed speed;
    const auto pairs = static_cast<size_t>(std::max(options.pairs, options.least));
    speed.seconds = {std::vector<double>(pairs, name == "hasty" ? 9 : 2), std::vector<double>(pairs, 1)};
    speed.batch = options.batch;
    speed.generated = 1;
    speed.limit = 4;
    speed.compared = given.flow != nullptr ? static_cast<int>(given.flow->size()) : 0;
    if (name == "strays") speed.strayed = speed.compared;
    EXPECT_EQ(given.dense.size(), dynamic_cast<const FakeBatch&>(batch).samples.size());
    return speed;
  }

  void lack_at(const std::string& step) const {
    if (step == lacking) throw std::system_error(EAGAIN, std::generic_category(), "pthread_create");
  }

  std::string lacking;  // the step at which the machine has no thread left
  std::string dense = "right";
  int failing_prefill = 0;  // from 1; 0: none
  std::set<std::string> answers;
  int prefills = 0;
  std::map<std::string, int> decodes;
  std::set<std::string> asked;
  std::map<std::string, int> measured;  // batches
  std::vector<std::string> timed;       // the first prompt of each
};

Suite small_suite() {
  return parse_suite(R"([{"task": "needle_multikey", "tokens": 256, "samples": 8, "questions": 4, "threshold": 0.6},
                         {"task": "salad", "tokens": 300, "samples": 4, "threshold": 0}])",
                     "small");
}

Report with_seconds(Report report, double seconds) {
  report.seconds = seconds;
  for (FlowReport& flow : report.flows) {
    for (StageTime& stage : flow.stages) stage.seconds = seconds;
  }
  return report;
}

Report run(Runner& runner, const std::vector<std::string>& flows, const std::string& seed = "s",
           const Suite& suite = small_suite(), int positions = 0) {
  const CountingTokenizer tokenizer;
  std::vector<Contestant> contestants;
  for (const std::string& flow : flows) contestants.push_back({flow, {flow, {}}});
  TerminalProgress progress;
  return run_cascade(suite, contestants, runner, {tokenizer, &mini_vocabulary(), positions}, Seed::parse(seed), progress);
}

TEST(Cascade, TellsHowLongEachStageTook) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "wrong", "refused", "inexact", "narrow"});
  const auto names = [&](size_t flow) {
    std::vector<std::string> list;
    for (const StageTime& stage : report.flows.at(flow).stages) {
      list.push_back(stage.name);
      EXPECT_GE(stage.seconds, 0);
      EXPECT_LE(stage.seconds, report.seconds);
    }
    return list;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(0), (Names{"verify", "numerical", "needle_multikey 256", "salad 300", "speed"}));
  EXPECT_EQ(names(1), (Names{"verify", "numerical", "needle_multikey 256", "speed"})) << "its speed is measured all the same";
  EXPECT_EQ(names(2), Names{"verify"});
  EXPECT_EQ(names(3), (Names{"verify", "numerical"}));
  EXPECT_EQ(names(4), names(0));
}

TEST(Cascade, GivesEachFlowItsStatus) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "wrong", "half", "throws", "refused", "inexact"});
  ASSERT_EQ(report.flows.size(), 6U);
  EXPECT_EQ(report.flows[0].status, FlowStatus::kPassed);
  EXPECT_EQ(report.flows[1].status, FlowStatus::kBelowThreshold);
  EXPECT_EQ(report.flows[2].status, FlowStatus::kBelowThreshold);
  EXPECT_EQ(report.flows[3].status, FlowStatus::kRuntimeError);
  EXPECT_EQ(report.flows[3].message, "out of something");
  EXPECT_EQ(report.flows[4].status, FlowStatus::kRejectedStatic);
  EXPECT_EQ(report.flows[4].message, "refused.lua:3: unknown operator");
  EXPECT_EQ(report.flows[4].hint, "try max");
  EXPECT_EQ(report.flows[5].status, FlowStatus::kIncorrectNumerical);
  EXPECT_EQ(report.flows[5].message, "scores differ");
}

TEST(Cascade, MemoryThatRunsOutIsTheFlowsEnd) {
  FakeRunner runner;
  const FlowReport flow = run(runner, {"large"}).flows[0];
  EXPECT_EQ(flow.status, FlowStatus::kRuntimeError);
  EXPECT_EQ(flow.message, memory_ran_out());
}

TEST(Cascade, WhatTheMachineLacksSaysNothingAboutAFlow) {
  for (const char* step : {"prepare", "check", "prefill", "decode", "measure"}) {
    FakeRunner runner;
    runner.lacking = step;
    EXPECT_THROW(run(runner, {"right"}), std::system_error) << step;
  }
}

TEST(Cascade, LaterStagesAreNotRunBelowTheThreshold) {
  FakeRunner runner;
  const Report report = run(runner, {"right", "half"});
  EXPECT_EQ(report.flows[0].tasks.size(), 2U);
  EXPECT_EQ(report.flows[1].tasks.size(), 1U);
  EXPECT_DOUBLE_EQ(report.flows[1].tasks[0].accuracy, 0.5);
  EXPECT_EQ(report.flows[1].stage, "needle_multikey 256");
}

TEST(Cascade, MeasuresTheSpeedOfEveryFlowThatRuns) {
  FakeRunner runner;
  run(runner, {"right", "wrong", "throws", "refused", "inexact"});
  EXPECT_EQ(runner.measured, (std::map<std::string, int>{{"right", 3}, {"wrong", 3}}))
      << "in every task, judged in it or not, both batches of the first";
}

// Were it always the first batch, a flow could be fast for the first problems of a set alone, or for what a server's seed begins
// with.
TEST(Cascade, TimesBatchesChosenByChance) {
  const Suite suite = parse_suite(R"([{"task": "needle_multikey", "tokens": 256, "samples": 256, "questions": 4}])", "long");
  const auto timed = [&] {
    FakeRunner runner;
    run(runner, {"right"}, "the same", suite);
    return runner.timed;
  };
  const std::vector<std::string> once = timed();
  const std::vector<std::string> again = timed();
  EXPECT_EQ(once.size(), 4U) << "of 64";
  EXPECT_EQ(std::set<std::string>(once.begin(), once.end()).size(), once.size());
  EXPECT_NE(once, again) << "the seed of the questions, which is the same, says nothing of it";
}

TEST(Cascade, BatchesOfATaskCountByTheirPairs) {
  TaskSpeed few;
  few.seconds = {{2}, {1}};
  few.generated = 8;
  few.pages_read = 0.1;
  few.limit = 10;
  few.mass = {0.5, 1};
  few.strayed = 1;
  few.compared = 4;
  TaskSpeed many = few;
  many.seconds = {{4, 4, 4}, {4, 4, 4}};
  many.generated = 24;
  many.pages_read = 1;
  many.limit = 1;
  many.mass = {1, 1};
  many.strayed = 0;
  const TaskSpeed all = united({few, many});
  EXPECT_EQ(all.seconds.slow, (std::vector<double>{2, 4, 4, 4}));
  EXPECT_EQ(all.seconds.fast, (std::vector<double>{1, 4, 4, 4}));
  EXPECT_EQ(all.generated, 32);
  EXPECT_DOUBLE_EQ(all.pages_read, 0.775);
  EXPECT_DOUBLE_EQ(all.limit, std::pow(10, 0.25));
  EXPECT_EQ(all.mass, (std::vector<double>{0.875, 1}));
  EXPECT_EQ(all.strayed, 1);
  EXPECT_EQ(all.compared, 8);
}

TEST(Cascade, RefusesSpeedsThatCannotBe) {
  FakeRunner runner;
  const FlowReport flow = run(runner, {"hasty"}).flows[0];
  EXPECT_EQ(flow.status, FlowStatus::kPassed);
  EXPECT_FALSE(flow.speed.has_value());
  EXPECT_NE(flow.message.find("9.00x was measured"), std::string::npos) << flow.message;
}

TEST(Cascade, RefusesAFlowThatAnswersOtherwiseWhereTheClockLooks) {
  FakeRunner runner;
  const FlowReport flow = run(runner, {"strays"}).flows[0];
  EXPECT_EQ(flow.status, FlowStatus::kIncorrectNumerical);
  EXPECT_EQ(flow.stage, "speed");
  EXPECT_FALSE(flow.speed.has_value());
  EXPECT_NE(flow.message.find("what is timed must be what is scored"), std::string::npos) << flow.message;
}

TEST(Cascade, EveryTaskCountsAlikeInTheSpeed) {
  TaskSpeed once;
  once.seconds = {{2, 2}, {1, 1}};
  once.generated = 10;
  once.pages_read = 0.25;
  once.limit = 4;
  TaskSpeed often = once;
  often.seconds = {std::vector<double>(20, 80), std::vector<double>(20, 10)};
  often.pages_read = 0.75;
  const SpeedResult speed = speed_of({once, often});
  EXPECT_NEAR(speed.speedup.ratio, 4, 1e-9) << "the geometric mean of 2 and 8";
  EXPECT_DOUBLE_EQ(speed.pages_read, 0.5);
  EXPECT_EQ(speed.pairs, 22);
  EXPECT_NEAR(speed.tasks.at(1).speedup.ratio, 8, 1e-9);
}

TEST(Cascade, PrefillsOnceForAllFlows) {
  FakeRunner one;
  run(one, {"right"});
  FakeRunner many;
  run(many, {"right", "right", "right"});
  EXPECT_EQ(one.prefills, many.prefills);
  EXPECT_EQ(many.decodes["right"], 3 * many.decodes["dense"]);
}

TEST(Cascade, KeepsWhatDenseAttentionDid) {
  FakeRunner fake;
  CachingRunner runner(fake, 1000);
  for (const std::string flow : {"right", "half", "wrong"}) {
    FakeRunner alone;
    const Report wanted = run(alone, {flow});
    const Report got = run(runner, {flow});
    EXPECT_EQ(to_json(with_seconds(got, 0)), to_json(with_seconds(wanted, 0)));
  }
  EXPECT_EQ(fake.decodes["dense"], 3);  // two documents of one task, one of the other; not again for later flows
  EXPECT_EQ(fake.prefills, 3);
  EXPECT_EQ(runner.bytes(), 8U + 4U);
  run(runner, {"right"}, "another seed");
  EXPECT_EQ(fake.decodes["dense"], 6);
}

TEST(Cascade, KeepsNoMoreThanItMay) {
  FakeRunner fake;
  CachingRunner runner(fake, 9);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(runner, {"right"}).flows[0].status, FlowStatus::kPassed);
  EXPECT_LE(runner.bytes(), 9U);
  EXPECT_GT(fake.prefills, 8);
  fake.failing_prefill = fake.prefills + 1;
  EXPECT_FALSE(run(runner, {"right"}, "fresh").errors.empty());
  EXPECT_EQ(run(runner, {"right"}, "fresh").flows[0].status, FlowStatus::kPassed);
}

TEST(Cascade, ASuiteWithoutTasksOnlyVerifies) {
  FakeRunner runner;
  const Report report = run(runner, {"wrong", "refused", "inexact"}, "s", load_suite("verify"));
  EXPECT_EQ(report.flows[0].status, FlowStatus::kPassed);
  EXPECT_EQ(report.flows[0].message, "");
  EXPECT_FALSE(report.flows[0].speed);
  EXPECT_EQ(report.flows[1].status, FlowStatus::kRejectedStatic);
  EXPECT_EQ(report.flows[2].status, FlowStatus::kIncorrectNumerical);
  EXPECT_EQ(runner.prefills, 0);
}

TEST(Cascade, StopsWhenNoFlowIsLeft) {
  FakeRunner runner;
  const Report report = run(runner, {"wrong"});
  EXPECT_EQ(report.dense.size(), 1U) << "the second stage has no one to judge";
}

TEST(Cascade, WithoutFlowsMeasuresDenseAlone) {
  FakeRunner runner;
  const Report report = run(runner, {});
  ASSERT_EQ(report.dense.size(), 2U);
  EXPECT_EQ(report.dense[0].accuracy, 1);
  EXPECT_TRUE(runner.measured.empty());
}

TEST(Cascade, ComparesPairsWithDense) {
  FakeRunner runner;
  const Report report = run(runner, {"half"});
  const TaskResult& result = report.flows[0].tasks[0];
  EXPECT_EQ(result.samples, 8);
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.lost, 4);
  EXPECT_EQ(result.gained, 0);
  EXPECT_DOUBLE_EQ(result.p_value, 0.5) << "two documents could both have gone the other way by chance";
  EXPECT_DOUBLE_EQ(result.dense_accuracy, 1);
}

TEST(Cascade, JudgesStagesOfOneNameByTheirOwnResults) {
  FakeRunner runner;
  const Suite suite = parse_suite(R"([{"task": "salad", "tokens": 300, "samples": 4, "threshold": 0.4},
                                      {"task": "salad", "tokens": 300, "samples": 4, "threshold": 0.6}])",
                                  "twice");
  const Report report = run(runner, {"half"}, "s", suite);
  EXPECT_EQ(report.flows[0].tasks.size(), 2U);
  EXPECT_EQ(report.flows[0].status, FlowStatus::kBelowThreshold);
}

TEST(Cascade, AFlowThatJustMeetsTheThresholdGoesOn) {
  FakeRunner runner;
  SuiteTask task;
  task.task = "needle_multikey";
  task.samples = task.questions = 10;
  Suite suite;
  suite.stages = {{"three", 0.7, {task, task, task}}};  // (0.7 + 0.7 + 0.7) / 3 is less than 0.7 in binary
  const Report report = run(runner, {"seven"}, "s", suite);
  ASSERT_DOUBLE_EQ(report.flows[0].tasks[0].accuracy, 0.7);
  EXPECT_EQ(report.flows[0].status, FlowStatus::kPassed) << report.flows[0].message;
}

TEST(Cascade, JudgesNobodyWhereDenseAttentionAnswersNothing) {
  FakeRunner runner;
  runner.dense = "wrong";
  const Report report = run(runner, {"wrong"});
  ASSERT_EQ(report.notes.size(), 2U) << "of the second stage, too, which has no threshold";
  EXPECT_EQ(report.notes[0], "needle_multikey 256: dense attention answers nothing here; not judged");
  EXPECT_EQ(report.notes[1], "salad 300: dense attention answers nothing here; not judged");
  EXPECT_EQ(report.flows[0].status, FlowStatus::kRuntimeError);
  EXPECT_EQ(report.flows[0].message, "no stage judged it: " + report.notes[0]);
  EXPECT_NE(to_table(report).find(report.notes[0]), std::string::npos);
  EXPECT_NE(to_json(report).find(report.notes[0]), std::string::npos);
}

TEST(Cascade, ATaskThatCannotBeAskedLeavesTheOthers) {
  FakeRunner runner;
  runner.failing_prefill = 2;
  const Report report = run(runner, {"right"});
  ASSERT_EQ(report.errors.size(), 1U);
  EXPECT_EQ(report.errors[0], "needle_multikey 256, needle_multikey 256: too large a document");
  ASSERT_EQ(report.dense.size(), 1U);
  EXPECT_EQ(report.dense[0].task, "salad");
  ASSERT_EQ(report.flows[0].tasks.size(), 1U);
  EXPECT_TRUE(report.flows[0].speed.has_value());
  EXPECT_EQ(report.seed.size(), 64U);
  EXPECT_NE(to_table(report).find("not run: " + report.errors[0]), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["errors"].size(), 1U);
  ASSERT_TRUE(report.failure);
  try {
    std::rethrow_exception(report.failure);
  } catch (const InputError& error) {
    EXPECT_EQ(error.hint(), "buy memory");
  }
}

TEST(Cascade, AFlowThatNoStageJudgedDidNotPass) {
  FakeRunner runner;
  runner.failing_prefill = 1;
  const Suite one = parse_suite(R"([{"task": "salad", "tokens": 300, "samples": 4}])", "one");
  const Report report = run(runner, {"right"}, "s", one);
  EXPECT_EQ(report.flows[0].status, FlowStatus::kRuntimeError);
  EXPECT_EQ(report.flows[0].message, "no stage judged it: " + report.errors.at(0));
  EXPECT_FALSE(report.flows[0].speed.has_value()) << "what is timed is what was asked";
  FakeRunner weak;
  weak.dense = "wrong";
  const Suite strict = parse_suite(R"([{"task": "salad", "tokens": 300, "samples": 4, "threshold": 0.5}])", "strict");
  const Report unjudged = run(weak, {"right"}, "s", strict);
  EXPECT_EQ(unjudged.flows[0].status, FlowStatus::kRuntimeError);
  EXPECT_EQ(unjudged.flows[0].message, "no stage judged it: " + unjudged.notes.at(0));
}

TEST(Cascade, SpeedThatCannotBeMeasuredDoesNotTakeBackAPass) {
  FakeRunner runner;
  const Report report = run(runner, {"narrow"});
  EXPECT_EQ(report.flows[0].status, FlowStatus::kPassed);
  EXPECT_EQ(report.flows[0].stage, "speed");
  EXPECT_EQ(report.flows[0].message, "no room to time it");
  EXPECT_EQ(report.flows[0].hint, "shorten it");
  EXPECT_FALSE(report.flows[0].speed.has_value());
}

TEST(Cascade, QuestionsFollowFromTheSeedAloneWhateverFlowsTakePart) {
  FakeRunner a;
  FakeRunner b;
  FakeRunner c;
  const Report first = run(a, {"right"});
  run(b, {"right", "half", "wrong"});
  run(c, {"right"}, "another");
  EXPECT_EQ(a.asked, b.asked);
  EXPECT_NE(a.asked, c.asked);
  EXPECT_EQ(Seed::parse(first.seed), Seed::parse("s")) << "the reported seed repeats the run";
}

TEST(Report, JsonHasTheDocumentedMembers) {
  FakeRunner runner;
  const std::string text = to_json(run(runner, {"right", "refused"}));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["schema"], "sluice.eval/1");
  for (const char* key : {"device", "model", "seed", "suite", "dialect", "dense", "flows"})
    EXPECT_TRUE(json.contains(key)) << key;
  const auto& passed = json["flows"][0];
  EXPECT_EQ(passed["status"], "passed");
  for (const char* key : {"name", "tokens", "samples", "accuracy", "low", "high", "dense_accuracy"}) {
    EXPECT_TRUE(passed["tasks"][0].contains(key)) << key;
  }
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
    rows += line.find("needle_multikey 256  needle_multikey  256") != std::string::npos;
  EXPECT_EQ(rows, 4U) << "accuracy and speed of two flows\n" << table;
  for (const char* part : {"lost", "gained", "  p\n"}) EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
}

TaskResult problems(const std::string& file, int k, double pass) {
  TaskResult result;
  result.task = result.group = "jsonl:" + file;
  result.clusters = {{1, 4}, {2, 4}};
  result.documents = 2;
  result.generations = 4;
  result.k = k;
  result.pass_at_k = pass;
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
                                         "pass@2 speed pages mass status"));
  EXPECT_NE(lines[2].find("  75%  "), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("  50%  "), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find("  62%  "), std::string::npos) << lines[3];
}

}  // namespace
}  // namespace sluice::test
