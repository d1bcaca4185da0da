// What an engine generates depends on the request alone: not on what runs beside it, how prompts are cut, whether pages were
// shared, taken away or imported.
#include "host/serving/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "kernels/device/pass_batch.h"
#include "scripting/base/error.h"
#include "scripting/lua/trace.h"
#include "tests/host/serving/tiny_engine.h"
#include "tests/support/greedy_tokens.h"

namespace sluice {
namespace {

using testing::kQuest;
using testing::kStateful;
using testing::TemporaryDirectory;
using testing::TinyModel;

class EngineTest : public testing::TinyEngineTest {
 protected:
  // Lengths around page and chunk borders, greedy and sampled.
  std::vector<Request> workload() const {
    std::vector<Request> requests;
    for (const int prompt : {1, 7, 8, 9, 63, 64, 65, 130}) {
      requests.push_back(request(prompt, 20, static_cast<int>(requests.size())));
      if (requests.size() % 2 == 0) {
        requests.back().sampling.temperature = 1;
        requests.back().sampling.seed = requests.size();
      }
    }
    return requests;
  }

  // Tokens by order of submission.
  std::vector<std::vector<int32_t>> run(const Plan* plan, const EngineOptions& engine_options,
                                        const std::vector<Request>& requests, EngineStats* stats = nullptr) {
    Engine engine(*device_, *model_, plan, engine_options);
    for (const Request& each : requests) engine.submit(each);
    std::vector<std::vector<int32_t>> tokens(requests.size());
    for (RequestResult& result : engine.run_all()) tokens[result.id - 1] = std::move(result.tokens);
    if (stats != nullptr) *stats = engine.stats();
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total) << "pages leaked";
    return tokens;
  }

  std::vector<std::vector<int32_t>> run_alone(const Plan* plan, const std::vector<Request>& requests) {
    std::vector<std::vector<int32_t>> tokens;
    EngineOptions one_by_one = options();
    one_by_one.run_ahead = false;
    for (const Request& each : requests) tokens.push_back(run(plan, one_by_one, {each})[0]);
    return tokens;
  }

  std::string message_of_submit(Engine& engine, Request bad) {
    try {
      engine.submit(std::move(bad));
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(EngineTest, GreedyRowsAloneGetWhatLogitsSay) { testing::expect_greedy_tokens(*device_, *model_); }

TEST_F(EngineTest, TokensDoNotDependOnTheBatch) {
  EXPECT_EQ(run(nullptr, options(), workload()), run_alone(nullptr, workload()));
}

TEST_F(EngineTest, TokensOfAFlowDoNotDependOnTheBatch) {
  for (const char* source : {kQuest, kStateful}) {
    const Plan plan = plan_of(source);
    EXPECT_EQ(run(&plan, options(), workload()), run_alone(&plan, workload())) << plan.graph.name;
  }
}

TEST_F(EngineTest, TokensDoNotDependOnTheChunkSize) {
  const Plan plan = plan_of(kQuest);
  for (const Plan* flow : {static_cast<const Plan*>(nullptr), &plan}) {
    const auto expected = run(flow, options(), workload());
    for (const int chunk : {8, 13, 200}) {
      EngineOptions changed = options();
      changed.max_pass_tokens = chunk;
      EXPECT_EQ(run(flow, changed, workload()), expected) << "chunks of " << chunk;
    }
  }
}

TEST_F(EngineTest, TokensDoNotDependOnThePageSize) {
  const auto expected = run(nullptr, options(), workload());
  for (const int page : {16, 32, 128}) {
    EngineOptions changed = options();
    changed.page = page;
    EXPECT_EQ(run(nullptr, changed, workload()), expected) << "pages of " << page;
  }
}

TEST_F(EngineTest, PreemptionDoesNotChangeTokens) {
  const Plan quest = plan_of(kQuest);
  const Plan stateful = plan_of(kStateful);
  for (const Plan* flow : {static_cast<const Plan*>(nullptr), &quest, &stateful}) {
    for (const bool prefix_cache : {true, false}) {
      std::vector<Request> requests;
      for (int i = 0; i < 6; ++i) requests.push_back(request(20 + i, 60, i));
      EngineOptions tight = options(24);  // each needs 10 or 11 pages in the end
      tight.prefix_cache = prefix_cache;
      EngineStats stats;
      EXPECT_EQ(run(flow, tight, requests, &stats), run_alone(flow, requests));
      EXPECT_GT(stats.preemptions, 0U);
    }
  }
}

TEST_F(EngineTest, PrefixCacheDoesNotChangeTokens) {
  const Plan plan = plan_of(kQuest);
  for (const Plan* flow : {static_cast<const Plan*>(nullptr), &plan}) {
    std::vector<Request> requests;
    for (int i = 0; i < 5; ++i) {
      requests.push_back(request(80, 12));
      requests.back().prompt.push_back(i);
    }
    Engine engine(*device_, *model_, flow, options());
    for (size_t i = 0; i < requests.size(); ++i) {
      engine.submit(requests[i]);
      const RequestResult result = engine.run_all().at(0);
      EXPECT_EQ(result.cached_tokens, i == 0 ? 0 : 80);
      EXPECT_EQ(result.tokens, run_alone(flow, {requests[i]})[0]);
    }
    EXPECT_EQ(engine.stats().prefix_hits, 4U * 80);
  }
}

TEST_F(EngineTest, AKnownPrefixCanBeCopied) {
  const Plan quest = plan_of(kQuest);
  for (const Plan* flow : {static_cast<const Plan*>(nullptr), &quest}) {
    Engine engine(*device_, *model_, flow, options());
    std::vector<Request> requests(4, request(81, 12));
    const std::vector<int32_t> wanted = run_alone(flow, {requests[0]})[0];
    for (Request& each : requests) {
      engine.submit(each);
      engine.step();  // the first one computes the prompt
      each.copy_prefix = true;
    }
    for (const Request& each : requests) engine.submit(each);
    int most_used = 0;
    while (engine.step()) most_used = std::max(most_used, engine.stats().pages_total - engine.stats().pages_free);
    EXPECT_GE(most_used, 4 * 10);  // each of the copies has pages of its own
    for (const RequestResult& result : engine.take_finished()) EXPECT_EQ(result.tokens, wanted) << result.id;
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total);
  }
}

TEST_F(EngineTest, GeneratedPagesAreFoundAgainWithoutAFlow) {
  Engine engine(*device_, *model_, nullptr, options());
  engine.submit(request(30, 34));
  const RequestResult first = engine.run_all().at(0);
  Request next = request(30, 8);
  next.prompt.insert(next.prompt.end(), first.tokens.begin(), first.tokens.end());
  engine.submit(next);
  const RequestResult second = engine.run_all().at(0);
  EXPECT_EQ(second.cached_tokens, 56);  // 63 tokens have K and V: seven full pages
  EXPECT_EQ(second.tokens, run_alone(nullptr, {next})[0]);
}

TEST_F(EngineTest, ImportedSnapshotEqualsOwnPrefill) {
  const Plan plan = plan_of(kQuest);
  for (const int prompt : {1, 2, 8, 9, 77}) {
    Engine source(*device_, *model_, nullptr, options());
    Request wanted = request(prompt, 1);
    wanted.want_snapshot = true;
    source.submit(wanted);
    const auto snapshot = source.run_all().at(0).snapshot;
    ASSERT_NE(snapshot, nullptr);
    EXPECT_EQ(snapshot->tokens.size(), static_cast<size_t>(prompt - 1));
    // For the same prompt, a longer one, and one that is a prefix of what was computed.
    for (const int length : {prompt, prompt + 11, std::max(1, prompt - 3)}) {
      for (const Plan* flow : {static_cast<const Plan*>(nullptr), &plan}) {
        const Request own = request(length, 16);
        Request imported = own;
        imported.snapshot = snapshot;
        EngineStats stats;
        EXPECT_EQ(run(flow, options(), {imported, imported}, &stats), run(flow, options(), {own, own}));
        EXPECT_LE(stats.prefill_tokens, static_cast<uint64_t>(2 * std::max(0, length - prompt) + 2 * 7));
      }
    }
  }
}

TEST_F(EngineTest, SampledTokensRepeatAndDependOnTheSeed) {
  Request sampled = request(20, 30);
  sampled.sampling.temperature = 1;
  sampled.sampling.seed = 5;
  const auto first = run_alone(nullptr, {sampled});
  EXPECT_EQ(run_alone(nullptr, {sampled}), first);
  sampled.sampling.seed = 6;
  EXPECT_NE(run_alone(nullptr, {sampled}), first);
}

TEST_F(EngineTest, HigherPriorityEndsFirst) {
  EngineOptions narrow = options();
  narrow.max_batch = 1;
  Engine engine(*device_, *model_, nullptr, narrow);
  const uint64_t low = engine.submit(request(10, 20));
  engine.step();
  Request urgent = request(10, 5);
  urgent.priority = 1;
  const uint64_t high = engine.submit(urgent);
  const auto results = engine.run_all();
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].id, high);
  EXPECT_EQ(results[1].id, low);
  EXPECT_EQ(results[1].preemptions, 1);
}

TEST_F(EngineTest, StopTokenEndsGenerationAndIsPartOfIt) {
  const std::vector<int32_t> all = run_alone(nullptr, {request(12, 20)})[0];
  Request stopping = request(12, 20);
  stopping.stop_tokens = {all[3]};
  Engine engine(*device_, *model_, nullptr, options());
  engine.submit(stopping);
  const RequestResult result = engine.run_all().at(0);
  EXPECT_EQ(result.reason, FinishReason::kStop);
  const auto end = std::find(all.begin(), all.end(), all[3]) + 1;
  EXPECT_EQ(result.tokens, std::vector<int32_t>(all.begin(), end));
}

TEST_F(EngineTest, CancelEndsWaitingAndRunningRequests) {
  EngineOptions narrow = options();
  narrow.max_batch = 1;
  Engine engine(*device_, *model_, nullptr, narrow);
  const uint64_t running = engine.submit(request(10, 50));
  const uint64_t waiting = engine.submit(request(10, 50, 1));
  const uint64_t last = engine.submit(request(10, 3, 2));
  for (int i = 0; i < 4; ++i) engine.step();
  engine.cancel(waiting);
  engine.on_token([&](uint64_t id, const GeneratedToken&) {
    if (id == running) engine.cancel(running);  // within a pass
  });
  std::map<uint64_t, FinishReason> reasons;
  for (const RequestResult& result : engine.run_all()) reasons[result.id] = result.reason;
  EXPECT_EQ(reasons,
            (std::map<uint64_t, FinishReason>{
                {running, FinishReason::kCancelled}, {waiting, FinishReason::kCancelled}, {last, FinishReason::kLength}}));
  EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total);
}

// A pass that begins before the tokens of the last are known embeds them all the same, and what stops meanwhile leaves no trace.
TEST_F(EngineTest, RunningAheadDoesNotChangeTokens) {
  const Plan quest = plan_of(kQuest);
  const Plan stateful = plan_of(kStateful);
  for (const Plan* flow : {static_cast<const Plan*>(nullptr), &quest, &stateful}) {
    std::vector<Request> requests = workload();
    for (int i = 0; i < 6; ++i) requests.push_back(request(9 + i, 5 + 7 * i, 3 + i));
    const auto all = run_alone(flow, requests);
    for (size_t i = 0; i < requests.size(); i += 3) requests[i].stop_tokens = {all[i][i % all[i].size()]};
    requests[4].want_logits = true;
    requests[7].probe_every = 1;
    const auto wanted = run_alone(flow, requests);
    for (const int batch : {1, 3, 8}) {
      for (const int pages : {30, 256}) {
        EngineOptions changed = options(pages);
        changed.max_batch = batch;
        EngineStats stats;
        EXPECT_EQ(run(flow, changed, requests, &stats), wanted) << batch << " at a time, " << pages << " pages";
        EXPECT_EQ(stats.running, 0);
      }
    }
  }
}

TEST_F(EngineTest, ThePassAfterTheOneThatIsAwaitedRunsAhead) {
  const Plan quest = plan_of(kQuest);
  const auto pages_read = [&](bool ahead, int stop_at) {
    EngineOptions changed = options();
    changed.run_ahead = ahead;
    Request one = request(40, 20);
    if (stop_at >= 0) one.stop_tokens = {run_alone(&quest, {one})[0][static_cast<size_t>(stop_at)]};
    EngineStats stats;
    run(&quest, changed, {one}, &stats);
    return stats.pages_available;
  };
  EXPECT_EQ(pages_read(true, -1), pages_read(false, -1));  // a request that is to end at its length is not computed further
  EXPECT_GT(pages_read(true, 6), pages_read(false, 6));    // one that stops has been

  // Callers see a token a step, in order, and nothing runs once the engine has settled.
  const Request both[] = {request(40, 9), request(12, 14, 1)};
  Engine engine(*device_, *model_, &quest, options());
  std::map<uint64_t, std::vector<int32_t>> tokens;
  engine.on_token([&](uint64_t id, const GeneratedToken& generated) { tokens[id].push_back(generated.token); });
  for (const Request& each : both) engine.submit(each);
  engine.settle();  // nothing runs
  while (tokens[2].size() < 3) engine.step();
  for (size_t seen = tokens[2].size(); seen < 8; ++seen) {
    EXPECT_EQ(tokens[2].size(), seen);
    engine.step();
  }
  engine.settle();
  EXPECT_EQ(tokens[2].size(), 9U);
  engine.settle();
  EXPECT_EQ(tokens[2].size(), 9U);
  engine.run_all();
  EXPECT_EQ(tokens[1], run_alone(&quest, {both[0]})[0]);
  EXPECT_EQ(tokens[2], run_alone(&quest, {both[1]})[0]);
}

TEST_F(EngineTest, WhatRunsAheadCanBeCancelled) {
  const Plan stateful = plan_of(kStateful);
  for (const Plan* flow : {static_cast<const Plan*>(nullptr), &stateful}) {
    Engine engine(*device_, *model_, flow, options());
    const uint64_t first = engine.submit(request(10, 50));
    const uint64_t second = engine.submit(request(11, 30, 1));
    int seen = 0;
    engine.on_token([&](uint64_t id, const GeneratedToken&) {
      seen += id == second ? 1 : 0;
      if (seen == 7 && id == second) engine.submit(request(12, 4, 2));  // waits for the pass that runs ahead
    });
    for (int i = 0; i < 5; ++i) engine.step();
    engine.cancel(first);
    std::map<uint64_t, RequestResult> results;
    for (RequestResult& result : engine.run_all()) results[result.id] = std::move(result);
    EXPECT_EQ(results[first].reason, FinishReason::kCancelled);
    EXPECT_EQ(results[second].tokens, run_alone(flow, {request(11, 30, 1)})[0]);
    EXPECT_EQ(results[3].tokens, run_alone(flow, {request(12, 4, 2)})[0]);
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total);
    // Everybody gone while a pass runs: the next one starts anew.
    const uint64_t last = engine.submit(request(13, 40, 4));
    for (int i = 0; i < 4; ++i) engine.step();
    engine.cancel(last);
    EXPECT_EQ(engine.take_finished().size(), 1U);
    engine.submit(request(12, 4, 2));
    EXPECT_EQ(engine.run_all().at(0).tokens, results[3].tokens);
    engine.submit(request(20, 30));
    for (int i = 0; i < 3; ++i) engine.step();  // and the engine goes while one runs
  }
}

TEST_F(EngineTest, LogitsSurvivePreemption) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(request(20, 40, i));
    requests.back().want_logits = true;
  }
  Engine engine(*device_, *model_, nullptr, options(16));
  for (const Request& each : requests) engine.submit(each);
  for (const RequestResult& result : engine.run_all()) {
    Engine alone(*device_, *model_, nullptr, options());
    alone.submit(requests[result.id - 1]);
    const std::vector<float> expected = alone.run_all().at(0).logits;
    ASSERT_EQ(result.logits.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(result.logits[i], expected[i], 1e-3F);
  }
  EXPECT_GT(engine.stats().preemptions, 0U);
}

TEST_F(EngineTest, ReportsMassOfSparseAndDenseLayers) {
  Plan plan = plan_of(kQuest);
  plan.graph.layers.sparse[0] = false;
  Engine engine(*device_, *model_, &plan, options());
  Request probed = request(120, 6);
  probed.probe_every = 1;
  engine.submit(probed);
  const RequestResult result = engine.run_all().at(0);
  ASSERT_EQ(result.mass.size(), 2U);
  EXPECT_EQ(result.mass[0], 1);
  EXPECT_GT(result.mass[1], 0);
  EXPECT_LT(result.mass[1], 1);
  EXPECT_LT(engine.stats().pages_attended, engine.stats().pages_available);
}

TEST_F(EngineTest, ReportsMassOfEachThirdStepIfThatIsAskedFor) {
  const Plan plan = plan_of(kQuest);
  const auto mass_of = [&](int tokens, int every) {
    Engine engine(*device_, *model_, &plan, options());
    Request probed = request(120, tokens);
    probed.ignore_eos = true;
    probed.probe_every = every;
    engine.submit(probed);
    return engine.run_all().at(0).mass.at(1);
  };
  const auto mass_of_step = [&](int step) {
    return (step + 1) * mass_of(step + 1, 1) - (step > 0 ? step * mass_of(step, 1) : 0);
  };
  EXPECT_NEAR(mass_of(8, 3), (mass_of_step(0) + mass_of_step(3) + mass_of_step(6)) / 3, 1e-6);
  EXPECT_GT(std::abs(mass_of(8, 3) - mass_of(8, 1)), 1e-6) << "steps are not all alike";
}

TEST_F(EngineTest, RefusesWhatCanNeverRun) {
  Engine engine(*device_, *model_, nullptr, options(10));
  EXPECT_NE(message_of_submit(engine, request(0, 4)).find("prompt is empty"), std::string::npos);
  EXPECT_NE(message_of_submit(engine, request(78, 4)).find("exceed the page pool, which holds 80 tokens"), std::string::npos);
  EXPECT_EQ(message_of_submit(engine, request(77, 4)), "accepted");
  EXPECT_NE(message_of_submit(engine, request(5000, 4)).find("model's 4096 positions"), std::string::npos);
  Request bad = request(4, 4);
  bad.prompt[2] = tiny_.vocabulary;
  EXPECT_NE(message_of_submit(engine, bad).find("token 160 is outside"), std::string::npos);
  EXPECT_NE(message_of_submit(engine, request(4, 0)).find("0 tokens to generate"), std::string::npos);
  bad = request(4, 4);
  bad.sampling.top_p = 0;
  EXPECT_NE(message_of_submit(engine, bad).find("top_p"), std::string::npos);
  bad = request(4, 4);
  auto snapshot = std::make_shared<KvSnapshot>();
  snapshot->tokens = {bad.prompt[0]};
  bad.snapshot = snapshot;
  EXPECT_NE(message_of_submit(engine, bad).find("snapshot of 1 tokens"), std::string::npos);
  EXPECT_EQ(engine.run_all().size(), 1U);
}

TEST_F(EngineTest, RefusesStatesThatWouldFillTheMemory) {
  // 12288 numbers a page, layer and KV head: 96 MiB for 512 pages in two layers and two KV heads.
  const Plan plan = plan_of(R"(
    local flow = sluice.flow { name = "hoarder", page = 8, kv = "f32" }
    function flow.index(q, c)
      local score = sluice.position()
      for i = 1, 3 do
        local state = sluice.load("s" .. i, { axes = { "page", { "sub", 4096 } }, init = i })
        sluice.save("s" .. i, state)
        score = score + state:max("sub")
      end
      return sluice.topk(score, { k = 1 })
    end
    return flow)");
  for (const int batch : {8, 16}) {
    EngineOptions wanted = options(512);
    wanted.max_batch = batch;
    Engine engine(*device_, *model_, &plan, wanted);
    EXPECT_EQ(message_of_submit(engine, request(2000, 4)), "accepted");
    const std::string message = message_of_submit(engine, request(4000, 4));
    EXPECT_EQ(message.find("the states of flow \"hoarder\" take 93 MiB for a request of 4003 tokens"),
              batch == 8 ? std::string::npos : 0U)
        << message;
  }
}

TEST_F(EngineTest, RefusesFlowOfAnotherGeometry) {
  TraceOptions other;
  other.head_dim = 2 * tiny_.head_dim;
  other.group = 2;
  const Plan plan = compile(trace(kQuest, "flow.lua", other)).plan;
  EXPECT_THROW(Engine(*device_, *model_, &plan, options()), InputError);
}

}  // namespace
}  // namespace sluice
