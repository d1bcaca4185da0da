#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/codegen/attending_path.h"
#include "kernels/cuda/codegen/describe.h"
#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/codegen/refusal.h"
#include "kernels/cuda/runtime/nvrtc.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/text.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/gpu.h"
#include "tests/support/random_flow.h"
#include "tests/support/source_path.h"

// Compiling needs NVRTC, but no GPU.

namespace sluice::testing {
namespace {

using cuda::codegen::FlowLayout;
using cuda::codegen::generate;
using cuda::codegen::GeneratedSource;

class CudaCodegen : public testing::NvrtcTest {
 protected:
  static GeneratedSource generated(const Plan& plan) { return generate(FlowLayout(plan)); }
};

Plan shipped(const std::string& name, int head_dim, int group) {
  TraceOptions options;
  options.head_dim = head_dim;
  options.group = group;
  return compile(trace_file(source_path("scripting/flows/" + name + ".lua"), options)).plan;
}

TEST_F(CudaCodegen, ShippedFlowsCompile) {
  for (const char* name : {"full", "streaming", "block_topk", "quest", "double_sparse", "nsa_topk", "h2o", "random"}) {
    for (const int head_dim : {64, 128, 256}) {
      const GeneratedSource source = generated(shipped(name, head_dim, 4));
      EXPECT_FALSE(cuda::compile_to_cubin(source.text, "sm_90a").empty()) << name;
    }
  }
}

TEST_F(CudaCodegen, CoversCompile) {
  for (const char* name : {"covers/luka", "covers/luka_near", "covers/luka_mixed"}) {
    for (const int head_dim : {64, 128}) {
      const GeneratedSource source = generated(shipped(name, head_dim, 4));
      EXPECT_FALSE(cuda::compile_to_cubin(source.text, "sm_90a").empty()) << name;
      const bool mixed = std::string(name) == "covers/luka_mixed";  // the first of its variants forgets tokens
      ASSERT_EQ(source.cluster_attending_text.empty(), mixed) << source.why_not_attending;
      if (mixed) continue;
      EXPECT_FALSE(cuda::compile_to_cubin(source.cluster_attending_text, "sm_90a").empty()) << name;
    }
  }
}

TEST_F(CudaCodegen, MaximaOfProductsNeverLeaveRegisters) {
  const auto folds = [](const std::string& score, int group) {
    const std::string source = fmt::format(
        "local it = sluice.flow {{ name = 'it', page = 16 }}\n"
        "function it.index(q, c) return sluice.topk({}, {{ k = 2 }}) end\n"
        "return it",
        score);
    const std::string text = generated(compile(trace(source, "it.lua", {.head_dim = 64, .group = group})).plan).text;
    const size_t at = text.find("|= fold_products<");
    return at == std::string::npos ? "" : text.substr(at + 3, text.find(">(", at) - at - 2);
  };
  EXPECT_EQ(folds("c.k:dot(q):max('token', 'head')", 4), "fold_products<Max, QueryShape<4, 4, false>, 16, true>");
  EXPECT_EQ(folds("c.k:dot(q):min('head'):min('token')", 12), "fold_products<Min, QueryShape<4, 12, false>, 16, true>");
  EXPECT_EQ(folds("c.k:dot(q):max('token'):mean('head')", 4), "fold_products<Max, QueryShape<4, 4, false>, 16, false>");
  EXPECT_EQ(folds("c.k:dot(q):max('head'):mean('token')", 4), "") << "lines are not folded";
  EXPECT_EQ(folds("(c.k:dot(q):max('token') + c.k:dot(q):min('token')):mean('head')", 4), "") << "two read the product";
  EXPECT_EQ(folds("c.k:dot(q):mean('token'):mean('head')", 4), "");
}

TEST_F(CudaCodegen, SmallBlocksThatHoldRowsCompile) {
  for (const char* name : {"block_topk", "quest", "nsa_topk"}) {
    const GeneratedSource source = generated(shipped(name, 128, 4));
    EXPECT_FALSE(cuda::compile_to_cubin(source.small_row_text, "sm_90a").empty()) << name;
  }
  EXPECT_TRUE(generated(shipped("streaming", 128, 4)).small_row_text.empty());
}

TEST_F(CudaCodegen, KernelsThatAttendCompile) {
  for (const char* name : {"block_topk", "quest"}) {
    for (const int head_dim : {64, 128}) {
      for (const int group : {1, 5, 16}) {
        const GeneratedSource source = generated(shipped(name, head_dim, group));
        for (const std::string* text : {&source.attending_text, &source.cluster_attending_text}) {
          EXPECT_FALSE(cuda::compile_to_cubin(*text, "sm_90a").empty()) << name << ", " << head_dim << ", " << group;
        }
      }
    }
  }
  for (const DataType kv : {DataType::kE4M3, DataType::kE5M2}) {
    TraceOptions options;
    options.head_dim = 128;
    options.group = 4;
    FlowGraph graph = trace_file(source_path("scripting/flows/block_topk.lua"), options);
    graph.geometry.kv = kv;
    const GeneratedSource source = generated(compile(graph).plan);
    for (const std::string* text : {&source.attending_text, &source.cluster_attending_text}) {
      EXPECT_FALSE(cuda::compile_to_cubin(*text, "sm_90a").empty()) << name_of(kv);
    }
  }
}

TEST_F(CudaCodegen, ApproximateSelectionsCompileEverywhere) {
  const auto drawn = [&](const char* tolerate) {
    const std::string script = std::string(R"(
      local flow = sluice.flow { name = "drawn", page = 16 }
      function flow.cache(c) c.centroid = c.k:mean("token") end
      function flow.index(q, c)
        local score = q:mean("head"):dot(c.centroid)
        return sluice.approx_topk(score, { k = 61, first = 1, last = 2, tolerate = )") +
                               tolerate + " })\nend\nreturn flow";
    return generated(compile(trace(script, "drawn.lua", {.head_dim = 128, .group = 4})).plan);
  };
  const GeneratedSource source = drawn("0.05");
  for (const std::string* text : {&source.text, &source.small_row_text, &source.attending_text, &source.cluster_attending_text}) {
    EXPECT_NE(text->find("select_about(blocks"), std::string::npos);
    EXPECT_FALSE(cuda::compile_to_cubin(*text, "sm_90a").empty());
  }
  EXPECT_EQ(drawn("0").text.find("select_about(blocks, selection"), std::string::npos) << "nothing is drawn";
}

TEST_F(CudaCodegen, OnlyFlowsThatKeepTheNewestPageAttendWhereTheySelect) {
  const auto attends = [](const std::string& selection) {
    const std::string text =
        "local flow = sluice.flow { name = 'test', page = 16 }\nfunction flow.cache(c) c.m = c.k:mean('token') end\n"
        "function flow.index(q, c) local s = q:mean('head'):dot(c.m) return " +
        selection + " end\nreturn flow\n";
    TraceOptions options;
    options.head_dim = 128;
    options.group = 4;
    const GeneratedSource source = generated(compile(trace(text, "test.lua", options)).plan);
    EXPECT_EQ(source.attending.name.empty(), source.attending_text.empty());
    EXPECT_EQ(source.attending.name.empty(), source.cluster_attending.name.empty());
    EXPECT_EQ(source.attending.name.empty(), source.cluster_attending_text.empty());
    return !source.attending.name.empty();
  };
  EXPECT_TRUE(attends("sluice.topk(s, { k = 5, last = 1 })"));
  EXPECT_TRUE(attends("sluice.union(sluice.topk(s, { k = 5, last = 2 }), sluice.window { first = 4, last = 1 })"));
  EXPECT_FALSE(attends("sluice.topk(s, { k = 5 })"));
  EXPECT_FALSE(attends("sluice.topk(s:softmax('page'), { k = 5, last = 1 })"));
  EXPECT_FALSE(attends("sluice.threshold(s, { above = 0, last = 1 })"));
  EXPECT_FALSE(attends("sluice.union(sluice.topk(s, { k = 5, last = 1 }), sluice.topk(-s, { k = 5, last = 1 }))"));
  EXPECT_FALSE(attends("sluice.window { first = 1, last = 4 }"));
}

TEST_F(CudaCodegen, AttendsWhereBlocksFillTheGpuAndRowsFit) {
  const Plan plan = shipped("block_topk", 128, 2);
  const FlowLayout layout(plan);
  const cuda::codegen::AttendingKernel kernel = generate(layout).attending;
  const auto path = [&](int sequences, int kv_heads, int pages) {
    constexpr size_t kShared = 226 << 10;
    return attending_path(layout, kernel, leaf_selections(plan.graph), cuda::codegen::attending_blocks(sequences, kv_heads, 132),
                          pages, kShared);
  };
  EXPECT_EQ(path(64, 8, 512).blocks, 128);
  EXPECT_EQ(path(64, 8, 512).own_rows, 4);
  EXPECT_EQ(path(64, 8, 513).held_pages, 544);
  EXPECT_EQ(path(64, 8, 512).list_room, 64);  // an eighth of the pages, the first and the last two among them
  EXPECT_EQ(path(64, 8, 2).list_room, 2);
  EXPECT_EQ(path(66, 8, 512).blocks, 132);
  EXPECT_EQ(path(67, 8, 512).blocks, 0);
  EXPECT_EQ(path(50, 8, 512).blocks, 100);
  EXPECT_EQ(path(49, 8, 512).blocks, 0);
  EXPECT_EQ(path(52, 8, 1024).blocks, 104);
  EXPECT_EQ(path(52, 8, 4096).blocks, 0);
  EXPECT_EQ(path(110, 3, 100).own_rows, 3);
  EXPECT_EQ(path(110, 2, 100).blocks, 0);
  EXPECT_TRUE(cuda::codegen::may_attend(kernel, 8, 226 << 10));
  EXPECT_FALSE(cuda::codegen::may_attend(kernel, 2, 226 << 10));
  EXPECT_FALSE(cuda::codegen::may_attend(cuda::codegen::AttendingKernel{}, 8, 226 << 10));
}

TEST_F(CudaCodegen, SummariesComeInTurnWhereNotAllFit) {
  const cuda::codegen::ClustersAtOnce at_once{0, 132, 66, 43, 31, 25, 21, 16, 14, 8, 8, 8, 8, 7, 7, 7, 6};
  const auto path = [&](const char* name, int head_dim, int rows, int pages) {
    const Plan plan = shipped(name, head_dim, 4);
    const FlowLayout layout(plan);
    constexpr size_t kShared = 226 << 10;
    const auto found = cluster_attending_path(layout, generate(layout).cluster_attending, leaf_selections(plan.graph),
                                              {.at_once = at_once, .most_shared = kShared}, rows, pages);
    EXPECT_LE(found.shared_bytes, kShared);
    return found;
  };
  const auto all = path("covers/luka", 64, 32, 1000);
  EXPECT_EQ(all.cluster, 3);
  EXPECT_EQ(all.rings.summary_turns, 2) << "eleven tiles of eight warps";
  EXPECT_EQ(all.rings.value_stages, 4);
  const auto in_turn = path("covers/luka", 128, 128, 1000);
  EXPECT_EQ(in_turn.cluster, 1);
  EXPECT_LT(in_turn.rings.summary_turns, 4) << "32 tiles of eight warps";
  EXPECT_GE(in_turn.rings.summary_turns, 1);
  EXPECT_GE(in_turn.rings.stages, 2);
  EXPECT_EQ(path("covers/luka_near", 128, 128, 1000).cluster, 0) << "more warps score heavy pages in less time";
  EXPECT_EQ(path("covers/luka_near", 64, 32, 1000).cluster, 3);
}

TEST_F(CudaCodegen, BlocksShareAMultiprocessorWhereClustersDoNotFindTheirPlacesAlone) {
  const cuda::codegen::ClustersAtOnce at_once{0, 132, 66, 43, 31, 25, 21, 16, 14, 8, 8, 8, 8, 7, 7, 7, 6};
  const cuda::codegen::ClustersAtOnce in_pairs{0, 264, 132, 86, 62, 50, 42, 32, 28, 16, 16, 16, 16, 14, 14, 14, 12};
  const auto path = [&](const char* name, int head_dim, int rows, int pages, size_t half) {
    const Plan plan = shipped(name, head_dim, 4);
    const FlowLayout layout(plan);
    const cuda::codegen::ClusterAttendingKernel kernel = generate(layout).cluster_attending;
    cuda::codegen::ClusterLimits limits{.at_once = at_once, .most_shared = 226 << 10};
    if (kernel.most_blocks > 1) {
      limits.in_pairs = in_pairs;
      limits.most_shared_in_pairs = half;
    }
    return cluster_attending_path(layout, kernel, leaf_selections(plan.graph), limits, rows, pages);
  };
  constexpr size_t kHalf = 106 << 10;
  const auto four = path("covers/luka", 64, 32, 1000, kHalf);
  EXPECT_EQ(four.cluster, 4);
  EXPECT_LE(four.shared_bytes, kHalf);
  EXPECT_EQ(four.rings.stages, 2) << "sixteen tiles of eight warps";
  EXPECT_EQ(four.rings.summary_turns, 1) << "eight tiles of eight warps";
  EXPECT_EQ(four.rings.value_stages, 1) << "twelve pages of 32 warps";
  EXPECT_EQ(path("covers/luka", 64, 32, 1000, 64 << 10).cluster, 3) << "no room";
  EXPECT_EQ(path("covers/luka", 64, 34, 1000, kHalf).cluster, 3) << "more than one for each multiprocessor";
  EXPECT_EQ(path("covers/luka", 64, 31, 1000, kHalf).rings.value_stages, 4) << "alone";
  EXPECT_EQ(path("covers/luka", 128, 32, 1000, kHalf).cluster, 3) << "no registers";
}

TEST_F(CudaCodegen, AClusterAttendsWhereRowsAreFewAndFit) {
  const Plan plan = shipped("block_topk", 128, 2);
  const FlowLayout layout(plan);
  const cuda::codegen::ClusterAttendingKernel kernel = generate(layout).cluster_attending;
  const cuda::codegen::ClustersAtOnce at_once{0, 132, 66, 43, 31, 25, 21, 16, 14, 8, 8, 8, 8, 7, 7, 7, 6};
  const auto path = [&](int rows, int pages) {
    constexpr size_t kShared = 226 << 10;
    return cluster_attending_path(layout, kernel, leaf_selections(plan.graph), {.at_once = at_once, .most_shared = kShared}, rows,
                                  pages);
  };
  EXPECT_EQ(path(133, 512).cluster, 0);
  EXPECT_EQ(path(132, 512).cluster, 1);
  EXPECT_EQ(path(67, 512).cluster, 1);
  EXPECT_EQ(path(66, 512).cluster, 2);
  EXPECT_EQ(path(32, 512).cluster, 3);
  EXPECT_EQ(path(31, 512).cluster, 4);
  EXPECT_EQ(path(8, 512).cluster, 12);
  EXPECT_EQ(path(6, 512).cluster, 16);
  EXPECT_EQ(path(6, 1).cluster, 16) << "replayed steps have a bound on their pages, and are to give the same bits";
  EXPECT_EQ(path(32, 513).held_pages, 544);
  EXPECT_EQ(path(32, 512).list_room, 64);
  EXPECT_GT(path(32, 512).rings.stages, path(32, 4096).rings.stages);
  EXPECT_EQ(path(32, 4097).cluster, 0) << "too long for four warps";
  EXPECT_EQ(path(67, 2048).cluster, 1);
  EXPECT_EQ(path(67, 2049).cluster, 0) << "too long for a block";
  EXPECT_TRUE(may_attend(kernel, 226 << 10));
  EXPECT_FALSE(may_attend(kernel, 100 << 10));
  EXPECT_FALSE(may_attend(cuda::codegen::ClusterAttendingKernel{}, 226 << 10));
  EXPECT_LE(path(32, 4096).shared_bytes, 226U << 10);
}

TEST_F(CudaCodegen, FlowsOverEightBitKeysCompile) {
  for (const std::string kv : {"e4m3", "e5m2"}) {
    const std::string text =
        "local flow = sluice.flow { name = 'test', page = 16, kv = '" + kv +
        "' }\nfunction flow.cache(c) c.m = c.k:mean('token') end\n" +
        "function flow.index(q, c) return sluice.topk(q:mean('head'):dot(c.m), { k = 5 }) end\nreturn flow\n";
    TraceOptions options;
    options.head_dim = 128;
    options.group = 4;
    const GeneratedSource source = generated(compile(trace(text, "test.lua", options)).plan);
    EXPECT_NE(source.text.find(kv == "e4m3" ? "Eight<Byte<E4M3>>::ask(" : "Eight<Byte<E5M2>>::ask("), std::string::npos);
    EXPECT_FALSE(cuda::compile_to_cubin(source.text, "sm_90a").empty()) << kv;
  }
}

TEST_F(CudaCodegen, RandomFlowsCompile) {
  for (uint64_t seed = 1000; seed < 1030; ++seed) {
    const FlowGraph graph = random_flow(seed);
    const GeneratedSource source = generated(compile(graph).plan);
    EXPECT_NO_THROW(cuda::compile_to_cubin(source.text, "sm_90a")) << "seed " << seed << "\n" << to_text(graph);
    for (const std::string* text : {&source.attending_text, &source.cluster_attending_text}) {
      if (text->empty()) continue;
      EXPECT_NO_THROW(cuda::compile_to_cubin(*text, "sm_90a")) << "seed " << seed << "\n" << to_text(graph);
    }
  }
}

TEST_F(CudaCodegen, FlowsThatReadTheSameAgainAndAgainCompile) {
  const std::string index[] = {
      // What many kernels read of the query is kept in rows.
      "local v, t = q:max('head'), 1 for i = 1, 90 do t = (v * t):mean('dim') end local s = t "
      "for i = 1, 12 do s = (c.m * s + t):mean('dim'):mean('page') + t end return sluice.topk((c.m * s):mean('dim'), {k = 4})",
      "local k, s = {}, sluice.position() for i = 1, 129 do k[i] = i / 64 end for i = 1, 3 do s = s:conv1d(k) end "
      "return sluice.topk(s:conv1d{0.5, 1, 0.5}, {k = 4, last = 1})"};
  for (const std::string& text : index) {
    const FlowGraph graph = trace(
        "local flow = sluice.flow { name = 'again', page = 16 }\n"
        "function flow.cache(c) c.m = c.k:mean('token') end\nfunction flow.index(q, c) " +
            text + " end\nreturn flow",
        "again.lua", {.head_dim = 128, .group = 4});
    const Plan plan = compile(graph).plan;
    EXPECT_FALSE(cuda::codegen::refusal_of(plan)) << text;
    EXPECT_FALSE(cuda::compile_to_cubin(generated(plan).text, "sm_90a").empty()) << text;
  }
}

TEST_F(CudaCodegen, ReadsFieldsInPieces) {
  const GeneratedSource source = generated(shipped("quest", 128, 4));
  EXPECT_EQ(source.index.size(), 1U);
  EXPECT_NE(source.text.find("Eight<BF16>::ask("), std::string::npos);
  EXPECT_NE(source.text.find("combine_lanes<Add, 8, 16>"), std::string::npos);  // two pages of four heads at once
}

TEST_F(CudaCodegen, ErrorsNameTheOperatorAndItsLineInTheScript) {
  std::string text = generated(shipped("quest", 128, 4)).text;
  const size_t comment = text.rfind("// %");
  ASSERT_NE(comment, std::string::npos);
  text.insert(text.find('\n', comment), "\nno_such_function();");
  try {
    cuda::compile_to_cubin(text, "sm_90a");
    FAIL() << "it compiled";
  } catch (const InternalError& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("no_such_function"), std::string::npos) << said;
    EXPECT_NE(said.find("operator: %"), std::string::npos) << said;
    EXPECT_NE(said.find("quest.lua:"), std::string::npos) << said;
  }
}

TEST_F(CudaCodegen, KeepsRowsOfStatesInOneLaunchAfterTheScores) {
  const GeneratedSource source = generated(shipped("h2o", 128, 4));
  ASSERT_EQ(source.index.size(), 2U);
  EXPECT_FALSE(source.index[0].by_row);
  EXPECT_TRUE(source.index[1].by_row);
}

TEST_F(CudaCodegen, ShippedFlowsHoldRowsOnChip) {
  for (const char* name : {"block_topk", "quest", "double_sparse", "nsa_topk", "h2o", "random"}) {
    EXPECT_EQ(generated(shipped(name, 128, 4)).why_not_whole_rows, "") << name;
  }
  EXPECT_NE(generated(shipped("streaming", 128, 4)).why_not_whole_rows, "");
}

TEST_F(CudaCodegen, QuestsFieldsAreOneCopyAndTwoProducts) {
  const GeneratedSource source = generated(shipped("quest", 128, 4));
  EXPECT_NE(source.text.find("multiply_lines<QueryShape<8, 4, false>, Bound::kUpper, 1, BF16>"), std::string::npos);
  EXPECT_EQ(source.row.stage_bytes, 8 * (2 * 256 + 16));  // tiles of eight pages
}

TEST_F(CudaCodegen, TheNewestPagesFieldsAreWaitedForWithoutCopies) {
  const FlowGraph graph = trace(R"(
local flow = sluice.flow { name = "norms", page = 16 }
function flow.cache(c) c.norm = c.k:l2norm("dim"):max("token") end
function flow.index(q, c) return sluice.topk(c.norm, { k = 4 }) end
return flow)",
                                "norms.lua");
  const GeneratedSource source = generated(compile(graph).plan);
  EXPECT_EQ(source.row.stage_bytes, 0);
  EXPECT_NE(source.text.find("if (a.refreshes && has_newest) __syncthreads();"), std::string::npos);
  EXPECT_FALSE(cuda::compile_to_cubin(source.text, "sm_90a").empty());
}

TEST_F(CudaCodegen, SaysWhichOperatorKeepsRowsOffTheChip) {
  const FlowGraph graph = trace(R"(
local flow = sluice.flow { name = "norms", page = 16 }
function flow.cache(c) c.m = c.k:mean("token") end
function flow.index(q, c) return sluice.topk(c.m:l2norm("dim"), { k = 4, last = 1 }) end
return flow)",
                                "norms.lua");
  const GeneratedSource source = generated(compile(graph).plan);
  EXPECT_NE(source.why_not_whole_rows.find("l2norm"), std::string::npos);
  EXPECT_TRUE(source.row.name.empty());
}

TEST_F(CudaCodegen, DescriptionsTellExactSelectionsFromOthers) {
  const auto described = [](const std::string& selection) {
    const FlowGraph graph = trace(R"(
local flow = sluice.flow { name = "any", page = 16 }
function flow.cache(c) c.m = c.k:mean("token") end
function flow.index(q, c) local s = q:dot(c.m):mean("head") return )" +
                                      selection + " end\nreturn flow",
                                  "any.lua");
    return cuda::codegen::describe(compile(graph).plan, {});
  };
  const std::string exact = "scores, exact selection, the list";
  EXPECT_NE(described("sluice.topk(s, { k = 4, last = 1 })").find(exact), std::string::npos);
  EXPECT_NE(described("sluice.approx_topk(s, { k = 4, last = 1, tolerate = 0 })").find(exact), std::string::npos);
  EXPECT_NE(
      described("sluice.approx_topk(s, { k = 4, last = 1, tolerate = 0.1 })").find("scores, approximate selection, the list"),
      std::string::npos);
  EXPECT_NE(described("sluice.union(sluice.topk(s, { k = 4, last = 1 }), sluice.approx_topk(s, { k = 2, tolerate = 0.1 }))")
                .find("scores, exact selection, approximate selection, the list"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
