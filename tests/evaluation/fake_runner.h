#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "agents/evaluation/cascade.h"
#include "agents/evaluation/terminal_progress.h"
#include "scripting/base/error.h"
#include "tests/tasks/fixtures.h"

namespace sluice::test {

class FakeBatch : public PrefilledBatch {
 public:
  size_t bytes() const override { return samples.size(); }

  std::vector<Sample> samples;
};

/// Answers as the flow's file name says: "right", "wrong", "half", "seven" of ten, "throws", "large" (memory runs out),
/// "refused", "inexact"; or right, but "narrow" has no room to be timed, "hasty" is faster than can be, "restless"
/// is timed while others keep both cores busy, and "strays" answers otherwise where it is timed. Dense is right unless `dense`
/// says otherwise.
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
  std::optional<TraceResult> judge_on_traces(const FlowScript& script, const Candidate& /*candidate*/) override {
    if (script.file == "shapely") throw InputError("reshape: 256 numbers do not make 3 heads");
    return traces == nullptr ? std::nullopt : std::optional(*traces);
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
      const bool right = name == "right" || name == "restless" || name == "narrow" || name == "hasty" || name == "strays" ||
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
    patience[name].push_back(options.patience);
    speed.conditions.wanted_cores = 2;
    speed.conditions.waited = std::max(0.0, options.patience);
    speed.conditions.load = {.seconds = 1, .own = 0, .cores = 2, .on_cores = {name == "restless" ? 1.5 : 0.125, 2}, .group = {}};
    EXPECT_EQ(given.dense.size(), dynamic_cast<const FakeBatch&>(batch).samples.size());
    return speed;
  }

  void lack_at(const std::string& step) const {
    if (step == lacking) throw std::system_error(EAGAIN, std::generic_category(), "pthread_create");
  }

  std::string lacking;  // the step at which the machine has no thread left
  std::string dense = "right";
  int failing_prefill = 0;              // from 1; 0: none
  std::unique_ptr<TraceResult> traces;  // null: there is no trace
  std::set<std::string> answers;
  int prefills = 0;
  std::map<std::string, int> decodes;
  std::set<std::string> asked;
  std::map<std::string, int> measured;                  // batches
  std::vector<std::string> timed;                       // the first prompt of each
  std::map<std::string, std::vector<double>> patience;  // for each
};

inline Suite small_suite() {
  return parse_suite(R"([{"task": "needle_multiquery", "tokens": 256, "samples": 8, "questions": 4, "threshold": 0.6},
                         {"task": "salad", "tokens": 300, "samples": 4, "threshold": 0}])",
                     "small");
}

/// The cascade over flows of these file names.
inline Report run(Runner& runner, const std::vector<std::string>& flows, const std::string& seed = "s",
                  const Suite& suite = small_suite(), int positions = 0) {
  const CountingTokenizer tokenizer;
  std::vector<Contestant> contestants;
  for (const std::string& flow : flows) contestants.push_back({flow, {flow, {}}});
  TerminalProgress progress;
  return run_cascade(suite, contestants, runner, {tokenizer, &mini_vocabulary(), positions}, Seed::parse(seed), progress);
}

}  // namespace sluice::test
