#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "agents/client/harness_client.h"
#include "agents/client/verdict_wait.h"
#include "tests/harness/api_fixture.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

class Api : public testing::ApiTest {
 protected:
  /// The submission once it is judged, however long a busy machine takes: the test as a whole has a time limit.
  json verdict(int64_t id) {
    json submission;
    do {
      submission = get(fmt::format("/v1/submissions/{}?wait=60", id));
    } while (!is_final_status(submission["status"]));
    return submission;
  }
};

TEST_F(Api, FromASubmissionToItsVerdict) {
  if (test::kIsSanitized) GTEST_SKIP() << "it judges by the suite quick";
  judge();
  const json first = submit(draft("quest", {{"notes", "as shipped"}, {"settings", {{"suite", "quick"}}}}));
  const int64_t id = first["id"];
  EXPECT_EQ(first["agent"], "ada");
  EXPECT_EQ(first["is_new"], true);
  const json judged = verdict(id);
  EXPECT_EQ(judged["status"], "passed") << judged.dump();
  EXPECT_EQ(judged["script"], read_flow("quest").source);
  const json& evaluation = judged["evaluation"];
  EXPECT_EQ(evaluation["status"], "passed");
  EXPECT_GE(evaluation["stages"].size(), 3U);
  EXPECT_FALSE(evaluation.dump().find(options().seed.hex()) != std::string::npos);

  const json child = submit(draft("random", {{"parents", {id}}, {"settings", {{"suite", "quick"}}}}));
  EXPECT_EQ(verdict(child["id"])["status"], "below_threshold");
  const json nodes = get(fmt::format("/v1/submissions/{}/lineage?of=descendants", id))["nodes"];
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_EQ(nodes[0]["parents"], json({id}));

  const json board = get("/v1/leaderboard?metric=accuracy")["entries"];
  ASSERT_EQ(board.size(), 1U);
  EXPECT_EQ(board[0]["submission"]["id"], id);
  const json failed = get("/v1/leaderboard?metric=accuracy&status=below_threshold")["entries"];
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_LT(failed[0]["metric"]["value"], board[0]["metric"]["value"]);
  EXPECT_EQ(get("/v1/leaderboard?metric=speedup")["entries"].size(), 1U);
  EXPECT_EQ(get("/v1/front")["points"].size(), 1U);
  get("/v1/leaderboard?metric=speed", 422);
  get("/v1/history?metric=nope", 422);
  get("/v1/front?metric=nope", 422);
  const json points = get("/v1/history?metric=accuracy")["points"];
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0]["suite"], "quick");
}

TEST_F(Api, TheSameFlowIsTheSameSubmission) {
  const json first = submit(draft("quest"));
  const json again = submit(draft("quest"), 200);
  EXPECT_EQ(again["id"], first["id"]);
  EXPECT_EQ(again["is_new"], false);
  const json other = submit(draft("quest", {{"settings", {{"suite", "full"}}}}), 201);
  EXPECT_NE(other["id"], first["id"]);
  EXPECT_EQ(submit(draft("quest", {{"settings", {{"seconds", 1'000'000}}}}), 200)["id"], first["id"]) << "no more than it has";
  const json keyed = submit(draft("h2o"), 201, {}, {{"Idempotency-Key", "k"}});
  EXPECT_EQ(submit(draft("h2o"), 200, {}, {{"Idempotency-Key", "k"}})["id"], keyed["id"]);
  submit(draft("full"), 409, {}, {{"Idempotency-Key", "k"}});
}

TEST_F(Api, WritingNeedsAToken) {
  EXPECT_EQ(post("/v1/submissions", draft("quest"), 401, "")["status"], 401);
  EXPECT_EQ(post("/v1/submissions", draft("quest"), 401, "wrong")["status"], 401);
  EXPECT_EQ(get("/v1/submissions")["submissions"].size(), 0U);
  const int64_t id = submit(draft("quest"))["id"];
  const std::string path = fmt::format("/v1/submissions/{}/cancel", id);
  post(path, 401, "");
  post(path, 403, other_token_);
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}", id))["status"], "queued");
  EXPECT_EQ(post(path, 200, token_)["status"], "cancelled");
  post(path, 409, token_);
}

TEST_F(Api, QuotasAreKept) {
  for (int i = 0; i < 3; ++i) submit(draft("quest", {{"settings", {{"seconds", 1 + i}}}}), 201, other_token_);
  EXPECT_EQ(get("/v1/me", 200, other_token_)["quota"]["used"], 3);
  const json more = draft("quest", {{"settings", {{"seconds", 9}}}});
  const auto refused = client(other_token_).Post("/v1/submissions", more.dump(), "application/json");
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "3600");
  try {
    HarnessClient({fmt::format("http://127.0.0.1:{}", server_->port()), other_token_}).submit(more);
    FAIL() << "the quota is used up";
  } catch (const ServerError& error) {
    EXPECT_EQ(error.status(), 429);
    EXPECT_FALSE(error.may_pass()) << "nobody is to try again for an hour";
  }
}

TEST_F(Api, WhatIsWrongIsSaid) {
  const auto refused = [&](const std::string& text, int status) {
    const auto result = client(token_).Post("/v1/submissions", text, "application/json");
    EXPECT_EQ(result->status, status) << text;
    EXPECT_TRUE(json::parse(result->body).contains("detail")) << text;
  };
  refused("", 400);
  refused("[]", 400);
  refused("{\"name\": \"x\"}", 400);
  refused(R"({"name": "x", "script": 3})", 400);
  refused(R"({"name": "x", "script": "s", "extra": 1})", 422);
  refused(R"({"name": "x", "script": "s", "parents": [99]})", 404);
  refused(R"({"name": "x", "script": "s", "parents": ["a"]})", 422);
  refused(R"({"name": "x", "script": "s", "parents": [9223372036854775808]})", 422);
  refused(R"({"name": "x", "script": "s", "settings": 3})", 422);
  refused(json({{"name", "x"}, {"script", std::string(70000, 's')}}).dump(), 422);
  get("/v1/submissions/7", 404);
  get("/v1/submissions/x", 400);
  get("/v1/submissions?limit=0", 400);
  get("/v1/submissions?status=great", 422);
  get("/v1/submissions?cursor=nonsense", 422);
  get("/v1/leaderboard?order=up", 400);
  get("/v1/submissions/1?wait=1000", 400);
  EXPECT_EQ(get("/v1/submissions?limt=3", 400)["detail"], "\"limt\" is no query parameter of this address");
  EXPECT_EQ(get("/v1/suites?limit=3", 400)["hint"], "it takes none");
  get("/v1/submissions?limit=3&limit=4", 400);
}

TEST_F(Api, PagesAndFilters) {
  for (int i = 0; i < 5; ++i) submit(draft("quest", {{"name", fmt::format("flow {}", i)}, {"settings", {{"seconds", 1 + i}}}}));
  submit(draft("h2o"), 201, other_token_);
  std::vector<std::string> names;
  std::string cursor;
  do {
    const json page = get("/v1/submissions?agent=ada&limit=2&cursor=" + cursor);
    for (const json& each : page["submissions"]) names.push_back(each["name"]);
    cursor = page["next"];
  } while (!cursor.empty());
  EXPECT_EQ(names, (std::vector<std::string>{"flow 4", "flow 3", "flow 2", "flow 1", "flow 0"}));
  EXPECT_EQ(get("/v1/submissions?agent=bob")["submissions"].size(), 1U);
  EXPECT_EQ(get("/v1/submissions?status=passed")["submissions"].size(), 0U);
  EXPECT_EQ(get("/v1/submissions?text=flow%203")["submissions"].size(), 1U);
}

TEST_F(Api, EventsFollowWhatHappens) {
  constexpr int kLines = 2 + 2 * 4;  // where the stream begins, and two events
  submit(draft("quest"));
  std::string text;
  auto listener = client();
  std::thread later([&] {
    std::this_thread::sleep_for(300ms);
    submit(draft("h2o"));
  });
  listener.Get("/v1/events?after=0", [&](const char* data, size_t size) {
    text.append(data, size);
    return text.find("h2o") == std::string::npos && std::count(text.begin(), text.end(), '\n') < kLines;
  });
  later.join();
  EXPECT_NE(text.find("event: submitted"), std::string::npos) << text;
  EXPECT_TRUE(text.starts_with("id: 0\n\nid: 1\nevent: submitted\n")) << text;
  EXPECT_GE(std::count(text.begin(), text.end(), '\n'), kLines) << "the second submission came through: " << text;
}

TEST_F(Api, IsDescribed) {
  const json document = get("/v1/openapi.json");
  for (const HttpRoute& route : server_->router().routes()) {
    EXPECT_TRUE(document["paths"].contains(route.pattern)) << route.pattern;
  }
}

TEST_F(Api, ParametersAreDescribedAsTheyAreTaken) {
  const json paths = get("/v1/openapi.json")["paths"];
  const auto parameter = [&](const char* path, const char* method, const std::string& name) {
    for (const json& each : paths[path][method]["parameters"]) {
      if (each["name"] == name) return each;
    }
    return json();
  };
  EXPECT_EQ(parameter("/v1/submissions", "post", "Idempotency-Key").value("in", ""), "header");
  EXPECT_EQ(parameter("/v1/events", "get", "Last-Event-ID").value("in", ""), "header");
  const json id = parameter("/v1/submissions/{id}", "get", "id");
  EXPECT_EQ(id["schema"]["type"], "integer");
  EXPECT_EQ(id["required"], true);
  EXPECT_EQ(parameter("/v1/agents/{name}/token", "post", "name")["schema"]["type"], "string");
  const json draft = paths["/v1/submissions"]["post"]["requestBody"]["content"]["application/json"]["schema"];
  const json settings = draft["properties"]["settings"];
  EXPECT_EQ(settings["additionalProperties"], false);
  for (const char* name : {"suite", "model", "device", "seconds"}) EXPECT_TRUE(settings["properties"].contains(name)) << name;
  EXPECT_FALSE(settings.contains("required") && !settings["required"].empty());
}

TEST_F(Api, ManyAgentsLoseNothing) {
  judge();
  constexpr int kAgents = 10;
  constexpr int kEach = 12;
  std::vector<std::string> tokens;
  for (int i = 0; i < kAgents; ++i) {
    tokens.push_back(store_->create_agent(fmt::format("agent-{}", i), store::Role::kAgent, 1000).token);
  }
  std::atomic<int> accepted = 0;
  std::vector<std::thread> agents;
  const std::string script = read_flow("streaming").source;
  for (int i = 0; i < kAgents; ++i) {
    agents.emplace_back([&, i] {
      auto sender = client(tokens[static_cast<size_t>(i)]);
      for (int n = 0; n < kEach; ++n) {
        const json draft = {{"name", "s"}, {"script", fmt::format("-- {} {}\n{}", i, n, script)}};
        const auto result = sender.Post("/v1/submissions", draft.dump(), "application/json");
        accepted += result && result->status == 201 ? 1 : 0;
      }
    });
  }
  for (std::thread& agent : agents) agent.join();
  EXPECT_EQ(accepted, kAgents * kEach);
  const auto deadline = std::chrono::steady_clock::now() + 300s;
  size_t passed = 0;
  while (passed < kAgents * kEach && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(100ms);
    passed = get("/v1/submissions?status=passed&limit=200")["submissions"].size();
  }
  EXPECT_EQ(passed, static_cast<size_t>(kAgents * kEach));
}

}  // namespace
}  // namespace sluice
