// Finals over HTTP: what is told of them, and what the board makes of them.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/harness/api_fixture.h"

namespace sluice {
namespace {

using nlohmann::json;

class FinalsApi : public testing::ApiTest {
 protected:
  static constexpr store::Time kMinute = 60'000'000;

  static store::Verdict scored(double score, double speedup = 2, store::Status status = store::Status::kPassed) {
    store::Verdict verdict;
    verdict.status = status;
    verdict.metrics = {{"score", "", 0, score, score - 0.01, score + 0.01, ""},
                       {"speedup", "", 0, speedup, speedup - 0.1, speedup + 0.1, "x dense"}};
    return verdict;
  }
  int64_t judged(const std::string& flow, const store::Verdict& verdict) {
    const int64_t id = submit(draft(flow, {{"settings", {{"model", "mini"}}}}))["id"];
    decide(verdict);
    return id;
  }
  /// The final of what has none yet.
  int64_t ask() {
    const std::vector<store::SubmissionId> made =
        store_->ask_finals({{.model = "mini", .model_digest = {}, .device = {}}, R"({"model":"large","suite":"real"})", "score"});
    EXPECT_EQ(made.size(), 1U);
    return made.at(0);
  }
  int64_t twice(const std::string& flow, const store::Verdict& first, const store::Verdict& last) {
    const int64_t id = judged(flow, first);
    ask();
    decide(last);
    return id;
  }
  json submission(int64_t id) { return get(fmt::format("/v1/submissions/{}", id)); }
};

TEST_F(FinalsApi, AreToldWithTheirFlow) {
  const int64_t id = judged("quest", scored(0.5));
  EXPECT_EQ(submission(id)["final"], nullptr);
  const int64_t last = ask();
  const json waits = submission(id)["final"];
  EXPECT_EQ(waits["id"], last);
  EXPECT_EQ(waits["status"], "queued");
  EXPECT_EQ(waits["passed"], false);
  EXPECT_EQ(waits["metrics"], json::object());
  EXPECT_EQ(waits["settings"], (json{{"model", "large"}, {"suite", "real"}}));
  EXPECT_EQ(submission(last)["final_of"], id);
  decide(scored(0.75));
  const json ended = submission(id);
  EXPECT_EQ(ended["metrics"]["score"]["value"], 0.5);
  EXPECT_EQ(ended["final"]["passed"], true);
  EXPECT_EQ(ended["final"]["metrics"]["score"]["value"], 0.75);
  EXPECT_EQ(get("/v1/submissions")["submissions"][0]["final"], ended["final"]) << "summaries tell it, too";
  EXPECT_EQ(get("/v1/submissions")["total"], 1);
  EXPECT_EQ(get("/v1/submissions?finals=shown")["total"], 2);
  EXPECT_EQ(get("/v1/submissions?model=large")["submissions"][0]["id"], last);
  get("/v1/submissions?finals=yes", 422);
}

TEST_F(FinalsApi, OrderTheBoardByScore) {
  const int64_t best_on_mini = twice("quest", scored(0.9), scored(0.4));
  const int64_t best = twice("streaming", scored(0.5), scored(0.8));
  const int64_t fell = twice("random", scored(0.95), scored(0.1, 2, store::Status::kBelowThreshold));
  const int64_t open = judged("block_topk", scored(0.7));
  const auto board = [&](const std::string& query) {
    std::vector<int64_t> ids;
    const json entries = get("/v1/leaderboard" + query)["entries"];
    for (const json& entry : entries) ids.push_back(entry["submission"]["id"]);
    return ids;
  };
  EXPECT_EQ(board(""), (std::vector<int64_t>{best, best_on_mini, open, fell}));
  const json entries = get("/v1/leaderboard")["entries"];
  EXPECT_EQ(entries[0]["by_final"], true);
  EXPECT_EQ(entries[0]["metric"]["value"], 0.8);
  EXPECT_EQ(entries[2]["by_final"], false);
  EXPECT_EQ(entries[3]["rank"], 4);
  EXPECT_EQ(board("?model=mini"), (std::vector<int64_t>{fell, best_on_mini, open, best})) << "by one model";
  EXPECT_EQ(board("?order=ascending").front(), best) << "the worst of the first model";
  EXPECT_EQ(board("?metric=speedup").size(), 4U);
}

TEST_F(FinalsApi, SayWhereTheModelsDisagree) {
  EXPECT_EQ(get("/v1/finals")["flows"], 0);
  const int64_t one = twice("quest", scored(0.9), scored(0.4));
  const int64_t two = twice("streaming", scored(0.5), scored(0.8));
  const int64_t fell = twice("random", scored(0.95), scored(0.1, 2, store::Status::kBelowThreshold));
  const json found = get("/v1/finals");
  EXPECT_EQ(found["flows"], 3);
  EXPECT_EQ(found["passed_both"], 2);
  EXPECT_EQ(found["agreement"], nullptr) << "two flows say nothing of it";
  ASSERT_EQ(found["reversed_total"], 1);
  const json& pair = found["reversed"][0];
  EXPECT_EQ(pair["better_by_final"]["first"]["id"], two);
  EXPECT_EQ(pair["better_by_final"]["final"]["score"]["value"], 0.8);
  EXPECT_EQ(pair["better_by_final"]["final"]["model"], "large");
  EXPECT_EQ(pair["better_by_first"]["first"]["id"], one);
  ASSERT_EQ(found["divided_total"], 1);
  EXPECT_EQ(found["divided"][0]["first"]["id"], fell);
  EXPECT_EQ(found["divided"][0]["final"]["status"], "below_threshold");
  EXPECT_EQ(get("/v1/finals?agent=bob")["flows"], 0);
}

TEST_F(FinalsApi, AreTheirAgentsToCancelAndToConfirm) {
  const int64_t id = judged("quest", scored(0.5));
  const int64_t last = ask();
  post(fmt::format("/v1/submissions/{}/cancel", last), 403, other_token_);
  decide(scored(0.75));
  post(fmt::format("/v1/submissions/{}/confirm", last), 200, token_);
  decide(scored(0.6));
  EXPECT_EQ(submission(id)["final"]["confirmed"], "passed");
  EXPECT_EQ(submission(id)["final"]["metrics"]["score"]["value"], 0.6);
  post(fmt::format("/v1/submissions/{}/judge", last), 200, admin_token_);
  post(fmt::format("/v1/submissions/{}/cancel", last), 200, token_);
  EXPECT_EQ(submission(id)["final"]["passed"], false);
  EXPECT_EQ(submission(id)["status"], "passed") << "that is the first model's";
}

}  // namespace
}  // namespace sluice
