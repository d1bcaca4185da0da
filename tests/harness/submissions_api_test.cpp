// What can be read of submissions: their documents, attempts, artifacts, relatives and differences.

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/api_fixture.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

class SubmissionsApi : public testing::ApiTest {
 protected:
  static json numbered(int n, const json& more = json::object()) {
    json made = {{"name", fmt::format("flow {}", n)}, {"script", fmt::format("-- {}\nreturn 1\n", n)}};
    made.update(more);
    return made;
  }

  int64_t submitted(const json& draft) { return submit(draft)["id"]; }

  static store::Verdict passed(double accuracy, double speedup) {
    store::Verdict verdict;
    verdict.metrics = {{"score", "", 0, accuracy, {}, {}, ""},
                       {"accuracy", "", 0, accuracy, accuracy - 0.1, accuracy + 0.1, ""},
                       {"accuracy", "salad", 4096, accuracy, {}, {}, ""},
                       {"speedup", "", 0, speedup, {}, {}, "x dense"}};
    verdict.stages = {{"verify", store::StageStatus::kPassed, 0.25, "", "{}"}};
    return verdict;
  }

  json raw(const std::string& path) { return client().Get(path)->body; }
};

TEST_F(SubmissionsApi, AFlowWithOneCommentMoreIsOneVerdictAndOneRow) {
  OrchestratorOptions all = options();
  all.check = [this](const FlowScript& script) {
    const FlowInspection inspection = inspector_.inspect(script);
    return CheckedFlow{inspection.fingerprint, artifacts_of(inspection)};
  };
  orchestrator_.emplace(database_, std::move(all));
  const json settings = {{"settings", {{"suite", "verify"}}}};
  json made = draft("quest", settings);
  const int64_t first = submitted(made);
  made["script"] = "-- once more\n" + made["script"].get<std::string>();
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}?wait=50", first))["status"], "passed");
  const int64_t second = submit(made, 201, other_token_)["id"];
  const json copy = get(fmt::format("/v1/submissions/{}?wait=50", second));
  EXPECT_EQ(copy["status"], "passed");
  EXPECT_EQ(copy["same_as"], first);
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}", first))["same_as"], nullptr);
  EXPECT_NE(copy["evaluation"]["id"], get(fmt::format("/v1/submissions/{}", first))["evaluation"]["id"]);
  const json graph = json::parse(raw(fmt::format("/v1/submissions/{}/artifacts/graph.json", second)).get<std::string>());
  const json graph_of_first = json::parse(raw(fmt::format("/v1/submissions/{}/artifacts/graph.json", first)).get<std::string>());
  EXPECT_EQ(graph["nodes"][0]["line"].get<int>(), graph_of_first["nodes"][0]["line"].get<int>() + 1) << "its own lines";
  const json refusal = post(fmt::format("/v1/submissions/{}/judge", second), 409, admin_token_);
  EXPECT_NE(refusal["detail"].get<std::string>().find(fmt::format("submission {}", first)), std::string::npos) << refusal;
  // It may be confirmed by whoever handed it in, which is a confirmation of the first.
  EXPECT_EQ(post(fmt::format("/v1/submissions/{}/confirm", second), 200, other_token_)["same_as"], first);
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}/confirmation?wait=50", first))["state"], "done");
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}/confirmation", second))["state"], "done");
}

TEST_F(SubmissionsApi, ListsTellParentsSettingsAndMetrics) {
  const auto first = submitted(numbered(1));
  decide(passed(0.1 + 0.2, 2));
  const auto second = submitted(numbered(2, {{"parents", {first}}, {"settings", {{"suite", "quick"}, {"seconds", 100}}}}));
  const json page = get("/v1/submissions");
  ASSERT_EQ(page["submissions"].size(), 2U);
  const json& child = page["submissions"][0];
  EXPECT_EQ(child["id"], second);
  EXPECT_EQ(child["parents"], json({first}));
  EXPECT_EQ(child["settings"], json({{"suite", "quick"}})) << "only what lists are filtered by";
  EXPECT_EQ(child["metrics"], json::object());
  const json& parent = page["submissions"][1];
  EXPECT_EQ(parent["metrics"]["accuracy"]["value"], 0.1 + 0.2) << "to the last bit";
  EXPECT_EQ(parent["metrics"]["speedup"], json({{"value", 2.0}, {"low", nullptr}, {"high", nullptr}, {"unit", "x dense"}}));
  EXPECT_EQ(parent["metrics"].size(), 3U) << "not those of single tasks";
  EXPECT_EQ(parent["settings"]["suite"], "verify") << "what it was judged by";
  const json whole = get(fmt::format("/v1/submissions/{}", second));
  EXPECT_EQ(whole["settings"]["seconds"], 100);
  EXPECT_EQ(whole["evaluation"], json(nullptr));
}

TEST_F(SubmissionsApi, SettingsSayWhatTheyAreJudgedBy) {
  const auto id = submitted(numbered(1));
  EXPECT_EQ(submit(numbered(1, {{"settings", {{"suite", "verify"}}}}), 200)["id"], id) << "the same, however it is written";
  submit(numbered(2, {{"settings", {{"suite", "/etc/passwd"}}}}), 422);
  submit(numbered(2, {{"settings", {{"suite", 3}}}}), 422);
  submit(numbered(2, {{"settings", {{"suit", "full"}}}}), 422);
  submit(numbered(2, {{"settings", {{"seconds", "many"}}}}), 400);
  HarnessServiceOptions options;
  options.equipment = {.model = "mini", .model_digest = {}, .device = "cpu"};
  HarnessService service(database_, std::move(options));
  const Identity ada{"ada", Role::kAgent};
  EXPECT_EQ(service.submit(ada, numbered(3))["settings"], json({{"suite", "quick"}, {"model", "mini"}, {"device", "cpu"}}));
  EXPECT_FALSE(service.submit(ada, numbered(3, {{"settings", {{"model", "mini"}}}}))["is_new"]);
  EXPECT_THROW(service.submit(ada, numbered(4, {{"settings", {{"model", "gpt"}}}})), HttpProblem);
  Caller caller("agent ada");
  EXPECT_EQ(service
                .list(filter_of([](const std::string& name) {
                        return name == "model" ? std::optional<std::string>("mini") : std::nullopt;
                      }),
                      "", 10, caller)["submissions"]
                .size(),
            1U);
}

TEST_F(SubmissionsApi, FiltersWorkTogether) {
  submitted(numbered(1, {{"settings", {{"suite", "quick"}}}}));
  submitted(numbered(2, {{"settings", {{"suite", "full"}}}}));
  submit(numbered(3, {{"settings", {{"suite", "full"}}}}), 201, other_token_);
  EXPECT_EQ(get("/v1/submissions?suite=full")["submissions"].size(), 2U);
  EXPECT_EQ(get("/v1/submissions?suite=full&agent=bob")["submissions"].size(), 1U);
  EXPECT_EQ(get("/v1/submissions?suite=full&status=queued&text=FLOW%202")["submissions"].size(), 1U);
  EXPECT_EQ(get("/v1/submissions?text=%25")["submissions"].size(), 0U) << "no pattern";
  EXPECT_EQ(get("/v1/submissions?agent=%27%20OR%201=1--")["submissions"].size(), 0U);
}

TEST_F(SubmissionsApi, NamesAreTextWhateverTheyHold) {
  const std::string name = "<img src=x onerror=alert(1)> \"'; DROP TABLE agents; --";
  const auto id = submitted(numbered(1, {{"name", name}}));
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}", id))["name"], name);
  const auto answer = client().Get(fmt::format("/v1/submissions/{}", id));
  EXPECT_EQ(answer->get_header_value("Content-Type"), "application/json");
  EXPECT_EQ(answer->get_header_value("X-Content-Type-Options"), "nosniff");
  submit(numbered(2, {{"name", "two\nlines"}}), 422);
  submit(numbered(2, {{"name", ""}}), 422);
}

TEST_F(SubmissionsApi, HostileIdsAreRefused) {
  submitted(numbered(1));
  for (const char* id : {"0", "-1", "1.0", "1e0", "0x1", "99999999999999999999", "%31%00", "..", "1;", "+1", "%F0%9F%98%80"}) {
    for (const char* path : {"", "/evaluations", "/diff", "/lineage", "/artifacts/report.json"}) {
      const auto answer = client().Get(fmt::format("/v1/submissions/{}{}", id, path));
      EXPECT_TRUE(answer->status == 400 || answer->status == 404) << id << path << ": " << answer->status;
    }
  }
  for (const char* path : {"", "/evaluations", "/diff", "/lineage", "/artifacts/report.json"}) {
    get(fmt::format("/v1/submissions/7{}", path), 404);
  }
  get("/v1/submissions/1/diff?from=7", 404);
  get("/v1/submissions/1/diff?from=x", 400);
  get("/v1/submissions/1/diff?context=some", 400);
  get("/v1/submissions/1/lineage?of=cousins", 400);
  post("/v1/submissions/7/cancel", 404, token_);
  post("/v1/submissions/7/judge", 404, admin_token_);
}

TEST_F(SubmissionsApi, AttemptsAreAllTold) {
  const auto id = submitted(numbered(1));
  store_->fail(store_->claim("a test", 1000000).value(), "the worker crashed");
  decide(passed(0.5, 2));
  const json evaluations = get(fmt::format("/v1/submissions/{}/evaluations", id))["evaluations"];
  ASSERT_EQ(evaluations.size(), 2U);
  EXPECT_EQ(evaluations[0]["outcome"], "failed");
  EXPECT_EQ(evaluations[0]["message"], "the worker crashed");
  EXPECT_EQ(evaluations[0]["status"], json(nullptr));
  EXPECT_EQ(evaluations[1]["status"], "passed");
  EXPECT_EQ(evaluations[1]["stages"][0]["seconds"], 0.25);
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}", id))["evaluation"], evaluations[1]);
}

TEST_F(SubmissionsApi, AdministratorsHaveItJudgedAgain) {
  const auto id = submitted(numbered(1));
  const std::string path = fmt::format("/v1/submissions/{}/judge", id);
  post(path, 409, admin_token_);
  decide(passed(0.5, 2));
  post(path, 401, "");
  post(path, 403, token_);
  EXPECT_EQ(post(path, 200, admin_token_)["status"], "queued");
  decide(passed(0.75, 2));
  EXPECT_EQ(get("/v1/leaderboard")["entries"][0]["metric"]["value"], 0.75);
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}/evaluations", id))["evaluations"].size(), 2U);
}

TEST_F(SubmissionsApi, NothingIsJudgedAgainByAnotherModel) {
  HarnessServiceOptions options;
  options.equipment = {.model = "mini", .model_digest = "abc", .device = "cpu"};
  HarnessService service(database_, options);
  const int64_t id = service.submit({"ada", Role::kAgent}, numbered(1))["id"];
  decide(passed(0.5, 2));
  const Identity root{"root", Role::kAdmin};
  for (const store::Equipment& other : {store::Equipment{"mini", "def", "cpu"}, store::Equipment{"mini", "abc", "cuda"}}) {
    options.equipment = other;
    HarnessService others(database_, options);
    try {
      others.judge_again(root, id);
      ADD_FAILURE() << other.model_digest << " on " << other.device;
    } catch (const HttpProblem& problem) {
      EXPECT_EQ(problem.status(), 409);
    }
  }
  EXPECT_EQ(service.judge_again(root, id)["status"], "queued");
}

TEST_F(SubmissionsApi, RanksAreSharedByEqualValues) {
  for (const double accuracy : {0.5, 0.9, 0.9, 0.7}) {
    submitted(numbered(static_cast<int>(get("/v1/submissions")["submissions"].size())));
    decide(passed(accuracy, 2));
  }
  std::vector<int> ranks;
  const json entries = get("/v1/leaderboard")["entries"];
  for (const json& entry : entries) ranks.push_back(entry["rank"]);
  EXPECT_EQ(ranks, (std::vector<int>{1, 1, 3, 4}));
  for (size_t skip = 0; skip < ranks.size(); ++skip) {
    EXPECT_EQ(get(fmt::format("/v1/leaderboard?skip={}", skip))["entries"][0]["rank"], ranks[skip]) << skip;
  }
  EXPECT_EQ(get("/v1/leaderboard?order=ascending&skip=3")["entries"][0]["rank"], 3);
  EXPECT_EQ(entries[0]["submission"]["metrics"]["speedup"]["value"], 2);
  const json points = get("/v1/history")["points"];
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[3]["best"], 0.9);
  EXPECT_EQ(points[3]["agent"], "ada");
  EXPECT_EQ(get("/v1/front")["points"][0]["submission"]["metrics"]["accuracy"]["value"], 0.9);
}

TEST_F(SubmissionsApi, ArtifactsAreServedSoThatNoBrowserRunsThem) {
  const auto id = submitted(numbered(1));
  store::Verdict verdict = passed(0.5, 2);
  const std::string page = "<html><script>alert(1)</script>";
  verdict.artifacts = {{"report.json", "application/json", R"({"a":1})", 0},
                       {"page", "text/html", page, 0},
                       {"image.svg", "image/svg+xml", "<svg onload=alert(1)>", 0},
                       {"long.json", "application/json", std::string(store::Limits::kArtifactBytes + 1, ' '), 0}};
  decide(verdict);
  const auto fetched = [&](const std::string& name) {
    return client().Get(fmt::format("/v1/submissions/{}/artifacts/{}", id, name));
  };
  const auto report = fetched("report.json");
  EXPECT_EQ(report->body, R"({"a":1})");
  EXPECT_EQ(report->get_header_value("Content-Type"), "application/json");
  for (const char* name : {"page", "image.svg", "long.json"}) {
    const auto artifact = fetched(name);
    EXPECT_EQ(artifact->status, 200);
    EXPECT_EQ(artifact->get_header_value("Content-Type"), "text/plain; charset=utf-8") << name;
    EXPECT_EQ(artifact->get_header_value("X-Content-Type-Options"), "nosniff");
    EXPECT_NE(artifact->get_header_value("Content-Security-Policy").find("sandbox"), std::string::npos);
  }
  EXPECT_EQ(fetched("page")->body, page);
  EXPECT_EQ(fetched("other")->status, 404);
  EXPECT_EQ(fetched("..%2f..%2fseed")->status, 404);
  const json listed = get(fmt::format("/v1/submissions/{}", id))["evaluation"]["artifacts"];
  EXPECT_EQ(listed[0], json({{"name", "image.svg"}, {"media_type", "image/svg+xml"}, {"size", 21}}));
}

TEST_F(SubmissionsApi, LineageKnowsItsWays) {
  const auto root = submitted(numbered(1));
  const auto child = submitted(numbered(2, {{"parents", {root}}}));
  const auto other = submitted(numbered(3));
  const auto last = submitted(numbered(4, {{"parents", {child, other}}}));
  const auto ids = [&](const std::string& of) {
    std::vector<int64_t> found;
    const json nodes = get(fmt::format("/v1/submissions/{}/lineage{}", child, of))["nodes"];
    for (const json& node : nodes) found.push_back(node["id"]);
    return found;
  };
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(ids("?of=ancestors"), Ids{root});
  EXPECT_EQ(ids("?of=descendants"), Ids{last});
  EXPECT_EQ(ids(""), (Ids{root, child, other, last}));
  const std::string path = fmt::format("/v1/submissions/{}/lineage?limit=3", child);
  const json first = get(path);
  EXPECT_EQ(first["total"], 4);
  EXPECT_EQ(first["nodes"].size(), 3U);
  const json rest = get(path + "&cursor=" + first["next"].get<std::string>());
  EXPECT_EQ(rest["total"], 4);
  EXPECT_EQ(rest["nodes"].size(), 1U);
  EXPECT_EQ(rest["next"], "");
  get(path + "&cursor=x", 400);
}

TEST_F(SubmissionsApi, ComparisonsTellHowManyThereAre) {
  for (int i = 1; i <= 3; ++i) {
    submitted(numbered(i));
    decide(passed(0.1 * i, 1));
  }
  const json board = get("/v1/leaderboard?limit=1&skip=1");
  EXPECT_EQ(board["total"], 3);
  EXPECT_EQ(board["entries"].size(), 1U);
  EXPECT_EQ(board["entries"][0]["rank"], 2);
  EXPECT_EQ(get("/v1/history?limit=2")["total"], 3);
}

TEST_F(SubmissionsApi, WaitingEndsWithTheVerdict) {
  const auto id = submitted(numbered(1));
  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}?wait=1", id))["status"], "queued");
  EXPECT_GE(std::chrono::steady_clock::now() - started, 1s);
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    decide(passed(0.5, 2));
  });
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}?wait=60", id))["status"], "passed");
  EXPECT_LT(std::chrono::steady_clock::now() - started, 20s);
  later.join();
  get("/v1/submissions/7?wait=1", 404);
}

TEST_F(SubmissionsApi, WaitingEndsWhenNobodyWaits) {
  const auto id = submitted(numbered(1));
  std::atomic<bool> wanted = true;
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    wanted = false;
  });
  const auto started = std::chrono::steady_clock::now();
  Caller caller("agent ada");
  EXPECT_EQ(service_->wait(
                id, 60s, [&] { return wanted.load(); }, caller)["status"],
            "queued");
  EXPECT_LT(std::chrono::steady_clock::now() - started, 20s);
  later.join();
}

/// A number of /proc/self/status, in bytes.
int64_t memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) << 10;
  }
  return 0;
}

TEST_F(SubmissionsApi, ManyLargeDifferencesTakeTurnsAndGiveTheirMemoryBack) {
  if (test::kIsSanitized) GTEST_SKIP() << "its memory says nothing";
  constexpr int64_t kMiB = 1 << 20;
  constexpr int kLines = 32'000;
  std::array<std::string, 2> scripts;
  for (int i = 0; i < kLines; ++i) {
    scripts[0] += i * i % 2 == 0 ? "a\n" : "b\n";
    scripts[1] += i * i / 3 % 2 == 0 ? "b\n" : "a\n";
  }
  const auto first = submitted({{"name", "first"}, {"script", scripts[0]}});
  const auto second = submitted({{"name", "second"}, {"script", scripts[1]}});
  const int64_t peak = memory("VmHWM");
  const int64_t before = memory("RssAnon");
  std::atomic<int> answered = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 100; ++i) {
    readers.emplace_back([&] {
      const auto path = fmt::format("/v1/submissions/{}/diff?from={}&context=all", second, first);
      const auto answer = client().Get(path, [](const char*, size_t) { return true; });
      if (!answer) return;
      answered += answer->status == 200 || (answer->status == 503 && answer->has_header("Retry-After")) ? 1 : 0;
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(answered, 100);
  EXPECT_LT(memory("VmHWM") - peak, 400 * kMiB);
  const auto kept = [&] { return memory("RssAnon") - before; };
  for (int tries = 0; kept() >= 100 * kMiB && tries < 100; ++tries) std::this_thread::sleep_for(20ms);
  EXPECT_LT(kept(), 100 * kMiB);
}

TEST_F(SubmissionsApi, WhatQuestionsGaveIsSecretAndPairsThem) {
  const auto credits = [](const json& flow) {
    const json task = {{"name", "salad"}, {"stage", "long"}, {"tokens", 4096},
                       {"accuracy", 0.5}, {"credits", flow}, {"dense_credits", {{1, 1}, {1, 1}}}};
    return json{{"schema", "sluice.credits/1"}, {"tasks", {task}}}.dump();
  };
  const auto judged = [&](int number, const std::string& bytes) {
    const auto id = submitted(numbered(number));
    store::Verdict verdict = passed(0.5, 2);
    verdict.artifacts = {{"report.json", "application/json", R"({"a":1})", 0}, {"credits.json", "application/json", bytes, 0}};
    decide(verdict);
    return id;
  };
  const auto first = judged(1, credits({{1, 0}, {1, 0}}));
  const auto second = judged(2, credits({{1, 1}, {1, 1}}));
  const auto without = submitted(numbered(3));
  decide(passed(0.5, 2));
  const json listed = get(fmt::format("/v1/submissions/{}", first))["evaluation"]["artifacts"];
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["name"], "report.json");
  get(fmt::format("/v1/submissions/{}/artifacts/credits.json", first), 404);
  EXPECT_EQ(get(fmt::format("/v1/submissions/{}/evaluations", first)).dump().find("credits"), std::string::npos);
  const json paired = get(fmt::format("/v1/submissions/{}/diff?from={}", second, first))["paired"];
  EXPECT_EQ(paired["tasks"], 1);
  EXPECT_NEAR(paired["difference"].get<double>(), 0.5, 1e-12);
  EXPECT_NEAR(paired["p_value"].get<double>(), 0.5, 1e-12);
  EXPECT_LT(paired["low"], paired["difference"]);
  EXPECT_TRUE(get(fmt::format("/v1/submissions/{}/diff?from={}", without, first))["paired"].is_null());
  EXPECT_TRUE(get(fmt::format("/v1/submissions/{}/diff", first))["paired"].is_null());
}

TEST_F(SubmissionsApi, ADifferenceHasLinesSettingsAndMetrics) {
  const auto old =
      submitted({{"name", "a"}, {"script", "one\ntwo\nthree\n"}, {"settings", {{"suite", "quick"}, {"seconds", 1}}}});
  decide(passed(0.5, 2));
  const auto young =
      submitted({{"name", "b"}, {"script", "one\n2\nthree\nfour"}, {"parents", {old}}, {"settings", {{"suite", "full"}}}});
  const json diff = get(fmt::format("/v1/submissions/{}/diff", young));
  EXPECT_EQ(diff["from"]["id"], old);
  EXPECT_EQ(diff["to"]["id"], young);
  ASSERT_EQ(diff["hunks"].size(), 1U);
  const json line = {{"kind", "removed"}, {"old", 2}, {"new", nullptr}, {"text", "two"}};
  EXPECT_EQ(diff["hunks"][0]["lines"][1], line);
  EXPECT_EQ(diff["hunks"][0]["lines"].size(), 5U);
  EXPECT_EQ(diff["settings"],
            json({{{"key", "seconds"}, {"from", 1}, {"to", nullptr}}, {{"key", "suite"}, {"from", "quick"}, {"to", "full"}}}));
  EXPECT_EQ(diff["metrics"][0], json({{"name", "accuracy"}, {"from", 0.5}, {"to", nullptr}}));
  EXPECT_EQ(diff["metrics"][1]["task"], "salad");
  const json first = get(fmt::format("/v1/submissions/{}/diff", old));
  EXPECT_EQ(first["from"], json(nullptr)) << "it has no parents";
  EXPECT_EQ(first["hunks"][0]["lines"].size(), 3U);
  const json backwards = get(fmt::format("/v1/submissions/{}/diff?from={}&context=all", old, young));
  EXPECT_EQ(backwards["from"]["id"], young);
  EXPECT_TRUE(get(fmt::format("/v1/submissions/{}/diff?from={}", old, old))["hunks"].empty());
}

}  // namespace
}  // namespace sluice
