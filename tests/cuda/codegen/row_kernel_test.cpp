// The index stage in one kernel, beside the same in several.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "scripting/lua/trace.h"
#include "tests/cuda/codegen/row_problem.h"
#include "tests/support/source_path.h"

namespace sluice::testing {
namespace {

using cuda::CudaFlow;
using cuda::FlowResult;

void expect_one_kernel_like_several(const RowProblem& problem) {
  CudaFlow flow(problem.plan(), 3, kHeads);
  ASSERT_GT(flow.path(problem.sequences(), problem.most_pages()).cluster, 0);
  const RowSelections one = given(problem, problem.select(flow));
  expect_best(problem, one);
  expect_same(one, given(problem, problem.select(flow)));
  expect_same_selection(one, given(problem, problem.select(flow, nullptr, false)));
  CudaFlow several(problem.plan(), 3, kHeads);
  several.use_several_kernels();
  expect_same(one, given(problem, problem.select(several)));
}

std::vector<int32_t> lengths_of(int sequences, int pages) {
  std::vector<int32_t> lengths;
  for (int s = 0; s < sequences; ++s)
    lengths.push_back(std::max(1, pages * kGeometry.page * (sequences - s) / sequences - 3 * s));
  return lengths;
}

using CudaRowKernel = GpuTest;

TEST_F(CudaRowKernel, SelectsWhatSeveralKernelsSelect) {
  for (const auto& [sequences, pages] :
       {std::pair{1, 1}, {1, 4}, {2, 33}, {3, 700}, {1, 5000}, {5, 3001}, {16, 2048}, {64, 300}, {1, 65'536}}) {
    SCOPED_TRACE(fmt::format("{} sequences of {} pages", sequences, pages));
    const std::vector<int32_t> lengths = lengths_of(sequences, pages);
    expect_one_kernel_like_several(RowProblem(quest_graph(kGeometry, GraphBuilder::budget(37, 1, 2)), lengths));
    expect_one_kernel_like_several(RowProblem(mean_score_graph(kGeometry, GraphBuilder::budget(125, 0, 1)), lengths));
  }
}

TEST_F(CudaRowKernel, KeepsLowerPagesOnPlateaus) {
  for (const int pages : {130, 2047, 2048, 9000}) {
    for (const int levels : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} pages, {} levels", pages, levels));
      expect_one_kernel_like_several(
          RowProblem(quest_graph(kGeometry, GraphBuilder::budget(pages / 3, 2, 1)), lengths_of(2, pages), {.levels = levels}));
    }
  }
}

TEST_F(CudaRowKernel, TakesInfinitiesAndNaNAsTheyAre) {
  for (const int pages : {50, 2047, 2048, 20'000}) {
    SCOPED_TRACE(pages);
    const RowContent content{.levels = 5, .specials = true};
    expect_one_kernel_like_several(
        RowProblem(quest_graph(kGeometry, GraphBuilder::budget(pages / 2, 1, 1)), lengths_of(2, pages), content));
    expect_one_kernel_like_several(
        RowProblem(mean_score_graph(kGeometry, GraphBuilder::budget(pages / 2, 1, 1)), lengths_of(2, pages), content));
  }
}

TEST_F(CudaRowKernel, FoldsWhatTokensScoreAsSeveralKernelsDo) {
  for (const char* score :
       {"c.k:dot(q):max('token', 'head')", "c.k:dot(q):max('token'):mean('head')", "c.k:dot(q):min('head', 'token')",
        "c.k:dot(q):max('head'):mean('token')", "c.near:dot(q):max('token', 'head')", "c.near:dot(q):min('token'):max('head')",
        "c.near:dot(q:mean('head')):max('token')", "c.some:dot(q):max('sub', 'head')"}) {
    const std::string source = fmt::format(
        "local it = sluice.flow {{ name = 'it', page = 8, fields = {{ near = 'e4m3' }} }}\n"
        "function it.cache(c) c.near = c.k c.some = c.k:max_interleave('token', 2) end\n"
        "function it.index(q, c) return sluice.topk({}, {{ k = 21, first = 1, last = 2 }}) end\n"
        "return it",
        score);
    const FlowGraph graph = trace(source, "it.lua", {.head_dim = kGeometry.head_dim, .group = kGeometry.group});
    for (const bool specials : {false, true}) {
      for (const auto& [sequences, pages] : {std::pair{1, 3}, {2, 33}, {3, 700}, {1, 5000}, {16, 300}}) {
        SCOPED_TRACE(fmt::format("{}, {} sequences of {} pages", score, sequences, pages));
        expect_one_kernel_like_several(RowProblem(graph, lengths_of(sequences, pages), {.levels = 7, .specials = specials}));
      }
    }
  }
}

TEST_F(CudaRowKernel, EveryNumberOfBlocksHoldsRows) {
  CudaFlow flow(compile(quest_graph(kGeometry, GraphBuilder::budget(37, 1, 2))).plan, 3, kHeads);
  std::vector<int> clusters;
  for (const int sequences : {1, 4, 9, 18, 40, 80}) clusters.push_back(flow.path(sequences, 8192).cluster);
  EXPECT_TRUE(std::is_sorted(clusters.rbegin(), clusters.rend()));
  EXPECT_GE(clusters.front(), 8);
  EXPECT_EQ(clusters.back(), 1);
  EXPECT_EQ(flow.path(2, 2047).cluster, 1);
  EXPECT_EQ(flow.path(2, 2048).cluster, 2);
  for (const int sequences : {1, 4, 9, 18, 40, 80}) {
    SCOPED_TRACE(sequences);
    expect_one_kernel_like_several(RowProblem(quest_graph(kGeometry, GraphBuilder::budget(37, 1, 2)),
                                              lengths_of(sequences, 8192 / std::max(1, sequences / 4))));
  }
}

TEST_F(CudaRowKernel, ManyRowsTakeSmallerBlocks) {
  const FlowGraph graph = mean_score_graph(kGeometry, GraphBuilder::budget(37, 1, 2));
  const CudaFlow flow(compile(graph).plan, 3, kHeads);
  EXPECT_EQ(flow.path(4, 300).threads, cuda::kRowThreads);
  EXPECT_EQ(flow.path(200, 300).threads, cuda::kSmallRowThreads);
  for (const int pages : {3, 300, 1100}) {
    SCOPED_TRACE(pages);
    for (const int levels : {1, 5}) {
      expect_one_kernel_like_several(RowProblem(graph, lengths_of(200, pages), {.levels = levels, .specials = levels > 1}));
    }
  }
}

TEST_F(CudaRowKernel, DrawsWhatTheCpuDrawsByTheSameScores) {
  for (const double tolerate : {0.05, 0.6}) {
    for (const auto& [sequences, pages] :
         {std::pair{1, 4}, {3, 700}, {1, 5000}, {5, 3001}, {16, 2048}, {64, 300}, {200, 300}, {1, 65'536}}) {
      for (const RowContent& content : {RowContent{.levels = 3}, RowContent{.levels = 100},
                                        RowContent{.levels = 5, .specials = true}, RowContent{.levels = 5, .misleads = true}}) {
        SCOPED_TRACE(fmt::format("{} sequences of {} pages, {} levels, tolerate {}", sequences, pages, content.levels, tolerate));
        FlowGraph graph = mean_score_graph(kGeometry, GraphBuilder::budget(2, 1, 2));
        Node& selection = graph.nodes[static_cast<size_t>(graph.selection())];
        selection.op = Op::kApproxTopK;
        selection.attributes.tolerate = tolerate;
        selection.attributes.ratio = 1.0 / 8;
        expect_one_kernel_like_several(RowProblem(graph, lengths_of(sequences, pages), content));
      }
    }
  }
}

TEST_F(CudaRowKernel, RowsThatDoNotFitTakeSeveralKernels) {
  const CudaFlow flow(compile(quest_graph(kGeometry, GraphBuilder::budget(37, 1, 2))).plan, 3, kHeads);
  EXPECT_EQ(flow.path(1, 4'000'000).cluster, 0);
  EXPECT_NE(flow.describe_path(1, 4'000'000).find("too long"), std::string::npos);
  EXPECT_NE(flow.describe_path(1, 4'000).find("one kernel"), std::string::npos);
}

TEST_F(CudaRowKernel, BlocksOfACoverShareMultiprocessorsWhereClustersDoNotFindTheirPlacesAlone) {
  TraceOptions heads;
  heads.head_dim = 64;
  heads.group = 4;
  const auto path_of = [&](const char* name, int sequences) {
    CudaFlow flow(compile(trace_file(testing::source_path("scripting/flows/" + std::string(name) + ".lua"), heads)).plan, 3, 2);
    flow.reserve(sequences, 1000);
    return flow.describe_path(sequences, 1000);
  };
  if (cuda::multiprocessors() != 132) GTEST_SKIP() << "clusters of another GPU";
  EXPECT_NE(path_of("covers/luka", 16).find("4 blocks of 256 threads"), std::string::npos) << path_of("covers/luka", 16);
  EXPECT_NE(path_of("block_topk", 16).find("3 blocks of 256 threads"), std::string::npos) << path_of("block_topk", 16);
}

TEST_F(CudaRowKernel, CapturedLaunchesFollowLengths) {
  const std::vector<int32_t> longest{8 * 3000, 8 * 2500, 8 * 3000};
  RowProblem problem(quest_graph(kGeometry, GraphBuilder::budget(61, 1, 2)), longest);
  CudaFlow flow(problem.plan(), 3, kHeads);
  const FlowResult result = problem.select(flow);
  cudaStream_t stream = nullptr;
  SLUICE_CHECK_CUDA(cudaStreamCreate(&stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  SLUICE_CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  problem.select(flow, stream);
  SLUICE_CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  SLUICE_CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (const std::vector<int32_t>& lengths :
       {std::vector<int32_t>{1, 9, 8 * 70}, {8 * 64, 8 * 64 + 1, 5000}, {8 * 2999 + 5, 7, 8 * 3000}, {0, 8 * 40, 100}}) {
    problem.set_lengths(lengths);
    SLUICE_CHECK_CUDA(cudaGraphLaunch(executable, stream));
    SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream));
    expect_best(problem, given(problem, result));
  }
  SLUICE_CHECK_CUDA(cudaGraphExecDestroy(executable));
  SLUICE_CHECK_CUDA(cudaGraphDestroy(graph));
  SLUICE_CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace sluice::testing
