#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "host/serving/engine.h"
#include "scripting/base/error.h"
#include "scripting/lua/trace.h"
#include "tests/host/transformer/tiny_model.h"

namespace sluice {
namespace {

using testing::TemporaryDirectory;
using testing::TinyModel;

constexpr int32_t kBroken = 7;

/// Has a token whose embedding is NaN, and an output layer that is sound.
std::unique_ptr<Model> broken_model(Device& device) {
  TinyModel tiny;
  tiny.tied = false;
  tiny.draw();
  std::vector<float>& table = tiny.weights.at("model.embed_tokens.weight");
  std::fill_n(table.begin() + kBroken * tiny.hidden, tiny.hidden, NAN);
  const TemporaryDirectory directory;
  tiny.write(directory.path());
  return load_model(directory.path(), device);
}

TEST(Engine, OneRequestsNaNEndsItAlone) {
  const auto device = create_cpu_device({2});
  const auto model = broken_model(*device);
  for (const bool ahead : {false, true}) {
    for (const float temperature : {0.0F, 1.0F}) {
      EngineOptions options;
      options.pages = 64;
      options.max_batch = 4;
      options.max_pass_tokens = 16;
      options.run_ahead = ahead;
      Engine engine(*device, *model, nullptr, options);
      const auto request = [&](std::vector<int32_t> prompt) {
        Request made;
        made.prompt = std::move(prompt);
        made.max_tokens = 12;
        made.ignore_eos = true;
        made.sampling.temperature = temperature;
        return made;
      };
      const std::vector<int32_t> good = {1, 2, 3, 4, 5};
      engine.submit(request(good));
      const std::vector<int32_t> wanted = engine.run_all().at(0).tokens;
      const bool sound = std::find(wanted.begin(), wanted.end(), kBroken) == wanted.end();
      ASSERT_TRUE(sound) << "choose another token to break";
      const uint64_t first = engine.submit(request(good));
      const uint64_t broken = engine.submit(request({1, kBroken, 3, 4, 5}));
      const uint64_t last = engine.submit(request(good));
      while (engine.step()) {
      }
      for (const RequestResult& result : engine.take_finished()) {
        if (result.id == broken) {
          EXPECT_EQ(result.reason, FinishReason::kNotFinite);
          continue;
        }
        EXPECT_TRUE(result.id == first || result.id == last);
        EXPECT_EQ(result.reason, FinishReason::kLength);
        EXPECT_EQ(result.tokens, wanted);
      }
      EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total);
      engine.submit(request({1, kBroken}));
      EXPECT_THROW(engine.run_all(), InputError);
    }
  }
}

// Slots that nobody has written to yet lie among those that rows see.
TEST(Engine, WhatABrokenRequestLeavesHarmsNoPattern) {
  const auto device = create_cpu_device({2});
  const auto model = broken_model(*device);
  const ModelConfig& config = model->config();
  const std::string script =
      "local flow = sluice.flow{name = \"x\"}\nflow.pattern = sluice.pattern.sink(3) | sluice.pattern.window(20)\nreturn flow";
  const Plan plan = compile(trace(script, "x.lua", {.head_dim = config.head_dim, .group = config.group()})).plan;
  EngineOptions options;
  options.pages = 14;
  options.max_batch = 4;
  options.max_pass_tokens = 32;
  Engine engine(*device, *model, &plan, options);
  const auto request = [&](int tokens, bool broken) {
    Request made;
    for (int i = 0; i < tokens; ++i) made.prompt.push_back(broken && i % 2 == 1 ? kBroken : (i * 5 + 1) % 6);
    made.max_tokens = 4;
    made.ignore_eos = true;
    return made;
  };
  engine.submit(request(70, false));
  const std::vector<int32_t> wanted = engine.run_all().at(0).tokens;
  for (int round = 0; round < 8; ++round) {
    // Pages change hands, so that those beside slots become pages of slots.
    for (int i = 0; i < 4; ++i) engine.submit(request(24 + (29 * round + 17 * i) % 90, true));
    while (engine.step()) {
    }
    for (const RequestResult& result : engine.take_finished()) EXPECT_EQ(result.reason, FinishReason::kNotFinite);
    engine.submit(request(70, false));
    const RequestResult result = engine.run_all().at(0);
    EXPECT_EQ(result.reason, FinishReason::kLength);
    EXPECT_EQ(result.tokens, wanted);
  }
}

}  // namespace
}  // namespace sluice
