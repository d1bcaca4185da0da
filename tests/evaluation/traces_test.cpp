#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/trace_judge.h"
#include "agents/evaluation/trace_runner.h"
#include "agents/traces/attention_trace.h"
#include "agents/traces/dense_steps.h"
#include "agents/traces/trace_recorder.h"
#include "kernels/reference/oracle.h"
#include "scripting/base/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/traced_mini.h"

namespace sluice::test {
namespace {

constexpr int kTokens = testing::TracedMini::kTokens;
constexpr int kSteps = testing::TracedMini::kSteps;

class Traces : public ::testing::Test {
 protected:
  AttentionTrace record(const std::vector<int>& layers) const { return mini_.record(layers); }
  static LayerTensors noise(int tokens, int steps) {
    LayerTensors tensors{{}, {}, {}, tokens, 2, steps, 6, 16};
    uint32_t at = 1;
    const auto fill = [&](std::vector<float>& numbers, size_t count) {
      while (numbers.size() < count) numbers.push_back(static_cast<float>((at = at * 1664525 + 1013904223) >> 8) * 0x1p-22F - 2);
    };
    fill(tensors.keys, static_cast<size_t>(tokens) * 2 * 16);
    fill(tensors.values, static_cast<size_t>(tokens) * 2 * 16);
    fill(tensors.queries, static_cast<size_t>(steps) * 6 * 16);
    return tensors;
  }
  /// A trace of noise in a directory.
  void save_noise(const std::string& directory) const {
    AttentionTrace trace;
    trace.model = "noise";
    trace.model_layers = 4;
    trace.windows.push_back({"none", "", 0, {{2, noise(40, 3)}}});
    save_trace(trace, directory);
  }
  static void expect_refused(const std::string& directory, const std::string& part) {
    try {
      load_trace(directory);
      ADD_FAILURE() << "loaded; wanted " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  std::unique_ptr<Device> device_ = create_cpu_device();
  testing::TracedMini mini_{*device_};
  testing::TemporaryDirectory folder_;
};

TEST_F(Traces, MassIsThatOfTheEnginesProbe) { mini_.expect_masses_of_engine(); }

TEST_F(Traces, DenseStepsAreThoseOfTheReference) {
  const LayerTensors tensors = noise(53, 4);
  const DenseSteps dense(tensors, 2);
  for (int step = 0; step < tensors.steps; ++step) {
    const int tokens = tensors.tokens_at(step);
    for (int head = 0; head < tensors.query_heads; ++head) {
      const int kv_head = head / tensors.group();
      std::vector<float> keys;
      std::vector<float> values;
      for (int token = 0; token < tokens; ++token) {
        const ptrdiff_t at = (ptrdiff_t{token} * 2 + kv_head) * 16;
        keys.insert(keys.end(), tensors.keys.begin() + at, tensors.keys.begin() + at + 16);
        values.insert(values.end(), tensors.values.begin() + at, tensors.values.begin() + at + 16);
      }
      std::vector<int32_t> pages;
      for (int page = 0; page * 8 < tokens; ++page) pages.push_back(page);
      const auto query = std::span(tensors.queries).subspan((static_cast<size_t>(step) * 6 + static_cast<size_t>(head)) * 16, 16);
      const std::vector<double> expected = oracle::attention(query, keys, values, tokens, 16, 8, pages, 0.25);
      for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(dense.output(step, head)[i], expected[i], 1e-5);
    }
    for (const int page : {8, 16, 32, 64, 128}) {
      const std::vector<double> masses = dense.masses(step, 1, page);
      double sum = 0;
      for (const double mass : masses) sum += mass;
      EXPECT_NEAR(sum, 1, 1e-9) << page;
      EXPECT_NEAR(best_mass(masses, masses.size()), 1, 1e-9);
      EXPECT_EQ(best_mass(masses, 1), *std::max_element(masses.begin(), masses.end()));
    }
  }
}

TEST_F(Traces, AreReadAsTheyWereWritten) {
  const AttentionTrace trace = record({3, 1});
  save_trace(trace, folder_.file("t"));
  const AttentionTrace read = load_trace(folder_.file("t"));
  EXPECT_EQ(read.model, "mini");
  EXPECT_EQ(read.model_layers, 8);
  ASSERT_EQ(read.windows.size(), 1U);
  ASSERT_EQ(read.windows[0].layers.size(), 2U);
  EXPECT_EQ(read.windows[0].layers[0].layer, 3);
  const LayerTensors& before = trace.windows[0].layers[1].tensors;
  const LayerTensors& after = read.windows[0].layers[1].tensors;
  EXPECT_EQ(after.keys, before.keys) << "the cache has them as bf16";
  EXPECT_EQ(after.values, before.values);
  ASSERT_EQ(after.queries.size(), before.queries.size());
  for (size_t i = 0; i < after.queries.size(); ++i)
    EXPECT_NEAR(after.queries[i], before.queries[i], std::abs(before.queries[i]) / 256);
  save_trace(read, folder_.file("t"));
  EXPECT_EQ(load_trace(folder_.file("t")).windows[0].layers[1].tensors.queries, after.queries) << "over the earlier one";
}

TEST_F(Traces, ThatAreDamagedAreRefusedWithOneMessage) {
  const std::string directory = folder_.file("t");
  const std::string data = directory + "/window-0.layer-2.safetensors";
  const std::string index = directory + "/trace.json";
  expect_refused(directory, "there is no trace");
  save_noise(directory);
  std::filesystem::resize_file(data, std::filesystem::file_size(data) - 1);
  expect_refused(directory, "cut off or changed");
  std::filesystem::remove(data);
  expect_refused(directory, "cannot be read");
  const auto change = [&](const char* key, const nlohmann::json& value, bool of_layer) {
    std::filesystem::remove_all(directory);
    save_noise(directory);
    std::ifstream file(index);
    nlohmann::json document = nlohmann::json::parse(file);
    (of_layer ? document["windows"][0]["layers"][0] : document)[key] = value;
    std::ofstream(index) << document;
  };
  change("schema", "sluice.trace/9", false);
  expect_refused(directory, "sluice.trace/1 is wanted");
  change("file", "../elsewhere.safetensors", true);
  expect_refused(directory, "a file beside it");
  change("layer", 4, true);
  expect_refused(directory, "layer");
  change("model_layers", 1e18, false);
  expect_refused(directory, "model_layers");
  change("windows", nlohmann::json::array(), false);
  expect_refused(directory, "windows");
  std::ofstream(index) << "[1, 2";
  expect_refused(directory, "trace.json");
}

TEST_F(Traces, OfNumbersThatAreNotFiniteAreRefused) {
  for (const float number : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    AttentionTrace trace;
    trace.model = "noise";
    trace.model_layers = 1;
    trace.windows.push_back({"none", "", 0, {{0, noise(40, 3)}}});
    trace.windows[0].layers[0].tensors.values[77] = number;
    save_trace(trace, folder_.file("nan"));
    expect_refused(folder_.file("nan"), "v holds NaN, infinities");
  }
  AttentionTrace huge;
  huge.model_layers = 1;
  huge.windows.push_back({"none", "", 0, {{0, noise(40, 3)}}});
  for (float& key : huge.windows[0].layers[0].tensors.keys) key = 1e38F;
  for (float& query : huge.windows[0].layers[0].tensors.queries) query = 1e38F;
  EXPECT_THROW(TraceJudge(*device_, huge, 0), InputError);
}

TEST_F(Traces, LayersOfDifferentShapesAreRefused) {
  AttentionTrace trace;
  trace.model = "noise";
  trace.model_layers = 2;
  trace.windows.push_back({"none", "", 0, {{0, noise(40, 3)}, {1, noise(40, 4)}}});
  save_trace(trace, folder_.file("t"));
  expect_refused(folder_.file("t"), "layer 1");
}

TEST_F(Traces, ADirectoryOfOtherThingsIsNotWrittenOver) {
  std::ofstream(folder_.file("mine.txt")) << "x";
  EXPECT_THROW(save_noise(folder_.path()), InputError);
  EXPECT_TRUE(std::filesystem::exists(folder_.file("mine.txt")));
}

TEST_F(Traces, LayersThatAFlowLeavesDenseCountInTheirShare) {
  TraceJudge judge(*device_, record({0}), 0);
  const auto script = [](const std::string& layers) {
    return FlowScript{"f.lua",
                      "local flow = sluice.flow { name = 'f', page = 8" + layers +
                          " }\nfunction flow.cache(c) c.m = c.k:mean('token') end\nfunction flow.index(q, c)\n  return "
                          "sluice.topk(q:mean('head'):dot(c.m), { ratio = 1 / 8, first = 1, last = 2 })\nend\nreturn flow\n"};
  };
  const TraceResult all = judge.judge(script(""));
  // Layer 0, which was recorded, is dense; so is one in four of the others.
  const TraceResult some = judge.judge(script(", layers = { [0] = 'full', [7] = 'full', rest = 'sparse' }"));
  EXPECT_EQ(all.sparse_layers, 1);
  EXPECT_EQ(some.sparse_layers, 0.75);
  EXPECT_NEAR(some.scores.mass.mean, 0.25 + 0.75 * all.scores.mass.mean, 1e-12);
  EXPECT_NEAR(some.scores.error.mean, 0.75 * all.scores.error.mean, 1e-12);
  EXPECT_NEAR(some.pages_read, 0.25 + 0.75 * all.pages_read, 1e-12);
  EXPECT_LT(all.scores.mass.interval->low, all.scores.mass.mean);
  EXPECT_GT(all.scores.mass.interval->high, all.scores.mass.mean);
}

TEST_F(Traces, DenseAttentionKeepsAllAndTheBestPagesAreNotRegretted) {
  TraceJudge judge(*device_, record({2, 6}), 0);
  const TraceResult full = judge.judge(read_flow("full"));
  ASSERT_EQ(full.heads.size(), 4U);
  for (const TraceHead& head : full.heads) {
    EXPECT_NEAR(head.scores.mass.mean, 1, 1e-9) << "as it was measured: what layers count that are dense is not";
    EXPECT_EQ(head.pages_read, 1);
    EXPECT_GT(head.scores.error.mean, 0);
    EXPECT_LT(head.scores.error.mean, 1e-2);
    EXPECT_NEAR(head.scores.regret.mean, 0, 1e-9);
  }
  const TraceResult quest = judge.judge(read_flow("quest"));
  ASSERT_EQ(quest.heads.size(), 4U);
  double mass = 0;
  for (const TraceHead& head : quest.heads) mass += head.scores.mass.mean / 4;
  EXPECT_NEAR(mass, quest.scores.mass.mean, 1e-12);
  EXPECT_GT(judge.judge(read_flow("random")).scores.regret.mean, quest.scores.regret.mean);
}

/// Ranks pages by the mean key. `declared` is in sluice.flow{...}, `ratio` and `score` are expressions.
FlowScript mean_key_flow(const std::string& declared, const std::string& ratio, const std::string& score = "s") {
  return {"f.lua", "local flow = sluice.flow { name = 'f', page = 8" + declared +
                       " }\nfunction flow.cache(c) c.m = c.k:mean('token') end\nfunction flow.index(q, c)\n"
                       "  local group, s = q:extent('head'), q:mean('head'):dot(c.m)\n  return sluice.topk(" +
                       score + ", { ratio = " + ratio + ", first = 1, last = 2 })\nend\nreturn flow\n"};
}

TEST_F(Traces, AFlowIsTheOneThatIsAskedAndTimed) {
  TraceJudge judge(*device_, record({0}), 0);
  const auto judged = [&](const FlowScript& script) {
    const FlowGraph asked = script.trace({.head_dim = 64, .group = 2, .layers = 30});  // the mini has groups of 4, and 8 layers
    return judge.judge(script, &asked);
  };
  EXPECT_NO_THROW(judged(mean_key_flow("", "1 / 8")));
  EXPECT_NO_THROW(judged(mean_key_flow(", layers = { [0] = 'full', [-1] = 'full', rest = 'sparse' }", "1 / 8")));
  EXPECT_NO_THROW(judged(mean_key_flow("", "1 / 8", "s * (1 / group)"))) << "a constant may follow the shape";
  const auto expect_another = [&](const FlowScript& script, const std::string& part) {
    try {
      judged(script);
      ADD_FAILURE() << "judged; wanted " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  EXPECT_NO_THROW(judged(mean_key_flow("", "1 / (4 * group)"))) << "a budget a head";
  // Both are traced each time, and one is used.
  expect_another(mean_key_flow("", "1 / 8", "({ [2] = s, [4] = s:softmax('page') })[group]"), "other operators");
  EXPECT_NO_THROW(judged(mean_key_flow("", "1 / 8", "group == 4 and s:maximum(s * 2) or s"))) << "loops over heads do so";
  expect_another(mean_key_flow("", "1 / 8", "group == 4 and s:softmax('page') or s"), "other operators");
}

TEST_F(Traces, ThatTakeTooMuchAreRefused) {
  const auto refused = [](int tokens, int kv_heads, int steps, int query_heads, int dim, size_t layers = 1) {
    LayerTensors shape;
    shape.tokens = tokens;
    shape.kv_heads = kv_heads;
    shape.steps = steps;
    shape.query_heads = query_heads;
    shape.dim = dim;
    try {
      check_trace_size(shape, layers, "t");
      return false;
    } catch (const InputError&) {
      return true;
    }
  };
  EXPECT_FALSE(refused(4096, 3, 64, 9, 64, 2));
  EXPECT_FALSE(refused(131072, 8, 16, 32, 128)) << "a large model at a long context";
  EXPECT_TRUE(refused(65536, 96, 1024, 96, 1)) << "memory for masses";
  EXPECT_TRUE(refused(1 << 21, 1, 1, 1, 64));
  EXPECT_TRUE(refused(4096, 1, 1025, 1, 64));
  EXPECT_TRUE(refused(4096, 3, 64, 9, 64, 2000));
  EXPECT_TRUE(refused(64, 1, 1, 65, 64)) << "more query heads than any flow takes";
  EXPECT_TRUE(refused(64, 1, 1, 1, 2048));
}

TEST_F(Traces, OnlyFilesOfTheEarlierTraceAreReplaced) {
  const std::string directory = folder_.file("t");
  save_noise(directory);
  std::ofstream(directory + "/window-book.safetensors") << "mine";
  EXPECT_THROW(save_noise(directory), InputError);
  EXPECT_TRUE(std::filesystem::exists(directory + "/window-book.safetensors"));
  EXPECT_NO_THROW(load_trace(directory)) << "and that trace stays whole";
  std::filesystem::remove(directory + "/window-book.safetensors");
  save_noise(directory);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 2) << "nothing of the earlier one is left";
}

TEST_F(Traces, AFlowOfAnotherShapeIsRefused) {
  TraceJudge judge(*device_, record({0}), 0);
  const FlowScript script{
      "f.lua",
      "local flow = sluice.flow { name = 'f', page = 8 }\nfunction flow.cache(c) c.m = c.k:mean('token') end\n"
      "function flow.index(q, c)\n  local s = q:reshape({ { 'sub', 3 }, { 'dim', 64 } }):max('sub'):dot(c.m)\n  "
      "return sluice.topk(s, { ratio = 1 / 8 })\nend\nreturn flow\n"};
  EXPECT_THROW(judge.judge(script), InputError);
}

TEST_F(Traces, WhatCannotBeRecordedIsRefused) {
  const ModelConfig& config = mini_.config();
  EXPECT_THROW(check_record({{}, 600, 16}, config), InputError);
  EXPECT_THROW(check_record({{8}, 600, 16}, config), InputError);
  EXPECT_THROW(check_record({{1, 1}, 600, 16}, config), InputError);
  EXPECT_THROW(check_record({{1}, 600, 601}, config), InputError);
  EXPECT_THROW(check_record({{1}, 1 << 20, 16}, config), InputError);
  EXPECT_NO_THROW(check_record({{1}, 600, 600}, config));
}

TEST(ShippedTrace, IsOfTwoLayersOfARealModel) {
  const AttentionTrace trace = load_trace(SLUICE_SOURCE_DIR "/host/models/smollm2_trace");
  EXPECT_EQ(shape_of(trace).layers, 30);
  EXPECT_EQ(shape_of(trace).query_heads, 9);
  EXPECT_EQ(shape_of(trace).kv_heads, 3);
  ASSERT_EQ(trace.windows.size(), 2U);
  for (const TraceWindow& window : trace.windows) {
    for (const TracedLayer& layer : window.layers) {
      EXPECT_EQ(layer.tensors.tokens, 4096);
      EXPECT_EQ(layer.tensors.steps, 64);
    }
  }
  size_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(SLUICE_SOURCE_DIR "/host/models/smollm2_trace")) {
    bytes += file.file_size();
  }
  EXPECT_LE(bytes, size_t{8} << 20);
}

}  // namespace
}  // namespace sluice::test
