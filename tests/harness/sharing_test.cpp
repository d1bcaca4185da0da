// Scripts that are one flow, from the queue to their verdicts.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "agents/harness/flow_inspector.h"
#include "agents/orchestrator/orchestrator.h"
#include "tests/harness/fake_judge.h"
#include "tests/harness/harness_test.h"
#include "tests/support/eventually.h"

namespace sluice {
namespace {

using testing::answered;
using testing::eventually;
using testing::FakeJudge;

class Sharing : public testing::HarnessTest {
 protected:
  void start(int workers, FakeJudge::Judging judging) {
    judge_ = std::make_unique<FakeJudge>(std::move(judging));
    OrchestratorOptions all = options(workers);
    all.start_worker = judge_->factory();
    all.poll_seconds = 0.01;
    all.check = [](const FlowScript& script) {
      return CheckedFlow{flow_fingerprint({{script.trace({}), {.layers = 8}}}, "cpu"),
                         {{"plan.txt", "text/plain", script.source, 0}}};
    };
    orchestrator_ = std::make_unique<Orchestrator>(database_, std::move(all));
  }
  static std::string script(int k, const std::string& comment) {
    return fmt::format(
        "-- {}\nlocal flow = sluice.flow{{name = 'x'}}\nfunction flow.index(q, c)\n"
        "  return sluice.topk(sluice.position(), {{k = {}, first = 1, last = 1}})\nend\nreturn flow\n",
        comment, k);
  }
  store::SubmissionId submit(const std::string& text) {
    store::Draft draft;
    draft.name = "flow";
    draft.script = text;
    draft.settings = R"({"model":"mini","suite":"quick","device":"cpu"})";
    return store_->submit("ada", draft).id;
  }
  bool all_have_ended(const std::vector<store::SubmissionId>& ids) {
    return eventually(
        [&] { return std::all_of(ids.begin(), ids.end(), [&](auto id) { return store::is_final(*store_->find_status(id)); }); });
  }

  std::unique_ptr<FakeJudge> judge_;
  std::unique_ptr<Orchestrator> orchestrator_;
};

TEST_F(Sharing, EachFlowIsJudgedOnceHoweverManyAskAtOnce) {
  start(4, [](const WorkerJob& job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return answered(job, 0.5, 64);
  });
  std::vector<store::SubmissionId> ids;
  for (int i = 0; i < 24; ++i) ids.push_back(submit(script(3 + i % 3, fmt::format("copy {}", i))));
  orchestrator_->wake();
  ASSERT_TRUE(all_have_ended(ids));
  EXPECT_EQ(judge_->jobs().size(), 3U);
  int firsts = 0;
  for (const auto id : ids) {
    const auto summary = store_->summary(id).value();
    EXPECT_EQ(summary.status, store::Status::kPassed);
    firsts += summary.same_as ? 0 : 1;
    EXPECT_EQ(store_->artifact(id, "plan.txt")->bytes, store_->get(id)->script) << "its own, whoever was judged";
    EXPECT_FALSE(summary.metrics.empty());
  }
  EXPECT_EQ(firsts, 3);
  EXPECT_EQ(store_->leaderboard({.metric = "score"}).size(), 3U);
}

TEST_F(Sharing, AFlowWhoseJudgeFailsIsJudgedForTheNext) {
  start(1, [](const WorkerJob& job) -> WorkerMessage {
    if (job.script.find("bad luck") != std::string::npos) return WorkerFailure{"out of luck", "", false};
    return answered(job, 0.5, 64);
  });
  const auto unlucky = submit(script(3, "bad luck"));
  const auto lucky = submit(script(3, "good luck"));
  const auto copy = submit(script(3, "neither"));
  orchestrator_->wake();
  ASSERT_TRUE(all_have_ended({unlucky, lucky, copy}));
  // While the first is between two tries the second is judged, and then the first shares that.
  EXPECT_EQ(store_->summary(lucky)->status, store::Status::kPassed);
  EXPECT_EQ(store_->summary(copy)->same_as, lucky);
  EXPECT_EQ(store_->summary(unlucky)->status, store::Status::kPassed);
  EXPECT_EQ(store_->summary(unlucky)->same_as, lucky);
}

}  // namespace
}  // namespace sluice
