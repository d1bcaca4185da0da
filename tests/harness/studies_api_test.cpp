// Studies and trials, as agents make and readers see them.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/harness/api_fixture.h"
#include "tests/support/eventually.h"

namespace sluice {
namespace {

using nlohmann::json;

class StudiesApi : public testing::ApiTest {
 protected:
  static json flow(int n, const json& params = json::object()) {
    return {{"script", fmt::format("-- {}\nreturn 1\n", n)}, {"params", params}};
  }

  static store::Verdict passed(double accuracy) {
    store::Verdict verdict;
    verdict.metrics = {{"score", "", 0, accuracy, {}, {}, ""},
                       {"accuracy", "", 0, accuracy, accuracy - 0.1, accuracy + 0.1, ""},
                       {"accuracy", "salad", 4096, accuracy, {}, {}, ""},
                       {"pages_read", "", 0, 1 - accuracy, {}, {}, ""}};
    return verdict;
  }

  /// A study of ada's.
  int64_t made(const json& more = json::object()) {
    json draft = {{"name", "ratios"}};
    draft.update(more);
    return post("/v1/studies", draft, 201, token_)["id"];
  }

  json add(int64_t study, const json& trials, int status = 201, const httplib::Headers& headers = {}) {
    return post(fmt::format("/v1/studies/{}/trials", study), trials, status, token_, headers)["trials"];
  }

  json tell(int64_t study, int64_t number, const json& told, int status = 200, const std::string& token = {}) {
    return post(fmt::format("/v1/studies/{}/trials/{}/tell", study, number), told, status, token.empty() ? token_ : token);
  }

  std::vector<int64_t> numbers(const std::string& path) {
    std::vector<int64_t> found;
    const json trials = get(path)["trials"];
    for (const json& trial : trials) found.push_back(trial["number"]);
    return found;
  }
};

TEST_F(StudiesApi, AStudyHasSettingsForItsTrials) {
  const json study =
      post("/v1/studies", {{"name", "ratios"}, {"goal", "find the knee"}, {"settings", {{"seconds", 60}}}}, 201, token_);
  EXPECT_TRUE(study["is_new"]);
  EXPECT_EQ(study["agent"], "ada");
  EXPECT_EQ(study["goal"], "find the knee");
  EXPECT_EQ(study["settings"], json({{"suite", "verify"}, {"seconds", 60}})) << "completed as a submission's are";
  EXPECT_EQ(study["state"], "open");
  EXPECT_EQ(study["trials"]["complete"], 0);
  const json trials = add(study["id"], flow(1, {{"ratio", 0.25}}));
  ASSERT_EQ(trials.size(), 1U);
  EXPECT_EQ(trials[0]["number"], 0);
  EXPECT_EQ(trials[0]["state"], "waiting");
  EXPECT_EQ(trials[0]["params"], json({{"ratio", 0.25}}));
  const json submission = get(fmt::format("/v1/submissions/{}", trials[0]["submission"].dump()));
  EXPECT_EQ(submission["settings"], study["settings"]);
  EXPECT_EQ(submission["name"], "ratios") << "since the trial names none";
  EXPECT_EQ(get(fmt::format("/v1/studies/{}", study["id"].dump()))["trials"]["waiting"], 1);
}

TEST_F(StudiesApi, TheSameStudyIsMadeOnce) {
  const json draft = {{"name", "ratios"}, {"settings", {{"suite", "quick"}}}};
  const json first = post("/v1/studies", draft, 201, token_);
  const json again = post("/v1/studies", draft, 200, token_);
  EXPECT_EQ(again["id"], first["id"]);
  EXPECT_FALSE(again["is_new"]);
  post("/v1/studies", {{"name", "ratios"}}, 409, token_);
  EXPECT_NE(post("/v1/studies", draft, 201, other_token_)["id"], first["id"]) << "names are each agent's own";
}

TEST_F(StudiesApi, ReplicatesTakeOneVerdict) {
  const int64_t study = made();
  const json trials = add(study, {flow(1, {{"replicate", 0}}), flow(1, {{"replicate", 1}}), flow(2)});
  ASSERT_EQ(trials.size(), 3U);
  EXPECT_EQ(trials[0]["submission"], trials[1]["submission"]);
  decide(passed(0.75));
  add(study, {{"submission", trials[0]["submission"]}, {"params", {{"replicate", 2}}}});
  EXPECT_EQ(numbers(fmt::format("/v1/studies/{}/trials?state=complete", study)), (std::vector<int64_t>{0, 1, 3}));
  const json trial = get(fmt::format("/v1/studies/{}/trials/3", study));
  EXPECT_EQ(trial["values"]["accuracy"], json({{"value", 0.75}, {"low", 0.75 - 0.1}, {"high", 0.75 + 0.1}, {"unit", ""}}));
  EXPECT_EQ(trial["values"].size(), 3U) << "not those of single tasks";
  EXPECT_FALSE(trial["is_told"]);
  EXPECT_EQ(trial["evaluation"], get(fmt::format("/v1/submissions/{}", trial["submission"].dump()))["evaluation"]["id"]);
  EXPECT_EQ(get("/v1/submissions")["total"], 2);
}

TEST_F(StudiesApi, AVerdictOfARealWorkerEndsATrial) {
  judge();
  const int64_t study = made();
  const json trials = add(study, {{{"script", read_flow("quest").source}}, {{"script", "return nonsense("}}});
  for (const json& trial : trials) get(fmt::format("/v1/submissions/{}?wait=60", trial["submission"].dump()));
  EXPECT_EQ(get(fmt::format("/v1/studies/{}/trials/0", study))["state"], "complete");
  const json rejected = get(fmt::format("/v1/studies/{}/trials/1", study));
  EXPECT_EQ(rejected["state"], "failed");
  EXPECT_EQ(rejected["status"], "rejected_static");
  EXPECT_NE(rejected["message"].get<std::string>().find("lua:1"), std::string::npos) << rejected;
}

TEST_F(StudiesApi, TrialsWithSeedsAreJudgedByThemselves) {
  judge();
  const int64_t study = made();
  const json first = add(study, {{"script", read_flow("quest").source}, {"seed", 7}});
  const std::string submission = fmt::format("/v1/submissions/{}", first[0]["submission"].dump());
  EXPECT_EQ(first[0]["seed"], 7);
  add(study, {{{"submission", first[0]["submission"]}, {"seed", 7}}, {{"submission", first[0]["submission"]}}});
  const std::string path = fmt::format("/v1/studies/{}", study);
  ASSERT_TRUE(testing::eventually([&] { return get(path)["trials"]["complete"] == 3; })) << get(path + "/trials");
  const json own = get(submission);
  EXPECT_EQ(own["status"], "passed");
  EXPECT_EQ(get(submission + "/evaluations")["evaluations"].size(), 1U);
  const json trials = get(path + "/trials")["trials"];
  EXPECT_EQ(trials[2]["seed"], json(nullptr));
  EXPECT_EQ(trials[2]["evaluation"], own["evaluation"]["id"]);
  EXPECT_NE(trials[0]["evaluation"], own["evaluation"]["id"]);
  EXPECT_NE(trials[0]["evaluation"], trials[1]["evaluation"]);
  for (const json& trial : trials) EXPECT_EQ(trial["status"], "passed") << trial;
}

TEST_F(StudiesApi, WhatIsNoSeedIsRefused) {
  const int64_t study = made();
  for (const json& seed : {json(-1), json(0.5), json("7"), json(18446744073709551615ULL)}) {
    json trial = flow(1);
    trial["seed"] = seed;
    add(study, trial, 400);
  }
  EXPECT_EQ(get("/v1/submissions")["total"], 0);
}

TEST_F(StudiesApi, AgentsTellWhatTheyMeasured) {
  const int64_t study = made();
  add(study, {flow(1), flow(1), flow(1)});
  const json told = tell(study, 0, {{"values", {{"loss", 0.5}, {"steps", 3}}}});
  EXPECT_EQ(told["state"], "complete");
  EXPECT_TRUE(told["is_told"]);
  EXPECT_EQ(told["evaluation"], json(nullptr));
  EXPECT_EQ(told["values"]["loss"], json({{"value", 0.5}, {"low", nullptr}, {"high", nullptr}, {"unit", ""}}));
  EXPECT_EQ(tell(study, 1, {{"state", "pruned"}})["state"], "pruned");
  tell(study, 0, {{"values", {{"loss", 0.25}}}}, 409);
  EXPECT_EQ(tell(study, 0, {{"values", {{"loss", 0.5}, {"steps", 3}}}}), told) << "sent again";
  decide(passed(0.5));
  EXPECT_EQ(get(fmt::format("/v1/studies/{}/trials/0", study)), told) << "the verdict changes nothing";
  tell(study, 2, {{"state", "failed"}}, 409);
  tell(study, 3, {{"state", "failed"}}, 404);
  add(study, flow(2));
  tell(study, 3, json::object(), 422);
  tell(study, 3, {{"state", "failed"}, {"values", {{"loss", 1}}}}, 422);
  tell(study, 3, {{"state", "waiting"}}, 422);
  tell(study, 3, {{"state", "great"}}, 422);
  tell(study, 3, {{"values", {{"loss", "low"}}}}, 422);
  tell(study, 3, {{"values", {{"loss", nullptr}}}}, 422);
  tell(study, 3, {{"values", 3}}, 400);
  tell(study, 3, {{"value", 3}}, 422);
  EXPECT_EQ(tell(study, 3, {{"state", "failed"}})["state"], "failed");
}

TEST_F(StudiesApi, TheBestTrialsComeFirst) {
  const int64_t study = made();
  for (const auto& [n, accuracy] : {std::pair{1, 0.5}, {2, 0.75}, {3, 0.25}}) {
    add(study, flow(n));
    decide(passed(accuracy));
  }
  add(study, flow(4));
  tell(study, 3, {{"values", {{"loss", 1}}}});
  const auto best = [&](const std::string& query) { return numbers(fmt::format("/v1/studies/{}/best{}", study, query)); };
  EXPECT_EQ(best(""), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(best("?metric=accuracy&direction=minimize"), (std::vector<int64_t>{2, 0, 1}));
  EXPECT_EQ(best("?metric=pages_read"), (std::vector<int64_t>{1, 0, 2})) << "of which less is better";
  EXPECT_EQ(best("?limit=1&skip=1"), (std::vector<int64_t>{0}));
  EXPECT_EQ(best("?metric=loss&direction=minimize"), (std::vector<int64_t>{3}));
  EXPECT_EQ(best("?metric=%27%20OR%201=1--"), std::vector<int64_t>());
  EXPECT_EQ(get(fmt::format("/v1/studies/{}/best?limit=1", study))["total"], 3);
  get(fmt::format("/v1/studies/{}/best?direction=up", study), 400);
  get(fmt::format("/v1/studies/{}/best?limit=201", study), 400);
}

TEST_F(StudiesApi, ListsHaveFiltersAndPages) {
  const int64_t first = made({{"name", "1"}});
  const int64_t second = made({{"name", "2"}});
  post("/v1/studies", {{"name", "3"}}, 201, other_token_);
  put(fmt::format("/v1/studies/{}/state", first), {{"state", "closed"}}, 200, token_);
  const json page = get("/v1/studies?agent=ada&limit=1");
  EXPECT_EQ(page["studies"][0]["id"], second);
  EXPECT_EQ(page["total"], 2);
  const json next = get("/v1/studies?agent=ada&limit=1&cursor=" + page["next"].get<std::string>());
  EXPECT_EQ(next["studies"][0]["id"], first);
  EXPECT_EQ(next["next"], "");
  EXPECT_EQ(get("/v1/studies?state=closed")["studies"].size(), 1U);
  add(second, {flow(1), flow(2), flow(1)});
  const json trials = get(fmt::format("/v1/studies/{}/trials?limit=2", second));
  EXPECT_EQ(trials["total"], 3);
  EXPECT_EQ(numbers(fmt::format("/v1/studies/{}/trials?cursor={}", second, trials["next"].get<std::string>())),
            (std::vector<int64_t>{2}));
  EXPECT_EQ(
      numbers(fmt::format("/v1/studies/{}/trials?state=waiting&submission={}", second, trials["trials"][0]["submission"].dump())),
      (std::vector<int64_t>{0, 2}));
  get("/v1/studies?state=lost", 422);
  get("/v1/studies?cursor=x", 422);
  get("/v1/studies?limit=0", 400);
  get("/v1/studies?status=open", 400);
  get(fmt::format("/v1/studies/{}/trials?state=lost", second), 422);
  get(fmt::format("/v1/studies/{}/trials?submission=x", second), 400);
}

TEST_F(StudiesApi, OnlyItsAgentChangesAStudy) {
  const int64_t study = made();
  add(study, {flow(1), flow(2)});
  const std::string path = fmt::format("/v1/studies/{}", study);
  for (const auto& [token, status] : {std::pair{std::string(), 401}, {other_token_, 403}}) {
    post(path + "/trials", flow(3), status, token);
    post(path + "/trials/0/tell", {{"state", "failed"}}, status, token);
    put(path + "/state", {{"state", "closed"}}, status, token);
  }
  post("/v1/studies", {{"name", "x"}}, 401, "");
  EXPECT_EQ(get(path)["trials"]["waiting"], 2);
  EXPECT_EQ(post(path + "/trials", flow(3), 201, admin_token_)["trials"][0]["agent"], "root");
  tell(study, 0, {{"state", "failed"}}, 200, admin_token_);
  put(path + "/state", {{"state", "closed"}}, 200, admin_token_);
  add(study, flow(4), 409);
  put(path + "/state", {{"state", "ajar"}}, 422, token_);
  put(path + "/state", json::object(), 400, token_);
  EXPECT_EQ(put(path + "/state", {{"state", "open"}}, 200, token_)["state"], "open");
  add(study, flow(4));
}

TEST_F(StudiesApi, CountAgainstQuotas) {
  const std::string path =
      fmt::format("/v1/studies/{}/trials", post("/v1/studies", {{"name", "x"}}, 201, other_token_)["id"].dump());
  post(path, {flow(1), flow(2), flow(3), flow(4)}, 422, other_token_);
  EXPECT_EQ(get("/v1/submissions")["total"], 0) << "all or none";
  post(path, {flow(1), flow(2)}, 201, other_token_);
  EXPECT_EQ(get("/v1/me", 200, other_token_)["quota"]["used"], 2);
  post(path, {flow(1), flow(1)}, 429, other_token_);
  post(path, flow(1), 201, other_token_);
  const auto refused = client(other_token_).Post(path, flow(1).dump(), "application/json");
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "3600");
  post("/v1/studies", {{"name", "y"}}, 201, other_token_);
  post("/v1/studies", {{"name", "z"}}, 201, other_token_);
  post("/v1/studies", {{"name", "one too many"}}, 429, other_token_);
}

TEST_F(StudiesApi, ARequestMayBeSentAgain) {
  const int64_t study = made();
  const httplib::Headers key = {{"Idempotency-Key", "batch 1"}};
  const json trials = add(study, {flow(1), flow(1)}, 201, key);
  EXPECT_EQ(add(study, {flow(1), flow(1)}, 200, key), trials);
  add(study, flow(1), 409, key);
  EXPECT_EQ(get(fmt::format("/v1/studies/{}/trials", study))["total"], 2);
}

TEST_F(StudiesApi, AListOfLongScriptsFits) {
  json list = json::array();
  for (int i = 0; i < 20; ++i) {
    list.push_back({{"script", fmt::format("-- {}\n-- \"{}\"\nreturn 1\n", i, std::string(size_t{60} << 10, 'x'))}});
  }
  EXPECT_EQ(add(made(), list).size(), 20U);
}

TEST_F(StudiesApi, EvaluationsOfTrialsCanBeRead) {
  const int64_t study = made();
  const json submission = add(study, flow(1))[0]["submission"];
  const std::string path = fmt::format("/v1/studies/{}/trials", study);
  get(path + "/0/evaluation", 404);
  decide(passed(0.5));
  add(study, {{"submission", submission}, {"seed", 7}});
  store::Verdict verdict = passed(0.75);
  verdict.artifacts = {{"report.json", "application/json", R"({"a":1})"}};
  decide(verdict);
  const json trial = get(path + "/1");
  EXPECT_EQ(trial["hint"], "");
  const json evaluation = get(path + "/1/evaluation");
  EXPECT_EQ(evaluation["id"], trial["evaluation"]);
  EXPECT_EQ(evaluation["status"], "passed");
  EXPECT_EQ(evaluation["artifacts"][0]["name"], "report.json");
  EXPECT_EQ(get(path + "/1/artifacts/report.json"), json({{"a", 1}}));
  get(path + "/1/artifacts/plan.txt", 404);
  get(path + "/2/evaluation", 404);
  get(path + "/2/artifacts/report.json", 404);
  get(fmt::format("/v1/studies/{}/trials/0/evaluation", study + 1), 404);
  EXPECT_EQ(get(path + "/0/evaluation"), get(fmt::format("/v1/submissions/{}", submission.dump()))["evaluation"]);
}

TEST_F(StudiesApi, ATrialThatIsToldItsEndLeavesTheQueue) {
  HarnessServiceOptions options;
  int changes = 0;
  options.changed = [&] { ++changes; };
  HarnessService service(database_, options);
  const Identity ada{"ada", Role::kAgent};
  const store::StudyId study = service.create_study(ada, {{"name", "x"}})["id"];
  json trial = flow(1);
  trial["seed"] = 7;
  service.add_trials(ada, study, trial);
  const int before = changes;
  service.tell(ada, study, 0, {{"state", "pruned"}});
  EXPECT_EQ(changes, before + 1);
  service.tell(ada, study, 0, {{"state", "pruned"}});
  EXPECT_EQ(changes, before + 1) << "it was told that before";
}

TEST_F(StudiesApi, WhatIsNoneIsRefused) {
  for (const json& draft : {json::object(), json({{"name", 3}}), json({{"name", "x"}, {"goal", 3}}), json::array(), json("x")}) {
    post("/v1/studies", draft, 400, token_);
  }
  for (const json& draft : {json({{"name", ""}}), json({{"name", "a\nb"}}), json({{"name", "x"}, {"owner", "bob"}}),
                            json({{"name", "x"}, {"settings", {{"suite", "mine"}}}}), json({{"name", "x"}, {"settings", 3}})}) {
    post("/v1/studies", draft, 422, token_);
  }
  const int64_t study = made();
  for (const json& trials : {json("x"), json({1}), json::object(), json({{"submission", "one"}}), json({{"submission", 0}}),
                             json({{"submission", 1}, {"script", "return 1"}})}) {
    add(study, trials, 400);
  }
  json list = json::array();
  add(study, list, 422);
  for (int i = 0; i < 101; ++i) list.push_back({{"submission", 1}});
  add(study, list, 422);
  json more = flow(1);
  more["settings"] = {{"suite", "full"}};
  add(study, more, 422);
  more = flow(1, {1});
  add(study, more, 422);
  add(study, {{"submission", 99}}, 404);
  submit({{"name", "other settings"}, {"script", "return 1"}, {"settings", {{"suite", "full"}}}});
  add(study, {{"submission", 1}}, 422);
  add(99, flow(1), 404);
}

TEST_F(StudiesApi, HostileNumbersAreRefused) {
  const int64_t study = made();
  add(study, flow(1));
  for (const char* id : {"0", "-1", "1.0", "0x1", "99999999999999999999", "%31%00", "1;", "+1"}) {
    for (const char* path : {"", "/trials", "/best", "/trials/0"}) get(fmt::format("/v1/studies/{}{}", id, path), 400);
    if (std::string(id) != "0") get(fmt::format("/v1/studies/{}/trials/{}", study, id), 400);
  }
  for (const char* path : {"", "/trials", "/best", "/trials/0"}) get(fmt::format("/v1/studies/{}{}", study + 1, path), 404);
  get(fmt::format("/v1/studies/{}/trials/1", study), 404);
}

TEST_F(StudiesApi, FlowsAreForTheServersModelAlone) {
  HarnessServiceOptions options;
  options.equipment = {.model = "mini", .model_digest = "b2:1", .device = "cpu"};
  HarnessService before(database_, options);
  const Identity ada{"ada", Role::kAgent};
  const store::StudyId study = before.create_study(ada, {{"name", "x"}})["id"];
  const json first = before.add_trials(ada, study, flow(1), "key").first;
  const json judged = first["trials"][0]["submission"];
  decide(passed(0.5));
  const auto status_of = [&](HarnessService& service, const json& trial) {
    try {
      service.add_trials(ada, study, trial);
    } catch (const HttpProblem& problem) {
      return problem.status();
    }
    return 201;
  };
  options.equipment.model = "mini (b2:1)";
  HarnessService renamed(database_, options);
  EXPECT_EQ(status_of(renamed, flow(2)), 201) << "the same model by another name";
  options.equipment.model_digest = "b2:2";
  HarnessService after(database_, options);
  EXPECT_EQ(status_of(after, flow(3)), 409);
  EXPECT_EQ(status_of(after, {{"submission", judged}, {"seed", 7}}), 409) << "nobody would judge it";
  EXPECT_EQ(status_of(after, {{"submission", judged}}), 201) << "which has its verdict";
  const auto [again, is_new] = after.add_trials(ada, study, flow(1), "key");
  EXPECT_FALSE(is_new) << "it was added before";
  EXPECT_EQ(again["trials"][0]["number"], first["trials"][0]["number"]);
}

}  // namespace
}  // namespace sluice
