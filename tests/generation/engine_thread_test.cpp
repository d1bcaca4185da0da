#include "agents/generation/engine_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/http/http_problem.h"
#include "scripting/lua/trace.h"
#include "tests/generation/broken_model.h"
#include "tests/generation/engine_tasks.h"
#include "tests/support/eventually.h"
#include "tests/support/source_path.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;
using Kind = GenerationEvent::Kind;

TEST(EngineThread, ATaskThatWaitedForAnEngineGetsItOnceItIsIdle) {
  GenerationMetrics metrics("mini");
  EngineThread engines(one_engine(testing::source_path("host/models/mini").string()), metrics);
  const GenerationTask dense = task("", 8);
  const GenerationTask quest = task("quest", 4);
  engines.submit({dense, quest});
  EXPECT_EQ(end_of(*dense.events), Kind::kFinished);
  EXPECT_EQ(end_of(*quest.events), Kind::kFinished);
}

// It was idle when the line was begun.
TEST(EngineThread, AnEngineThatHasJustGotATaskMakesNoPlace) {
  GenerationMetrics metrics("mini");
  EngineThread engines(one_engine(testing::source_path("host/models/mini").string()), metrics);
  const GenerationTask before = task("quest", 1);
  engines.submit({before});
  EXPECT_EQ(end_of(*before.events), Kind::kFinished);
  const GenerationTask same = task("quest", 4);
  const GenerationTask other = task("streaming", 4);
  engines.submit({same, other});
  EXPECT_EQ(end_of(*same.events), Kind::kFinished);
  EXPECT_EQ(end_of(*other.events), Kind::kFinished);
}

TEST(EngineThread, WhoWaitsForAPlaceDoesNotWaitForAWholeLine) {
  GenerationMetrics metrics("mini");
  GenerationOptions options = one_engine(testing::source_path("host/models/mini").string());
  EngineThread engines(options, metrics);
  std::vector<GenerationTask> many;
  for (int i = 0; i < 200; ++i) {
    many.push_back(task("quest", 8));
    many.back().caller = "ada";
    engines.submit({many.back()});
  }
  GenerationTask other = task("streaming", 1);
  other.caller = "bob";
  engines.submit({other});
  EXPECT_EQ(end_of(*other.events), Kind::kFinished);
  // The last of the others were not even begun.
  EXPECT_FALSE(many.back().events->pop(0ms));
  for (const GenerationTask& each : many) EXPECT_EQ(end_of(*each.events), Kind::kFinished);
}

/// About 4 million operations a page.
constexpr const char* kDear = R"(
  local flow = sluice.flow { name = "dear", page = 8 }
  function flow.index(q, c)
    local x = sluice.fill(1, {"page", {"sub", 65536}}) * sluice.position()
    for i = 1, 60 do x = x * 1.0001 end
    return sluice.topk(x:max("sub"), {k = 1})
  end
  return flow)";

GenerationOptions with_dear_flow() {
  GenerationOptions options = one_engine(testing::source_path("host/models/mini").string());
  options.most_engines = 2;
  options.pool_bytes = size_t{64} << 20;
  options.read_flow = [](const std::string&, const TraceOptions& trace) { return sluice::trace(kDear, "dear.lua", trace); };
  return options;
}

GenerationTask task_of(const std::string& caller, const std::string& flow, int tokens, int prompt) {
  GenerationTask made = task(flow, tokens);
  made.caller = caller;
  made.request.prompt.assign(static_cast<size_t>(prompt), 27);
  return made;
}

/// Flows called "dear..." are, others are shipped ones.
GenerationOptions with_many_flows(int engines) {
  GenerationOptions options = with_dear_flow();
  options.most_engines = engines;
  options.read_flow = [shipped = one_engine("").read_flow](const std::string& name, const TraceOptions& trace) {
    return name.starts_with("dear") ? sluice::trace(kDear, "dear.lua", trace) : shipped(name, trace);
  };
  return options;
}

/// A task that goes on until it is cancelled; it has been accepted.
GenerationTask endless_task(EngineThread& engines, const std::string& caller, const std::string& flow) {
  GenerationTask made = task_of(caller, flow, 8000, 200);
  engines.submit({made});
  EXPECT_TRUE(made.events->pop(30s)) << flow;
  return made;
}

bool has_ended(GenerationQueue& events) {
  while (const auto event = events.pop(0ms)) {
    if (event->kind == Kind::kFinished || event->kind == Kind::kFailed) return true;
  }
  return false;
}

TEST(EngineThread, ATaskWhoseFlowHasAnEngineWaitsForNobodyWithoutOne) {
  GenerationMetrics metrics("mini");
  EngineThread engines(with_many_flows(3), metrics);
  const GenerationTask ada = endless_task(engines, "ada", "dear");
  const GenerationTask bob = endless_task(engines, "bob", "quest");
  const GenerationTask waiting = task_of("carol", "dear too", 2, 4);
  const GenerationTask quick = task_of("carol", "quest", 4, 4);
  engines.submit({waiting});
  engines.submit({quick});
  EXPECT_EQ(end_of(*quick.events), Kind::kFinished);
  EXPECT_FALSE(waiting.events->pop(0ms)) << "the other dear flow has its place";
  EXPECT_FALSE(has_ended(*ada.events));
  EXPECT_FALSE(has_ended(*bob.events));
}

TEST(EngineThread, OneCallersFlowsLeaveAPlaceToAnother) {
  GenerationMetrics metrics("mini");
  EngineThread engines(with_many_flows(4), metrics);
  const GenerationTask first = endless_task(engines, "ada", "dear");
  const GenerationTask second = endless_task(engines, "ada", "quest");
  const GenerationTask third = task_of("ada", "h2o", 8000, 200);
  const GenerationTask bob = task_of("bob", "streaming", 4, 4);
  engines.submit({third});
  engines.submit({bob});
  EXPECT_EQ(end_of(*bob.events), Kind::kFinished);
  EXPECT_FALSE(third.events->pop(0ms));
  EXPECT_FALSE(has_ended(*first.events));
  EXPECT_FALSE(has_ended(*second.events));
}

TEST(EngineThread, AnEngineOfOneWhoHasEnoughIsOpenToOthers) {
  GenerationMetrics metrics("mini");
  EngineThread engines(with_many_flows(4), metrics);
  const GenerationTask first = endless_task(engines, "ada", "quest");
  const GenerationTask second = endless_task(engines, "ada", "block_topk");
  const GenerationTask third = task_of("ada", "h2o", 2, 4);
  engines.submit({third});
  for (const char* flow : {"quest", "block_topk"}) {
    const GenerationTask bob = task_of("bob", flow, 2, 4);
    engines.submit({bob});
    EXPECT_EQ(end_of(*bob.events), Kind::kFinished) << flow;
  }
  EXPECT_FALSE(has_ended(*first.events));
  EXPECT_FALSE(has_ended(*second.events));
}

TEST(EngineThread, TasksOfEnginesThatGiveTheirPlaceAwayAreCounted) {
  GenerationOptions options = with_many_flows(2);
  options.most_requests = 2;
  GenerationMetrics metrics("mini");
  EngineThread engines(options, metrics);
  for (int i = 0; i < 4; ++i) {
    const GenerationTask refused = task_of("ada", "quest", 1'000'000, 4);  // at once, by the engine
    const GenerationTask next = task_of("ada", "streaming", 1, 4);
    std::vector<GenerationTask> both{refused, next};
    ASSERT_TRUE(testing::eventually([&] {
      try {
        engines.submit(both);
        return true;
      } catch (const HttpProblem&) {  // those before have ended, but are counted a moment longer
        return false;
      }
    }));
    EXPECT_EQ(end_of(*refused.events), Kind::kFailed);
    EXPECT_EQ(end_of(*next.events), Kind::kFinished);
  }
}

TEST(EngineThread, DearFlowsLeaveAPlaceToLightOnes) {
  GenerationMetrics metrics("mini");
  EngineThread engines(with_many_flows(3), metrics);
  const GenerationTask first = endless_task(engines, "ada", "dear");
  const GenerationTask second = task_of("bob", "dear too", 8000, 200);
  const GenerationTask light = task_of("carol", "quest", 4, 4);
  engines.submit({second});
  engines.submit({light});
  EXPECT_EQ(end_of(*light.events), Kind::kFinished);
  EXPECT_FALSE(has_ended(*first.events));
}

TEST(EngineThread, WhoKeepsAnEngineBusyGivesItToOneWhoWaits) {
  GenerationMetrics metrics("mini");
  EngineThread engines(with_many_flows(2), metrics);
  const auto submit = [&](const std::string& caller, const std::string& flow) {
    GenerationTask made = task_of(caller, flow, 200, 4);
    engines.submit({made});
    return made;
  };
  GenerationTask one = submit("ada", "quest");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(one.events->pop(30s));  // so that they do not end at the same time
  GenerationTask other = submit("ada", "quest");
  const GenerationTask bob = submit("bob", "streaming");
  bool served = false;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!served && std::chrono::steady_clock::now() < deadline) {  // the engine of quest has always one more
    if (has_ended(*one.events)) one = std::exchange(other, submit("ada", "quest"));
    const auto event = bob.events->pop(5ms);
    served = event && event->kind == Kind::kFinished;
  }
  EXPECT_TRUE(served);
  EXPECT_EQ(end_of(*other.events), Kind::kFinished) << "and gets a place again";
}

TEST(EngineThread, DearTasksOfOneCallerHoldUpNobody) {
  GenerationMetrics metrics("mini");
  EngineThread engines(with_dear_flow(), metrics);
  std::vector<uint64_t> dear;
  std::vector<GenerationTask> kept;
  for (int i = 0; i < 16; ++i) {
    kept.push_back(task_of("ada", "dear", 500, 200));
    dear.push_back(engines.submit({kept.back()}).front());
  }
  ASSERT_TRUE(kept.front().events->pop(30s));
  const GenerationTask first = task_of("bob", "", 4, 4);  // makes an engine
  engines.submit({first});
  EXPECT_EQ(end_of(*first.events), Kind::kFinished);
  const auto begun = std::chrono::steady_clock::now();
  const GenerationTask cheap = task_of("bob", "", 4, 4);
  engines.submit({cheap});
  EXPECT_EQ(end_of(*cheap.events), Kind::kFinished);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 2s) << "a pass of the others takes several";
  for (const uint64_t id : dear) engines.cancel(id, false);
}

TEST(EngineThread, ADearTaskIsServed) {
  GenerationMetrics metrics("mini");
  EngineThread engines(with_dear_flow(), metrics);
  const GenerationTask dear = task_of("ada", "dear", 2, 20);
  const GenerationTask cancelled = task_of("ada", "dear", 500, 20);
  const GenerationTask refused = task_of("ada", "dear", 1'000'000, 20);
  engines.submit({dear});
  const uint64_t id = engines.submit({cancelled}).front();
  engines.submit({refused});
  ASSERT_TRUE(cancelled.events->pop(30s)) << "it has been accepted";
  engines.cancel(id, false);
  EXPECT_EQ(end_of(*dear.events), Kind::kFinished);
  EXPECT_EQ(end_of(*cancelled.events), Kind::kFinished);
  EXPECT_EQ(end_of(*refused.events), Kind::kFailed) << "longer than the pool";
}

TEST(EngineThread, TheLineHasRoomForACallerThoughAnotherFillsIt) {
  GenerationOptions options = with_dear_flow();
  options.most_requests = 8;
  GenerationMetrics metrics("mini");
  EngineThread engines(options, metrics);
  std::vector<GenerationTask> kept;
  std::vector<uint64_t> ids;
  for (int i = 0; i < 8; ++i) {
    kept.push_back(task_of("ada", "dear", 500, 20));
    ids.push_back(engines.submit({kept.back()}).front());
  }
  EXPECT_THROW(engines.submit({task_of("ada", "", 4, 4)}), HttpProblem);
  const GenerationTask bob = task_of("bob", "", 4, 4);
  engines.submit({bob});
  EXPECT_EQ(end_of(*bob.events), Kind::kFinished);
  for (const uint64_t id : ids) engines.cancel(id, false);
}

TEST(EngineThread, AServerWithoutMemoryIsNoFaultOfItsClients) {
  int overcommit = 0;
  std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit;
  if (overcommit == 1) GTEST_SKIP() << "the system promises whatever it is asked for";
  GenerationOptions options = one_engine(testing::source_path("host/models/mini").string());
  options.pool_bytes = size_t{1} << 50;
  GenerationMetrics metrics("mini");
  EngineThread engines(options, metrics);
  const GenerationTask dense = task("", 8);
  engines.submit({dense});
  const auto event = dense.events->pop(30s);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, Kind::kFailed);
  EXPECT_EQ(event->status, 503);
}

TEST(EngineThread, ATaskThatWaitedForAnEngineGetsOneOnceThatHasFailed) {
  const std::string model = write_broken_model();
  GenerationMetrics metrics("broken");
  EngineThread engines(one_engine(model), metrics);
  std::filesystem::remove_all(model);  // it is loaded
  const GenerationTask dense = task("", 8);
  const GenerationTask quest = task("quest", 4);
  engines.submit({dense, quest});
  EXPECT_EQ(end_of(*dense.events), Kind::kFailed);
  EXPECT_EQ(end_of(*quest.events), Kind::kFailed) << "by an engine of its own";
}

TEST(EngineThread, ATaskThatWaitedForAnEngineGetsItOnceTheOtherIsCancelled) {
  GenerationMetrics metrics("mini");
  EngineThread engines(one_engine(testing::source_path("host/models/mini").string()), metrics);
  const GenerationTask dense = task("", 1000);
  const GenerationTask quest = task("quest", 4);
  const std::vector<uint64_t> ids = engines.submit({dense, quest});
  ASSERT_TRUE(dense.events->pop(30s)) << "it runs, or has been accepted";
  engines.cancel(ids.front(), false);
  EXPECT_EQ(end_of(*quest.events), Kind::kFinished);
}

}  // namespace
}  // namespace sluice::test
