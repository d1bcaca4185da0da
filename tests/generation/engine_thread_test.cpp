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
#include "tests/support/eventually.h"
#include "tests/support/source_path.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;
using Kind = GenerationEvent::Kind;

/// One engine at a time.
GenerationOptions one_engine(const std::string& model) {
  GenerationOptions options;
  options.model = model;
  options.threads = 1;
  options.pool_bytes = size_t{8} << 20;
  options.most_engines = 1;
  options.read_flow = [](const std::string& name, const TraceOptions& trace) {
    return read_flow(testing::source_path("scripting/flows/" + name + ".lua").string()).trace(trace);
  };
  return options;
}

GenerationTask task(const std::string& flow, int tokens) {
  GenerationTask made;
  made.flow = flow;
  made.request.prompt = {1, 4, 27, 13};
  made.request.max_tokens = tokens;
  made.request.ignore_eos = true;
  made.events = std::make_shared<GenerationQueue>();
  return made;
}

/// How a task ends; nothing if it does not within a time far below that after which an idle engine is dropped.
std::optional<Kind> end_of(GenerationQueue& events) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto event = events.pop(50ms);
    if (event && (event->kind == Kind::kFinished || event->kind == Kind::kFailed)) return event->kind;
  }
  return {};
}

constexpr size_t kGiB = size_t{1} << 30;

DeviceInfo device_called(const std::string& name) {
  DeviceInfo info;
  info.name = name;
  return info;
}

TEST(EngineThread, EnginesOnAGpuAreLarger) {
  GenerationOptions options;
  const EngineOptions cpu = options_of_engine(options, device_called("cpu"), {.free_bytes = 100 * kGiB});
  EXPECT_EQ(cpu.max_batch, 16);
  EXPECT_EQ(cpu.max_pass_tokens, 256);
  EXPECT_EQ(cpu.pool_bytes, kGiB / 4);
  const EngineOptions gpu = options_of_engine(options, device_called("cuda"), {.free_bytes = 100 * kGiB});
  EXPECT_EQ(gpu.max_batch, 64);
  EXPECT_EQ(gpu.max_pass_tokens, 2048);
  options.batch = 1000;
  options.chunk = 100;
  options.pool_bytes = 7 * kGiB;
  for (const char* device : {"cpu", "cuda"}) {
    const EngineOptions given = options_of_engine(options, device_called(device), {.free_bytes = 100 * kGiB});
    EXPECT_EQ(given.max_batch, 1000);
    EXPECT_EQ(given.max_pass_tokens, 1000);  // a row for each
    EXPECT_EQ(given.pool_bytes, 7 * kGiB);
  }
}

TEST(EngineThread, EnginesShareTheMemoryOfAGpu) {
  GenerationOptions options;
  const DeviceInfo gpu = device_called("cuda");
  for (const bool shares : {false, true}) {
    for (const bool keeps_state : {false, true}) {
      options.shares_device = shares;
      EngineRoom room{.free_bytes = 120 * kGiB, .weight_bytes = 15 * kGiB, .keeps_state = keeps_state};
      for (room.engines_to_come = 4; room.engines_to_come > 0; --room.engines_to_come) {
        const EngineOptions engine = options_of_engine(options, gpu, room);
        EXPECT_GT(engine.pool_bytes, (keeps_state ? 10 : 20) * kGiB);
        room.free_bytes -= engine.pool_bytes + (keeps_state ? engine.state_bytes : 0);
      }
      EXPECT_GE(room.free_bytes, (shares ? 15 + 8 : 0) * kGiB + kGiB);  // the weights once more, and what judging takes
    }
  }
  // Of two pools that engines share the second gets what the first has left.
  options.shares_cache = true;
  EngineRoom room{.free_bytes = 120 * kGiB, .weight_bytes = 15 * kGiB, .engines_to_come = 4};
  const size_t first = options_of_engine(options, gpu, room).pool_bytes;
  EXPECT_GT(first, 40 * kGiB);
  room.free_bytes -= first;
  room.engines_to_come = 3;
  const size_t second = options_of_engine(options, gpu, room).pool_bytes;
  EXPECT_GT(second, 20 * kGiB);
  EXPECT_GE(room.free_bytes - second, (15 + 8) * kGiB + kGiB);
  // What is missing is said when the engine is made.
  for (const size_t free : {size_t{0}, kGiB, 5 * kGiB}) {
    EXPECT_EQ(options_of_engine(options, gpu, {.free_bytes = free, .weight_bytes = kGiB}).pool_bytes, kGiB / 4);
  }
}

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

/// The tokens of a task that ends, and how many of its prompt's were found; nothing if it failed.
struct Answer {
  std::vector<int32_t> tokens;
  int cached = 0;
};
std::optional<Answer> answer_of(GenerationQueue& events) {
  Answer answer;
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto event = events.pop(50ms);
    if (!event) continue;
    if (event->kind == Kind::kFailed) return {};
    if (event->kind == Kind::kFinished) return answer;
    if (event->kind != Kind::kToken) continue;
    if (answer.tokens.empty()) answer.cached = event->cached_tokens;
    answer.tokens.push_back(event->token);
  }
  return {};
}

GenerationTask long_task(const std::string& flow, int prompt, int salt) {
  GenerationTask made = task(flow, 12);
  made.request.prompt.clear();
  for (int i = 0; i < prompt; ++i) made.request.prompt.push_back((i * (31 + salt) + i * i % 13) % 1000);
  return made;
}

TEST(EngineThread, FlowsThatShareACacheFindEachOthersPrompts) {
  GenerationMetrics metrics("mini");
  GenerationOptions options = one_engine(testing::source_path("host/models/mini").string());
  options.most_engines = 6;
  options.shares_cache = true;
  EngineThread engines(options, metrics);
  // Pages of 8 tokens, and of 16.
  for (const std::vector<std::string>& flows : {std::vector<std::string>{"quest", "nsa_topk", "h2o"}, {"", "block_topk"}}) {
    for (size_t i = 0; i < flows.size(); ++i) {
      const GenerationTask asked = long_task(flows[i], 101, 0);
      engines.submit({asked});
      const std::optional<Answer> answer = answer_of(*asked.events);
      ASSERT_TRUE(answer) << flows[i];
      EXPECT_EQ(answer->tokens.size(), 12U);
      EXPECT_EQ(answer->cached, i == 0 ? 0 : 96) << flows[i];
    }
  }
}

// One place for flows, whose engine goes when the next one comes: what was known of prompts stays.
TEST(EngineThread, WhatIsKnownOfPromptsOutlivesEngines) {
  GenerationMetrics metrics("mini");
  GenerationOptions options = one_engine(testing::source_path("host/models/mini").string());
  options.most_engines = 2;
  options.shares_cache = true;
  EngineThread engines(options, metrics);
  int cached = 0;
  for (const char* flow : {"quest", "nsa_topk", "h2o", "quest"}) {
    const GenerationTask asked = long_task(flow, 101, 0);
    engines.submit({asked});
    const std::optional<Answer> answer = answer_of(*asked.events);
    ASSERT_TRUE(answer) << flow;
    EXPECT_EQ(answer->cached, cached) << flow;
    cached = 96;
  }
}

// More flows with fields than a pool has room for: the last ones have pools of their own.
TEST(EngineThread, AFlowThatFindsNoRoomForItsFieldsHasAPoolOfItsOwn) {
  GenerationMetrics metrics("mini");
  GenerationOptions options = one_engine(testing::source_path("host/models/mini").string());
  options.most_engines = 20;
  options.shares_cache = true;
  options.read_flow = [shipped = options.read_flow](const std::string&, const TraceOptions& trace) {
    return shipped("quest", trace);
  };
  EngineThread engines(options, metrics);
  std::vector<int32_t> first;
  for (int i = 0; i < 18; ++i) {
    const GenerationTask asked = long_task("quest" + std::to_string(i), 40, 0);
    engines.submit({asked});
    const std::optional<Answer> answer = answer_of(*asked.events);
    ASSERT_TRUE(answer) << i;
    if (i == 0) first = answer->tokens;
    EXPECT_EQ(answer->tokens, first) << i;
  }
}

// Pools that hold a few of the requests at a time.
TEST(EngineThread, EnginesThatShareACacheAllGetOn) {
  std::vector<std::vector<int32_t>> apart;
  for (const bool shares : {false, true}) {
    GenerationMetrics metrics("mini");
    GenerationOptions options = one_engine(testing::source_path("host/models/mini").string());
    options.most_engines = 4;
    options.pool_bytes = size_t{2} << 20;
    options.shares_cache = shares;
    EngineThread engines(options, metrics);
    std::vector<GenerationTask> tasks;
    for (int i = 0; i < 36; ++i) {
      const char* const flows[] = {"quest", "nsa_topk", "h2o"};
      tasks.push_back(long_task(flows[i % 3], 20 + i * 37 % 230, i % 5));
      tasks.back().caller = i % 2 == 0 ? "ada" : "bob";
      engines.submit({tasks.back()});
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      const std::optional<Answer> answer = answer_of(*tasks[i].events);
      ASSERT_TRUE(answer) << i;
      if (!shares) {
        apart.push_back(answer->tokens);
      } else {
        EXPECT_EQ(answer->tokens, apart[i]) << i;
      }
    }
  }
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
