#include "tests/harness/fake_judge.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "agents/evaluation/statistics.h"
#include "agents/tasks/rng.h"

namespace sluice::testing {

class FakeJudge::Worker final : public Executor {
 public:
  explicit Worker(FakeJudge& all) : all_(all) { messages_.emplace_back(WorkerReady{"cpu", "none", "a model"}); }

  bool is_running() const override { return true; }

  bool send(const WorkerJob& job, Deadline) override {
    {
      const std::scoped_lock lock(all_.mutex_);
      all_.jobs_.push_back(job);
    }
    messages_.emplace_back(WorkerProgress{"short", "salad", 0.5});
    messages_.push_back(all_.judging_(job));
    return true;
  }

  Outcome next(WorkerMessage& message, Deadline) override {
    if (messages_.empty()) return Outcome::kEnded;
    message = std::move(messages_.front());
    messages_.pop_front();
    return Outcome::kMessage;
  }

  std::string kill() override { return "it was running"; }

 private:
  FakeJudge& all_;
  std::deque<WorkerMessage> messages_;
};

ExecutorFactory FakeJudge::factory() {
  return [this](int) -> std::unique_ptr<Executor> { return std::make_unique<Worker>(*this); };
}

std::vector<WorkerJob> FakeJudge::jobs() const {
  const std::scoped_lock lock(mutex_);
  return jobs_;
}

WorkerReport answered(const WorkerJob& job, double truth, int samples, double speed) {
  Rng random(job.seed, job.script);
  const int asked = samples * job.factor;
  int right = 0;
  for (int i = 0; i < asked; ++i) right += random.uniform() < truth ? 1 : 0;
  const Interval interval = wilson(right, asked);
  const nlohmann::json flow = {{"status", "passed"},
                               {"tasks", nlohmann::json::array()},
                               {"stages", nlohmann::json::array()},
                               {"score", static_cast<double>(right) / asked},
                               {"score_low", interval.low},
                               {"score_high", interval.high},
                               {"speedup", {{"ratio", speed}, {"low", 0.9 * speed}, {"high", 1.1 * speed}}}};
  return {nlohmann::json{{"model", "/a/model"}, {"flows", {flow}}}.dump()};
}

}  // namespace sluice::testing
