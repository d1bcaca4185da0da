#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "host/weights/safetensors.h"
#include "host/weights/safetensors_writer.h"
#include "kernels/reference/oracle.h"
#include "scripting/lua/trace.h"
#include "tests/support/stored_integers.h"

namespace sluice {
namespace {

constexpr int kTokens = 300;
constexpr int kKvHeads = 2;
constexpr int kSteps = 20;
constexpr int kQueryHeads = 6;
constexpr int kDim = 32;

class RunCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::temp_directory_path() / ("sluice_run_" + test + "_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    for (auto* numbers : {&keys_, &values_}) {
      numbers->resize(size_t{kTokens} * kKvHeads * kDim);
      for (float& number : *numbers) number = normal(random);
    }
    queries_.resize(size_t{kSteps} * kQueryHeads * kDim);
    for (float& number : queries_) number = normal(random);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write_inputs(std::vector<int64_t> k, std::vector<int64_t> v, std::vector<int64_t> q) const {
    SafetensorsWriter writer;
    const auto add = [&](const char* name, const std::vector<int64_t>& shape, std::vector<float> numbers) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      numbers.resize(static_cast<size_t>(count));
      writer.add(name, shape, numbers);
    };
    add("k", k, keys_);
    add("v", v, values_);
    add("q", q, queries_);
    writer.write(path("in.safetensors"));
  }
  void write_flow(const std::string& source) const { std::ofstream(path("flow.lua")) << source; }

  int run() { return run_flow(path("flow.lua")); }
  int run_flow(const std::string& flow) {
    const std::string command = std::string(SLUICE_PROGRAM) + " run " + flow + " --inputs " + path("in.safetensors") + " --out " +
                                path("out.safetensors") + " > " + path("said") + " 2>&1";
    const int status = std::system(command.c_str());
    std::ostringstream text;
    text << std::ifstream(path("said")).rdbuf();
    said_ = text.str();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  /// Rows [first, first + count) of one KV head of k or v, as `type` stores them.
  static std::vector<float> head_of(const std::vector<float>& all, int head, DataType type) {
    std::vector<float> numbers;
    for (int token = 0; token < kTokens; ++token) {
      for (int d = 0; d < kDim; ++d) {
        numbers.push_back(static_cast<float>(oracle::round_to(type, all[(size_t(token) * kKvHeads + head) * kDim + d])));
      }
    }
    return numbers;
  }

  void expect_refusal(const std::string& part) {
    EXPECT_EQ(run(), 1) << said_;
    EXPECT_NE(said_.find(part), std::string::npos) << said_;
  }

  std::filesystem::path folder_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<float> queries_;
  std::string said_;
};

const char* const kKeepingFlow = R"(
local flow = sluice.flow { name = "keeping", page = 8, kv = "f32" }
function flow.cache(c) c.centre = c.k:mean("token") end
function flow.index(q, c)
  local score = q:mean("head"):dot(c.centre, "dim")
  return sluice.topk(score, { k = 3, first = 1, last = 1 })
end
return flow)";

TEST_F(RunCommand, AgreesWithOracle) {
  write_inputs({kTokens, kKvHeads, kDim}, {kTokens, kKvHeads, kDim}, {kSteps, kQueryHeads, kDim});
  write_flow(kKeepingFlow);
  ASSERT_EQ(run(), 0) << said_;
  const SafetensorsFile out = SafetensorsFile::open(path("out.safetensors"));
  const FlowGraph graph = trace_file(path("flow.lua"), {.head_dim = kDim, .group = kQueryHeads / kKvHeads});
  const int pages = oracle::pages_of(graph, kTokens);
  ASSERT_EQ(out.at("output").shape, (std::vector<int64_t>{kSteps, kQueryHeads, kDim}));
  ASSERT_EQ(out.at("selected").shape, (std::vector<int64_t>{kSteps, kKvHeads, 5}));
  ASSERT_EQ(out.at("scores").shape, (std::vector<int64_t>{kSteps, kKvHeads, pages}));
  const std::vector<float> output = out.at("output").to_f32();
  const std::vector<int32_t> selected = testing::integers_of(out.at("selected"));
  const std::vector<float> scores = out.at("scores").to_f32();

  constexpr int kGroup = kQueryHeads / kKvHeads;
  for (int head = 0; head < kKvHeads; ++head) {
    const std::vector<float> k = head_of(keys_, head, graph.geometry.kv);
    const std::vector<float> v = head_of(values_, head, graph.geometry.kv);
    oracle::States states;
    for (int step = 0; step < kSteps; ++step) {
      const int tokens = kTokens - kSteps + 1 + step;
      const std::span<const float> query(queries_.data() + (size_t(step) * kQueryHeads + size_t(head) * kGroup) * kDim,
                                         kGroup * kDim);
      const oracle::Result expected = oracle::run(graph, {query, k, v, tokens, 0, 0, head}, states);
      const size_t slot = size_t(step) * kKvHeads + head;
      const std::vector<int32_t> chosen(selected.begin() + slot * 5, selected.begin() + slot * 5 + 5);
      EXPECT_EQ(chosen, expected.selected);
      for (int page = 0; page < pages; ++page) {
        const float score = scores[slot * pages + page];
        if (page < expected.pages) {
          const oracle::Bounded& wanted = expected.scores.at(0).values[page];
          EXPECT_NEAR(score, wanted.value, wanted.error);
        } else {
          EXPECT_EQ(score, -INFINITY);
        }
      }
      const auto attended =
          oracle::attention(query, k, v, tokens, kDim, graph.geometry.page, expected.selected, 1 / std::sqrt(double(kDim)));
      for (size_t i = 0; i < attended.size(); ++i) {
        EXPECT_NEAR(output[(size_t(step) * kQueryHeads + size_t(head) * kGroup) * kDim + i], attended[i], 1e-5);
      }
    }
  }
}

TEST_F(RunCommand, RunsFlowsWithoutSelectionDensely) {
  write_inputs({kTokens, kKvHeads, kDim}, {kTokens, kKvHeads, kDim}, {kSteps, kQueryHeads, kDim});
  write_flow("return sluice.flow { name = \"full\", page = 16, kv = \"f32\", layers = { rest = \"full\" } }");
  ASSERT_EQ(run(), 0) << said_;
  const SafetensorsFile out = SafetensorsFile::open(path("out.safetensors"));
  EXPECT_EQ(out.at("selected").shape[2], (kTokens + 15) / 16);
  EXPECT_EQ(out.find("scores"), nullptr);
}

TEST_F(RunCommand, TellsOfOutputsThatAreNoNumbers) {
  write_inputs({kTokens, kKvHeads, kDim}, {kTokens, kKvHeads, kDim}, {kSteps, kQueryHeads, kDim});
  write_flow(R"(local flow = sluice.flow { name = "odd", page = 16, kv = "f32" }
function flow.cache(c) c.ksum = c.k:mean("token") c.vsum = c.v:mean("token") end
function flow.index(q, c)
  return sluice.cover { k = c.ksum, v = c.vsum, refine = "none", tail = 1, bias = sluice.fill(math.huge, { "page" }) }
end
return flow)");
  ASSERT_EQ(run(), 0) << said_;
  EXPECT_NE(said_.find("outputs are NaN"), std::string::npos) << said_;
}

TEST_F(RunCommand, TakesTheNamesOfShippedFlows) {
  write_inputs({kTokens, kKvHeads, kDim}, {kTokens, kKvHeads, kDim}, {kSteps, kQueryHeads, kDim});
  ASSERT_EQ(run_flow("quest"), 0) << said_;
  EXPECT_EQ(said_.rfind("quest: 20 steps over 300 tokens", 0), 0U) << said_;
  EXPECT_EQ(SafetensorsFile::open(path("out.safetensors")).at("output").shape, (std::vector<int64_t>{kSteps, kQueryHeads, kDim}));
}

TEST_F(RunCommand, RefusesTensorsThatDisagree) {
  write_flow(kKeepingFlow);
  const std::vector<int64_t> kv{kTokens, kKvHeads, kDim};
  write_inputs(kv, {kTokens - 1, kKvHeads, kDim}, {kSteps, kQueryHeads, kDim});
  expect_refusal("k is [300, 2, 32] and v is [299, 2, 32]");
  write_inputs(kv, kv, {kSteps, kQueryHeads, kDim / 2});
  expect_refusal("dim");
  write_inputs(kv, kv, {kSteps, 5, kDim});
  expect_refusal("5 query heads cannot share 2 KV heads");
  write_inputs(kv, kv, {kTokens + 1, kQueryHeads, kDim});
  expect_refusal("301 steps");
  write_inputs(kv, kv, {0, kQueryHeads, kDim});
  expect_refusal("empty");
  write_inputs({kTokens, kKvHeads * kDim}, {kTokens, kKvHeads * kDim}, {kSteps, kQueryHeads, kDim});
  expect_refusal("wanted are k and v [tokens, kv_heads, dim]");
}

TEST_F(RunCommand, RefusesMissingTensorsAndFiles) {
  write_flow(kKeepingFlow);
  expect_refusal("in.safetensors");
  SafetensorsWriter writer;
  writer.add("k", {1, 1, 1}, std::vector<float>{1});
  writer.write(path("in.safetensors"));
  expect_refusal("there is no tensor v");
}

TEST_F(RunCommand, RefusesMoreHeadsAGroupThanTheDeviceAttendsFor) {
  write_flow(kKeepingFlow);
  write_inputs({10, 1, kDim}, {10, 1, kDim}, {1, 32, kDim});
  expect_refusal("32 query heads share a KV head");
}

}  // namespace
}  // namespace sluice
