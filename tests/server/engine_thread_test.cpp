#include "agents/generation/engine_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "agents/flow_script.h"
#include "tests/server/broken_model.h"
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

TEST(EngineThread, PoolsShareTheMemoryOfAGpuThatNobodyElseNeeds) {
  constexpr size_t kGiB = size_t{1} << 30;
  GenerationOptions options;
  DeviceInfo cpu;
  cpu.name = "cpu";
  DeviceInfo gpu;
  gpu.name = "cuda";
  EXPECT_EQ(engine_options(options, cpu, 100 * kGiB).pool_bytes, kGiB / 4);
  EXPECT_EQ(engine_options(options, cpu, 100 * kGiB).max_batch, 16);
  EXPECT_EQ(engine_options(options, gpu, 120 * kGiB).max_batch, 64);
  const EngineOptions engine = engine_options(options, gpu, 120 * kGiB);
  EXPECT_GT(engine.pool_bytes, 25 * kGiB);
  EXPECT_LT(options.most_engines * engine.pool_bytes, 120 * kGiB);
  options.spare_bytes = 60 * kGiB;
  EXPECT_LT(options.most_engines * engine_options(options, gpu, 120 * kGiB).pool_bytes, 60 * kGiB);
  EXPECT_EQ(engine_options(options, gpu, 30 * kGiB).pool_bytes, kGiB / 4);  // what is missing is said when it is made
  options.pool_bytes = 7 * kGiB;
  options.batch = 1000;
  EXPECT_EQ(engine_options(options, gpu, 120 * kGiB).pool_bytes, 7 * kGiB);
  EXPECT_EQ(engine_options(options, cpu, 120 * kGiB).max_pass_tokens, 1000);
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
