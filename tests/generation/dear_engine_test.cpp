#include "agents/generation/dear_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "agents/http/http_problem.h"
#include "host/transformer/model.h"
#include "scripting/base/error.h"
#include "tests/support/eventually.h"
#include "tests/support/source_path.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;
using Kind = GenerationEvent::Kind;

/// Dense attention in a thread of its own.
std::unique_ptr<Device> one_thread() { return create_device("cpu", 1); }

class DearEngineTest : public ::testing::Test {
 protected:
  std::unique_ptr<EngineSlot> slot_on(Device& on) {
    EngineOptions options;
    options.pool_bytes = size_t{8} << 20;
    return std::make_unique<EngineSlot>(on, *model_, "", nullptr, options, metrics_);
  }

  static LiveTask task(uint64_t id) {
    LiveTask live;
    live.id = id;
    live.task.request.prompt = {1, 4, 27, 13};
    live.task.request.max_tokens = 2;
    live.task.request.ignore_eos = true;
    live.task.events = std::make_shared<GenerationQueue>();
    return live;
  }

  static std::optional<GenerationEvent> end_of(GenerationQueue& events) {
    while (auto event = events.pop(30s)) {
      if (event->kind == Kind::kFinished || event->kind == Kind::kFailed) return event;
    }
    return std::nullopt;
  }

  std::unique_ptr<Device> device_ = create_device("cpu", 1);
  std::unique_ptr<Model> model_ = load_model(testing::source_path("host/models/mini").string(), *device_);
  GenerationMetrics metrics_{"mini"};
};

TEST_F(DearEngineTest, TakesTasksWhileItIsMade) {
  std::promise<void> go;
  std::future<void> gone = go.get_future();
  const auto make = [&](Device& on) {
    gone.wait();
    return slot_on(on);
  };
  DearEngine engine("", one_thread, make, [] {});
  LiveTask first = task(1);
  LiveTask second = task(2);
  const auto events = first.task.events;
  const auto cancelled = second.task.events;
  engine.submit(first);
  engine.submit(second);
  EXPECT_TRUE(engine.busy());
  EXPECT_TRUE(engine.cancel(2, false));
  EXPECT_FALSE(engine.cancel(3, false));
  EXPECT_FALSE(events->pop(0ms));
  go.set_value();
  EXPECT_EQ(end_of(*events).value().kind, Kind::kFinished);
  EXPECT_EQ(end_of(*cancelled).value().kind, Kind::kFinished);
  EXPECT_TRUE(testing::eventually([&] { return !engine.busy(); }));
  EXPECT_EQ(engine.take_ended(), 2);
}

TEST_F(DearEngineTest, WhatIsMissingIsToldToItsTasksAndTheNextOneTriesAgain) {
  std::atomic<int> tries = 0;
  const auto make = [&](Device& on) {
    if (++tries == 1) throw HttpProblem(503, "no memory");
    if (tries == 2) throw InputError("no such kernel", "another device");
    return slot_on(on);
  };
  DearEngine engine("", one_thread, make, [] {});
  const auto run = [&](uint64_t id) {
    LiveTask live = task(id);
    const auto events = live.task.events;
    engine.submit(live);
    GenerationEvent end = end_of(*events).value();
    EXPECT_TRUE(testing::eventually([&] { return !engine.busy(); }));
    EXPECT_NO_THROW(engine.step());
    EXPECT_EQ(engine.take_ended(), 1);
    return end;
  };
  const GenerationEvent no_memory = run(1);
  EXPECT_EQ(no_memory.kind, Kind::kFailed);
  EXPECT_EQ(no_memory.status, 503);
  EXPECT_EQ(no_memory.message, "no memory");
  const GenerationEvent refused = run(2);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.message, "no such kernel (another device)");
  EXPECT_EQ(run(3).kind, Kind::kFinished);
}

TEST_F(DearEngineTest, TasksThatCameWhileItWasMadeEndWithIt) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<bool> making = false;
  auto engine = std::make_unique<DearEngine>(
      "", one_thread,
      [&](Device& on) {
        making = true;
        gone.wait();
        return slot_on(on);
      },
      [] {});
  LiveTask live = task(1);
  LiveTask later = task(2);
  const auto events = live.task.events;
  const auto later_events = later.task.events;
  engine->submit(live);
  ASSERT_TRUE(testing::eventually([&] { return making.load(); }));
  engine->submit(later);
  auto stopped = std::async(std::launch::async, [&] { return engine->fail_all(503, "the server stops"); });
  go.set_value();
  EXPECT_EQ(stopped.get(), 2);
  EXPECT_TRUE(end_of(*events));
  EXPECT_TRUE(end_of(*later_events));
}

}  // namespace
}  // namespace sluice::test
