// Confirmations over HTTP: who may ask, what is told when, and what the board makes of it.

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/api_fixture.h"

namespace sluice {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

class ConfirmationsApi : public testing::ApiTest {
 protected:
  static store::Verdict measured(double score, double speedup) {
    store::Verdict verdict;
    verdict.metrics = {{"score", "", 0, score, score - 0.1, score + 0.1, ""},
                       {"accuracy", "", 0, score, score - 0.1, score + 0.1, ""},
                       {"speedup", "", 0, speedup, speedup - 0.1, speedup + 0.1, "x dense"}};
    verdict.stages = {{"verify", store::StageStatus::kPassed, 0.25, "", "{}"}};
    return verdict;
  }
  int64_t judged(const std::string& flow, const store::Verdict& verdict, const std::string& token = {}) {
    const int64_t id = submit(draft(flow), 201, token)["id"];
    decide(verdict);
    return id;
  }
  json confirm(int64_t id, int status = 200, const std::string& token = {}) {
    return post(fmt::format("/v1/submissions/{}/confirm", id), status, token.empty() ? token_ : token);
  }
  json confirmation(int64_t id, int status = 200, const std::string& query = {}) {
    return get(fmt::format("/v1/submissions/{}/confirmation{}", id, query), status);
  }
};

TEST_F(ConfirmationsApi, TellWhatWasJudgedBesideWhatWasConfirmed) {
  const int64_t id = judged("quest", measured(0.75, 2));
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}", id))["confirmation"], nullptr);
  confirmation(id, 404);
  const json asked = confirm(id)["confirmation"];
  EXPECT_EQ(asked["state"], "queued");
  EXPECT_EQ(asked["tries"], 1);
  EXPECT_EQ(asked["automatic"], false);
  EXPECT_EQ(asked["seed"], nullptr);
  EXPECT_EQ(asked["metrics"], json::object());
  EXPECT_EQ(asked["flattered"], nullptr);
  EXPECT_EQ(confirmation(id)["evaluation"], nullptr);

  const auto lease = store_->claim("a test", 60'000'000).value();
  const json running = confirmation(id);
  EXPECT_EQ(running["state"], "running");
  EXPECT_EQ(running["seed"], nullptr) << "secret until the verdict is there";
  EXPECT_EQ(running["evaluation"]["outcome"], "");
  EXPECT_EQ(get("/v1/submissions").dump().find(lease.confirmation->seed), std::string::npos);
  store_->complete(lease, measured(0.5, 1.75));

  const json document = get(fmt::format("/v1/submissions/{}", id));
  EXPECT_EQ(document["metrics"]["score"]["value"], 0.75);
  const json& done = document["confirmation"];
  EXPECT_EQ(done["state"], "done");
  EXPECT_EQ(done["status"], "passed");
  EXPECT_EQ(done["seed"], lease.confirmation->seed);
  EXPECT_EQ(done["metrics"]["score"]["value"], 0.5);
  EXPECT_EQ(done["flattered"]["value"], 0.25);
  EXPECT_DOUBLE_EQ(done["flattered"]["low"], 0.75 - 0.6);
  EXPECT_DOUBLE_EQ(done["flattered"]["high"], 0.75 - 0.4);
  EXPECT_EQ(get("/v1/submissions")["submissions"][0]["confirmation"], done) << "summaries tell it, too";
  EXPECT_EQ(confirmation(id)["evaluation"]["id"], lease.evaluation);
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}/evaluations", id))["evaluations"].size(), 1U);
}

TEST_F(ConfirmationsApi, AskedForAgainAreWhatTheyAre) {
  const int64_t id = judged("quest", measured(0.75, 2));
  const json first = confirm(id);
  EXPECT_EQ(confirm(id), first);
  EXPECT_EQ(confirm(id, 200, admin_token_), first) << "whoever asks";
  decide(measured(0.5, 2));
  const json done = confirm(id)["confirmation"];
  EXPECT_EQ(done["state"], "done");
  EXPECT_FALSE(store_->claim("a test", 60'000'000)) << "nothing is judged again";
  EXPECT_EQ(get("/v1/me", 200, token_)["quota"]["used"], 2);
}

TEST_F(ConfirmationsApi, AreTheOwnersToAskForAndAnAdministrators) {
  const int64_t id = judged("quest", measured(0.75, 2));
  const json refused = confirm(id, 403, other_token_);
  EXPECT_EQ(refused["detail"], fmt::format("submission {} is another agent's", id));
  confirm(id, 401, "nobody's");
  EXPECT_FALSE(store_->claim("a test", 60'000'000)) << "nothing is judged";
  EXPECT_EQ(confirm(id, 200, admin_token_)["confirmation"]["agent"], "root");
  confirm(99, 404);
}

TEST_F(ConfirmationsApi, OfWhatHasNotPassedAreRefusedInOneMessage) {
  const int64_t waiting = submit(draft("quest"))["id"];
  EXPECT_EQ(confirm(waiting, 409)["detail"], fmt::format("submission {} is queued: it has no verdict yet to confirm", waiting));
  store::Verdict below = measured(0.1, 2);
  below.status = store::Status::kBelowThreshold;
  decide(below);
  EXPECT_EQ(confirm(waiting, 409)["detail"],
            fmt::format("submission {} is below_threshold: only what passed is confirmed", waiting));
  EXPECT_EQ(confirm(waiting, 403, other_token_)["detail"], fmt::format("submission {} is another agent's", waiting))
      << "whose it is comes first";
  EXPECT_FALSE(store_->claim("a test", 60'000'000));
  EXPECT_EQ(get("/v1/me", 200, token_)["quota"]["used"], 1);
}

TEST_F(ConfirmationsApi, CountInTheQuota) {
  const int64_t id = judged("quest", measured(0.75, 2), other_token_);
  judged("full", measured(0.5, 1), other_token_);
  confirm(id, 200, other_token_);
  submit(draft("h2o"), 429, other_token_);
  EXPECT_EQ(get("/v1/me", 200, other_token_)["quota"]["used"], 3);
}

TEST_F(ConfirmationsApi, MoveTheBoardAndSayWhatItIsOf) {
  const int64_t lucky = judged("quest", measured(0.9, 2));
  const int64_t solid = judged("full", measured(0.7, 1));
  EXPECT_EQ(get("/v1/leaderboard")["entries"][0]["basis"], "judged");
  confirm(lucky);
  decide(measured(0.5, 1.9));
  const json board = get("/v1/leaderboard");
  EXPECT_EQ(board["total"], 2);
  EXPECT_EQ(board["entries"][0]["submission"]["id"], solid);
  EXPECT_EQ(board["entries"][1]["basis"], "confirmed");
  EXPECT_EQ(board["entries"][1]["metric"]["value"], 0.5);
  EXPECT_EQ(board["entries"][1]["rank"], 2) << "0.2 apart, where 0.14 would be a tie";
  EXPECT_EQ(board["entries"][1]["submission"]["metrics"]["score"]["value"], 0.9);
  const json front = get("/v1/front")["points"];
  ASSERT_EQ(front.size(), 2U);
  EXPECT_EQ(front[1]["value"], 0.5);
  EXPECT_EQ(front[1]["speed"], 1.9);
  EXPECT_EQ(front[1]["basis"], "confirmed");
  EXPECT_EQ(get("/v1/history")["points"][0]["value"], 0.9);
}

TEST_F(ConfirmationsApi, AreWaitedForAndToldByEvents) {
  const int64_t id = judged("quest", measured(0.9, 2));
  confirm(id);
  std::thread judging([&] {
    std::this_thread::sleep_for(300ms);
    decide(measured(0.5, 2));
  });
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(confirmation(id, 200, "?wait=30")["state"], "done");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 20s);
  judging.join();
  EXPECT_EQ(confirmation(id, 200, "?wait=30")["state"], "done");
  confirmation(id, 400, "?wait=soon");
  confirmation(99, 404);
  std::vector<std::string> states;
  for (const store::Event& event : store_->events_after(0, 100)) {
    if (event.kind == "confirmation") states.push_back(json::parse(event.data)["state"]);
  }
  EXPECT_EQ(states, (std::vector<std::string>{"queued", "running", "done"}));
}

}  // namespace
}  // namespace sluice
