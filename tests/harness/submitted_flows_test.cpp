#include "agents/harness/submitted_flows.h"

#include <gtest/gtest.h>

#include "agents/http/http_problem.h"
#include "tests/harness/harness_test.h"

namespace sluice {
namespace {

class Submitted : public testing::HarnessTest {
 protected:
  /// Hands in a flow and judges it so.
  store::SubmissionId judged(const std::string& script, store::Status status, const std::string& message = {}) {
    const store::SubmissionId id = submit(script);
    store::Verdict verdict;
    verdict.status = status;
    verdict.message = message;
    store_->complete(store_->claim("worker", 60'000'000).value(), verdict);
    return id;
  }

  store::SubmissionId submit(const std::string& script) {
    store::Draft draft;
    draft.name = "flow";
    draft.script = script;
    return store_->submit("ada", draft).id;
  }

  /// The status and the detail of a refusal.
  std::string refusal(const std::string& name) {
    try {
      flows_.check(name);
      return "accepted";
    } catch (const HttpProblem& problem) {
      EXPECT_EQ(problem.members()["param"], "flow");
      return std::to_string(problem.status()) + " " + problem.what();
    }
  }

  SubmittedFlows flows_{database_};
};

TEST_F(Submitted, ThoseJudgedToTheEndMayBeUsed) {
  const auto passed = judged("first", store::Status::kPassed);
  const auto below = judged("second", store::Status::kBelowThreshold, "too inaccurate");
  EXPECT_EQ(flows_.script("submission:" + std::to_string(passed)).source, "first");
  EXPECT_EQ(flows_.script("submission:" + std::to_string(below)).source, "second");
  EXPECT_EQ(flows_.script("submission:1").file, "submission:1");
}

TEST_F(Submitted, OthersAreRefusedWithTheReason) {
  judged("first", store::Status::kRejectedStatic, "line 3: topk wants scores");
  judged("second", store::Status::kTimeout, "too slow");
  submit("third");
  EXPECT_EQ(refusal("submission:1"), "400 submission 1 cannot be used, it is rejected_static: line 3: topk wants scores");
  EXPECT_EQ(refusal("submission:2"), "400 submission 2 cannot be used, it is timeout: too slow");
  EXPECT_EQ(refusal("submission:3"), "400 submission 3 is queued; it can be used once it is judged");
  EXPECT_EQ(refusal("submission:4"), "404 there is no submission 4");
}

TEST_F(Submitted, ANameIsWrittenInOneWay) {
  judged("first", store::Status::kPassed);
  for (const char* name : {"submission:", "submission:01", "submission:+1", "submission:1 ", "submission:x", "submission:-1",
                           "submission:99999999999999999999", "Submission:1", "12", "other:1"}) {
    EXPECT_TRUE(refusal(name).starts_with("400 there is no flow")) << name;
  }
}

}  // namespace
}  // namespace sluice
