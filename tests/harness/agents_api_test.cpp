#include "tests/harness/api_fixture.h"

namespace sluice {
namespace {

using nlohmann::json;

class AgentsApi : public testing::ApiTest {};

TEST_F(AgentsApi, TellsHowAgentsFareAndNoSecrets) {
  submit(draft("quest"));
  submit(draft("h2o"));
  submit(draft("random"), 201, other_token_);
  store::Verdict verdict;
  verdict.metrics = {{"score", "", 0, 0.5, {}, {}, ""}};
  decide(verdict);
  verdict.metrics[0].value = 0.75;
  decide(verdict);
  verdict.status = store::Status::kBelowThreshold;
  verdict.metrics[0].value = 1;
  decide(verdict);
  const json agents = get("/v1/agents")["agents"];
  ASSERT_EQ(agents.size(), 3U);
  EXPECT_EQ(agents[0]["name"], "ada");
  EXPECT_EQ(agents[0]["submissions"], 2);
  EXPECT_EQ(agents[0]["passed"].get<int>() + agents[1]["passed"].get<int>(), 2);
  EXPECT_EQ(agents[2]["role"], "admin");
  EXPECT_EQ(agents[2]["best_score"], json(nullptr));
  EXPECT_EQ(agents.dump().find("token"), std::string::npos);
}

TEST_F(AgentsApi, AdministratorsMakeAgents) {
  const json made = post("/v1/agents", {{"name", "carol"}, {"quota", 1}}, 201, admin_token_);
  const std::string token = made["token"];
  submit(draft("quest"), 201, token);
  submit(draft("h2o"), 429, token);
  EXPECT_EQ(put("/v1/agents/carol/quota", {{"quota", 2}}, 200, admin_token_)["quota"], 2);
  submit(draft("h2o"), 201, token);
  const std::string other = post("/v1/agents/carol/token", 200, admin_token_)["token"];
  get("/v1/me", 401, token);
  EXPECT_EQ(get("/v1/me", 200, other)["agent"], "carol");
  EXPECT_EQ(post("/v1/agents", {{"name", "dan"}, {"role", "admin"}}, 201, admin_token_)["role"], "admin");
}

TEST_F(AgentsApi, NobodyElseDoes) {
  for (const std::string& token : {std::string(), token_}) {
    const int status = token.empty() ? 401 : 403;
    post("/v1/agents", {{"name", "eve"}}, status, token);
    post("/v1/agents/bob/token", status, token);
    put("/v1/agents/ada/quota", {{"quota", 1000000}}, status, token);
  }
  EXPECT_EQ(get("/v1/me", 200, other_token_)["agent"], "bob") << "the token is what it was";
  EXPECT_THROW(service_->create_agent({"ada", Role::kAgent}, {{"name", "eve"}}), HttpProblem);
  EXPECT_THROW(service_->set_quota({"ada", Role::kAgent}, "ada", {{"quota", 5}}), HttpProblem);
  EXPECT_THROW(service_->replace_token({"ada", Role::kAgent}, "bob"), HttpProblem);
}

TEST_F(AgentsApi, WrongNamesAndNumbersAreRefused) {
  post("/v1/agents", {{"name", "ada"}}, 409, admin_token_);
  for (const char* name : {"", "A", "-x", "../x", "<img>", "a b", "\xc3\xa9", "an-agent-whose-name-is-longer-than-git-likes"}) {
    post("/v1/agents", {{"name", name}}, 422, admin_token_);
  }
  post("/v1/agents", {{"name", "x"}, {"role", "king"}}, 400, admin_token_);
  post("/v1/agents", {{"name", "x"}, {"quota", -1}}, 400, admin_token_);
  post("/v1/agents", {{"name", "x"}, {"token", "mine"}}, 422, admin_token_);
  put("/v1/agents/nobody/quota", {{"quota", 1}}, 404, admin_token_);
  put("/v1/agents/bob/quota", {{"quota", 1.5}}, 400, admin_token_);
  put("/v1/agents/bob/quota", json::object(), 400, admin_token_);
  post("/v1/agents/%2e%2e%2fada/token", 404, admin_token_);
}

TEST_F(AgentsApi, MeTellsWhoAndHowMuchIsLeft) {
  const json me = get("/v1/me", 200, admin_token_);
  EXPECT_EQ(me["role"], "admin");
  get("/v1/me", 401);
}

}  // namespace
}  // namespace sluice
