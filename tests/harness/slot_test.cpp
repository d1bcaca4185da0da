#include "agents/orchestrator/slot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "agents/orchestrator/executor.h"
#include "agents/orchestrator/slot_signal.h"
#include "scripting/base/error.h"
#include "tests/harness/harness_test.h"
#include "tests/support/eventually.h"

namespace sluice {
namespace {

using store::Status;
using testing::eventually;

/// Says nothing any more, however long one waits.
struct Hang {};
/// Is gone; `how` is what `kill` tells, and nothing for one that said what is no message.
struct End {
  std::string how;
};
using Step = std::variant<WorkerMessage, Hang, End>;
using Script = std::deque<Step>;

/// Executors that are no processes: each does what is next in its script, and all write down what was asked of them.
class Scripts {
 public:
  explicit Scripts(std::deque<Script> scripts) : scripts_(std::move(scripts)) {}

  ExecutorFactory factory() {
    return [this](int slot) -> std::unique_ptr<Executor> { return std::make_unique<Scripted>(*this, next_script(slot)); };
  }

  /// What they were given, in order.
  std::vector<WorkerJob> jobs() const {
    const std::scoped_lock lock(mutex_);
    return jobs_;
  }
  /// For which slot each was started.
  std::vector<int> slots() const {
    const std::scoped_lock lock(mutex_);
    return slots_;
  }
  int alive() const { return alive_; }

 private:
  class Scripted final : public Executor {
   public:
    Scripted(Scripts& all, Script script) : all_(all), script_(std::move(script)) { ++all_.alive_; }
    ~Scripted() override { --all_.alive_; }
    Scripted(const Scripted&) = delete;
    Scripted& operator=(const Scripted&) = delete;

    bool is_running() const override { return !ending_; }

    bool send(const WorkerJob& job, Deadline) override {
      const std::scoped_lock lock(all_.mutex_);
      all_.jobs_.push_back(job);
      return true;
    }

    Outcome next(WorkerMessage& message, Deadline deadline) override {
      const Step step = script_.empty() ? Step(Hang()) : script_.front();
      if (std::holds_alternative<Hang>(step)) {
        std::this_thread::sleep_until(deadline);
        return Outcome::kDeadline;
      }
      script_.pop_front();
      if (const auto* end = std::get_if<End>(&step)) {
        ending_ = end->how;
        return Outcome::kEnded;
      }
      message = std::get<WorkerMessage>(step);
      return Outcome::kMessage;
    }

    std::string kill() override { return ending_.value_or("it was running"); }

   private:
    Scripts& all_;
    Script script_;
    std::optional<std::string> ending_;
  };

  Script next_script(int slot) {
    const std::scoped_lock lock(mutex_);
    slots_.push_back(slot);
    if (scripts_.empty()) throw InternalError("the cluster is full");
    Script script = std::move(scripts_.front());
    scripts_.pop_front();
    return script;
  }

  mutable std::mutex mutex_;
  std::deque<Script> scripts_;
  std::vector<WorkerJob> jobs_;
  std::vector<int> slots_;
  std::atomic<int> alive_ = 0;
};

WorkerMessage ready() { return WorkerReady{"cpu", "a device", "a model"}; }

WorkerMessage report(const std::string& status) {
  return WorkerReport{R"({"model": "/a/b", "flows": [{"status": ")" + status +
                      R"(", "stage": "s", "message": "m", "tasks": [], "stages": []}]})"};
}

class SlotOfScripts : public testing::HarnessTest {
 protected:
  static constexpr int kNumber = 3;

  ~SlotOfScripts() override { stop(); }

  void start(std::deque<Script> scripts, double seconds = 60) {
    scripts_.emplace(std::move(scripts));
    options_ = options();
    options_.check = nullptr;
    options_.seconds = seconds;
    options_.start_worker = scripts_->factory();
    thread_ = std::thread([this] {
      Slot slot(kNumber, database_, options_, signal_);
      run_slots({&slot}, signal_, options_.poll_seconds);
    });
  }

  void stop() {
    signal_.stop();
    if (thread_.joinable()) thread_.join();
  }

  store::SubmissionId submit(const std::string& name) {
    store::Draft draft;
    draft.name = name;
    draft.script = "-- " + name;
    const auto id = store_->submit("ada", draft).id;
    signal_.wake();
    return id;
  }

  /// The first try at `id`, once it has ended.
  store::Evaluation first_try(store::SubmissionId id) {
    const auto has_ended = [&] {
      const auto tries = store_->evaluations(id);
      return !tries.empty() && !tries[0].outcome.empty();
    };
    EXPECT_TRUE(eventually(has_ended));
    return store_->evaluations(id).at(0);
  }

  std::string message_of_first_try(Script script) {
    script.emplace_front(ready());
    start({std::move(script)});
    const store::Evaluation tried = first_try(submit("flow"));
    EXPECT_EQ(tried.outcome, "failed");
    stop();
    return tried.verdict.message;
  }

  OrchestratorOptions options_;
  SlotSignal signal_;
  std::optional<Scripts> scripts_;
  std::thread thread_;
};

TEST_F(SlotOfScripts, AVerdictIsKeptAndItsExecutorJudgesTheNext) {
  start({{ready(), WorkerProgress{"numerical", "", 0.5}, report("passed"), report("below_threshold")}});
  const auto first = submit("first");
  EXPECT_EQ(first_try(first).verdict.status, Status::kPassed);
  const auto second = submit("second");
  EXPECT_EQ(first_try(second).verdict.status, Status::kBelowThreshold);
  EXPECT_EQ(store_->get(first)->status, Status::kPassed);
  EXPECT_EQ(scripts_->slots(), std::vector<int>{kNumber}) << "it was started once";
  const auto jobs = scripts_->jobs();
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[1].name, "second");
  EXPECT_EQ(jobs[1].script, "-- second");
  EXPECT_EQ(jobs[1].suite, "verify");
  EXPECT_EQ(jobs[1].seed.hex(), options().seed.hex());
  stop();
  EXPECT_EQ(scripts_->alive(), 0) << "it ends with its slot";
}

TEST_F(SlotOfScripts, AHangEndsAtTheDeadlineAndItsExecutorWithIt) {
  start({{ready(), WorkerProgress{"long", "salad 4096", 0.5}, Hang()}, {ready(), report("passed")}}, 0.05);
  const store::Evaluation tried = first_try(submit("slow"));
  EXPECT_EQ(tried.verdict.status, Status::kTimeout);
  EXPECT_NE(tried.verdict.message.find("long, salad 4096"), std::string::npos) << tried.verdict.message;
  EXPECT_EQ(first_try(submit("next")).verdict.status, Status::kPassed);
  EXPECT_EQ(scripts_->slots().size(), 2U);
  EXPECT_EQ(scripts_->alive(), 1);
}

TEST_F(SlotOfScripts, ACrashIsATryThatSaysHowItEnded) {
  EXPECT_EQ(message_of_first_try({WorkerProgress{"speed", "", 0.9}, End{"signal 9 (Killed)"}}),
            "the worker ended during speed: signal 9 (Killed); memory may have run out");
}

TEST_F(SlotOfScripts, NonsenseIsATry) {
  EXPECT_EQ(message_of_first_try({End{""}}), "the worker ended during verify: it made no sense");
}

TEST_F(SlotOfScripts, ReadinessIsNoAnswer) {
  EXPECT_EQ(message_of_first_try({ready()}), "the worker ended during verify: it was running");
}

TEST_F(SlotOfScripts, AReportThatIsNoneIsATry) {
  EXPECT_NE(message_of_first_try({WorkerReport{"{}"}}).find("flows"), std::string::npos);
}

TEST_F(SlotOfScripts, AnExecutorThatCannotBeHadIsNobodysFault) {
  start({});
  const auto id = submit("flow");
  const auto put_back = [&] {
    const auto events = store_->events_after(0, 1000);
    return std::any_of(events.begin(), events.end(), [](const store::Event& event) { return event.kind == "retried"; });
  };
  EXPECT_TRUE(eventually(put_back));
  stop();
  EXPECT_EQ(store_->get(id)->status, Status::kQueued);
  EXPECT_TRUE(store_->evaluations(id).empty());
}

}  // namespace
}  // namespace sluice
