#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "agents/evaluation/numerical.h"
#include "agents/evaluation/single_head.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/gpu.h"
#include "tests/support/head_cache.h"
#include "tests/support/source_path.h"

// Flows inside attention, through the interface of devices.

namespace sluice::testing {
namespace {

using CudaFlowAttention = GpuTest;

FlowGraph shipped(const std::string& name, int head_dim, int group) {
  TraceOptions options;
  options.head_dim = head_dim;
  options.group = group;
  return trace_file(source_path("scripting/flows/" + name + ".lua"), options);
}

TEST_F(CudaFlowAttention, ShippedFlowsAgreeWithTheReference) {
  const auto device = create_device("cuda");
  for (const char* name :
       {"full", "streaming", "block_topk", "quest", "double_sparse", "nsa_topk", "h2o", "random", "patterns/nsa_window"}) {
    for (const auto& [head_dim, group] : {std::pair{64, 4}, {128, 1}, {128, 16}, {256, 5}}) {
      const FlowGraph graph = shipped(name, head_dim, group);
      const auto fault = check_against_reference(*device, graph, compile(graph).plan);
      EXPECT_EQ(fault.value_or(""), "") << name << ", heads of " << head_dim << ", group " << group;
    }
  }
}

TEST_F(CudaFlowAttention, PatternsAroundASelectionAgreeWithTheReference) {
  const auto device = create_device("cuda");
  for (const char* pattern : {"sink(3) | sluice.pattern.window(50)", "dilated(20, 17)", "strided(5, 133)", "diag{ offset = 40 }",
                              "by_head{sluice.pattern.window(70), sluice.pattern.dilated(20, 17), sluice.pattern.sink(3)}"}) {
    for (const int page : {8, 16, 128}) {
      for (const char* index : {"sluice.topk(q:dot(c.m):max('head'), { k = 3 })",
                                "sluice.union(sluice.topk(q:dot(c.m):max('head'), { k = 2 }), sluice.pattern.window(60))"}) {
        const std::string source = "local flow = sluice.flow { name = 'test', page = " + std::to_string(page) +
                                   " }\nflow.pattern = sluice.pattern." + pattern +
                                   "\nfunction flow.cache(c) c.m = c.k:mean('token') end\nfunction flow.index(q, c) return " +
                                   index + " end\nreturn flow\n";
        const FlowGraph graph = trace(source, "test.lua");
        const auto fault = check_against_reference(*device, graph, compile(graph).plan);
        EXPECT_EQ(fault.value_or(""), "") << "page " << page << ", " << pattern << ": " << index;
      }
    }
  }
}

// Products of 8-bit fields with the query, on tensor cores.
TEST_F(CudaFlowAttention, FieldsOfEightBitsAgreeWithTheReference) {
  const auto device = create_device("cuda");
  const char* const flows[] = {
      "function flow.cache(c) c.a = c.k end function flow.index(q, c) return sluice.topk(c.a:dot(q):max('token', 'head'), { k = "
      "5, last = 1 }) end",
      "function flow.cache(c) c.a = c.k:mean('token') end function flow.index(q, c) return sluice.topk(q:dot(c.a):max('head'), { "
      "k = 5 }) end",
      "function flow.cache(c) c.a = c.k:max('token') c.b = c.k:min('token') end function flow.index(q, c) "
      "return sluice.topk((q * c.a):maximum(q * c.b):sum('dim'):max('head'), { k = 5, first = 1 }) end",
  };
  for (const char* type : {"e4m3", "e5m2"}) {
    for (const auto& [head_dim, group] : {std::pair{64, 2}, {64, 4}, {128, 16}, {256, 5}}) {
      for (const char* stages : flows) {
        TraceOptions options;
        options.head_dim = head_dim;
        options.group = group;
        const bool has_two = std::string(stages).find("c.b") != std::string::npos;
        const std::string fields = std::string("a = '") + type + (has_two ? std::string("', b = '") + type : "") + "'";
        const std::string source =
            "local flow = sluice.flow { name = 'test', page = 16, fields = { " + fields + " } }\n" + stages + "\nreturn flow\n";
        const FlowGraph graph = trace(source, "test.lua", options);
        const auto fault = check_against_reference(*device, graph, compile(graph).plan);
        EXPECT_EQ(fault.value_or(""), "") << type << ", heads of " << head_dim << ", group " << group << ": " << stages;
      }
    }
  }
}

TEST_F(CudaFlowAttention, FlowsOfEveryKindAgreeWithTheReference) {
  const auto device = create_device("cuda");
  const char* const indexes[] = {
      "return sluice.threshold((q:dot(c.m)):max('head'), { above = 0, first = 1, last = 1, max = 9 })",
      "local s = q:dot(c.m):max('head') return sluice.union(sluice.topk(s, { k = 5, first = 2, last = 3 }), "
      "sluice.window { first = 4, last = 1 })",
      "return sluice.topk((q:dot(c.m):softmax('page'):sum('head')):conv1d({ 0.25, 0.5, 0.25 }, 'page'), { k = 7, last = 1 })",
      "return sluice.topk(q:dot(c.k):softmax('token'):max('token'):mean('head'), { k = 6, last = 1 })",
      "return sluice.approx_topk(q:mean('head'):dot(c.m), { k = 8, last = 1, tolerate = 0 })",
      "return sluice.topk((q:mean('head'):dot(c.m)) - (q:mean('head'):dot(c.m)):mean('page'), { k = 3, last = 1 })",
      "return sluice.union(sluice.topk(q:dot(c.m):max('head'), { k = 3, last = 1 }), sluice.pattern.window(70))",
      "return sluice.union(sluice.topk(q:dot(c.m):max('head'), { k = 3 }), sluice.pattern.strided(5, 33))",
      "return sluice.union(sluice.topk(q:dot(c.m):max('head'), { k = 3 }), sluice.pattern.diag{ offset = 40 }, "
      "sluice.window { first = 1 })",
      "return sluice.union(sluice.window { first = 1 }, sluice.pattern.sink(3) | sluice.pattern.dilated(20, 7))",
  };
  for (const int page : {8, 16, 32, 64, 128}) {
    for (const char* index : indexes) {
      const std::string source = "local flow = sluice.flow { name = 'test', page = " + std::to_string(page) +
                                 ", fields = { m = 'bf16' } }\nfunction flow.cache(c) c.m = c.k:mean('token') end\n" +
                                 "function flow.index(q, c)\n" + index + "\nend\nreturn flow\n";
      const FlowGraph graph = trace(source, "test.lua");
      const auto fault = check_against_reference(*device, graph, compile(graph).plan);
      EXPECT_EQ(fault.value_or(""), "") << "page " << page << ": " << index;
    }
  }
}

TEST_F(CudaFlowAttention, FlowsOverEightBitKeysAndValuesAgreeWithTheReference) {
  const auto device = create_device("cuda");
  for (const DataType kv : {DataType::kE4M3, DataType::kE5M2}) {
    for (const char* name : {"full", "streaming", "block_topk", "quest", "double_sparse", "nsa_topk", "h2o"}) {
      for (const auto& [head_dim, group] : {std::pair{64, 4}, {128, 1}, {256, 9}}) {
        FlowGraph graph = shipped(name, head_dim, group);
        graph.geometry.kv = kv;  // and fields in bf16
        const auto fault = check_against_reference(*device, graph, compile(graph).plan);
        EXPECT_EQ(fault.value_or(""), "") << name << ", " << name_of(kv) << ", heads of " << head_dim << ", group " << group;
      }
    }
  }
  for (const std::string kv : {"e4m3", "e5m2"}) {  // and fields as K and V
    for (const int page : {8, 16, 64}) {
      const std::string source = "local flow = sluice.flow { name = 'test', kv = '" + kv + "', page = " + std::to_string(page) +
                                 " }\nfunction flow.cache(c) c.m = c.k:mean('token') c.hi = c.v:max('token') end\n" +
                                 "function flow.index(q, c)\nlocal s = q:dot(c.m):max('head') + q:mean('head'):dot(c.hi) + " +
                                 "q:dot(c.k):max('token'):mean('head')\n" +
                                 "return sluice.topk(s, { k = 5, first = 1, last = 1 })\nend\nreturn flow\n";
      const FlowGraph graph = trace(source, "test.lua");
      const auto fault = check_against_reference(*device, graph, compile(graph).plan);
      EXPECT_EQ(fault.value_or(""), "") << kv << ", page " << page;
    }
  }
}

/// Everything that some steps of a flow give.
std::vector<uint32_t> bits_of_run(Device& device, const Plan& plan) {
  constexpr int kTokens = 3000;
  const Geometry& geometry = plan.graph.geometry;
  std::mt19937_64 random(3);
  SingleHead head(device, plan, kTokens + 4, 9);
  const size_t dim = geometry.head_dim;
  head.prefill(random_numbers(kTokens * dim, random), random_numbers(kTokens * dim, random));
  std::vector<uint32_t> bits;
  for (int step = 0; step < 4; ++step) {
    const HeadStep got =
        head.decode(random_numbers(dim, random), random_numbers(dim, random), random_numbers(geometry.group * dim, random));
    for (const float score : got.scores) bits.push_back(std::bit_cast<uint32_t>(score));
    for (const int32_t page : got.selected) bits.push_back(static_cast<uint32_t>(page));
    for (const float number : got.output) bits.push_back(std::bit_cast<uint32_t>(number));
  }
  return bits;
}

TEST_F(CudaFlowAttention, TwoRunsGiveTheSameBits) {
  const auto device = create_device("cuda");
  for (const char* name : {"block_topk", "quest", "nsa_topk", "h2o", "random"}) {
    const Plan plan = compile(shipped(name, 128, 4)).plan;
    const std::vector<uint32_t> first = bits_of_run(*device, plan);
    EXPECT_EQ(first, bits_of_run(*device, plan)) << name;
    EXPECT_EQ(first, bits_of_run(*create_device("cuda"), plan)) << name << ", another device object";
  }
}

}  // namespace
}  // namespace sluice::testing
