// Selections that begin with what a request selected last.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/flow/state.h"
#include "tests/cuda/codegen/row_problem.h"

namespace sluice::testing {
namespace {

using cuda::CudaFlow;
using cuda::DeviceMemory;

using CudaRowHints = GpuTest;

/// Requests as an engine has them: each keeps what it selected last.
class Requests {
 public:
  Requests(const CudaFlow& flow, int count, int most_pages) : blocks_(count * sizeof(cuda::HintBlock)) {
    for (int i = 0; i < count; ++i) states_.push_back(flow.create_state(most_pages));
  }

  /// For a batch of these requests, in this order.
  const cuda::HintBlock* batch(const std::vector<int>& requests) {
    std::vector<cuda::HintBlock> blocks;
    for (const int request : requests) blocks.push_back(block(request));
    blocks_.upload(blocks.data(), blocks.size() * sizeof(cuda::HintBlock));
    return blocks_.as<cuda::HintBlock>();
  }
  cuda::HintBlock block(int request) const {
    return dynamic_cast<const cuda::CudaFlowState&>(*states_.at(static_cast<size_t>(request))).hints();
  }
  /// Of one of its lists and KV heads.
  std::vector<int32_t> kept(int request, int list, int head) const {
    const cuda::HintBlock hints = block(request);
    std::vector<int32_t> kept(static_cast<size_t>(hints.stride));
    SLUICE_CHECK_CUDA(cudaMemcpy(kept.data(), hints.lists + (static_cast<int64_t>(list) * kHeads + head) * hints.stride,
                                 kept.size() * sizeof(int32_t), cudaMemcpyDeviceToHost));
    return kept;
  }
  void reset(int request) { states_.at(static_cast<size_t>(request))->reset(); }

 private:
  std::vector<std::unique_ptr<RequestState>> states_;
  DeviceMemory blocks_;
};

TEST_F(CudaRowHints, WhatARequestSelectedLastIsAHintThatChangesNothing) {
  constexpr int kPages = 40'000;
  for (const int levels : {2, 1000}) {
    RowProblem problem(mean_score_graph(kGeometry, GraphBuilder::budget(2500, 1, 2)), {8 * kPages, 8 * kPages - 3},
                       {.levels = levels});
    CudaFlow flow(problem.plan(), 3, kHeads);
    EXPECT_EQ(flow.create_state(kPages), nullptr) << "rows that are held on chip need no hints";
    flow.use_several_kernels();
    EXPECT_EQ(flow.create_state(1000), nullptr) << "short rows are faster without";
    Requests requests(flow, 3, kPages);
    const auto is_hinted = [&](int sequences) {
      return flow.describe_path(sequences, kPages).find("last step selected") != std::string::npos;
    };
    EXPECT_TRUE(is_hinted(2));
    EXPECT_FALSE(is_hinted(40));
    // Hints of none, of the same, of shorter and of longer rows; requests that change places, come and go.
    struct Step {
      std::vector<int32_t> lengths;
      std::vector<int> requests;
    };
    const Step steps[] = {{{8 * kPages, 8 * kPages - 3}, {0, 1}}, {{8 * kPages, 8 * kPages - 3}, {0, 1}},
                          {{8 * kPages, 8 * kPages - 3}, {1, 0}}, {{800, 90'000}, {2, 0}},
                          {{0, 8 * kPages - 8}, {1, 2}},          {{8 * kPages, 300'000}, {2, 1}}};
    for (const Step& step : steps) {
      problem.set_lengths(step.lengths);
      expect_best(problem, given(problem, problem.select(flow, nullptr, true, 1, requests.batch(step.requests))));
    }
    expect_best(problem, given(problem, problem.select(flow)));  // nobody keeps anything
  }
}

TEST_F(CudaRowHints, EveryMethodSelectsTheSamePages) {
  for (const int pages : {5, 50, 700, 12'000}) {
    for (const RowContent& content :
         {RowContent{.levels = 1}, {.levels = 2}, {.levels = 5, .specials = true}, {.levels = 1000}}) {
      for (const int k : {1, pages / 8 + 1, pages / 2}) {
        SCOPED_TRACE(fmt::format("{} pages of {} levels, {}", pages, content.levels, k));
        FlowGraph graph = mean_score_graph(kGeometry, GraphBuilder::budget(k, 1, 2));
        const auto with = [&](TopKMethod method) {
          graph.nodes[graph.selection()].attributes.method = method;
          return RowProblem(graph, {kGeometry.page * pages, kGeometry.page * (pages - 1) + 3}, content);
        };
        const RowProblem by_any = with(TopKMethod::kAuto);
        CudaFlow any(by_any.plan(), 3, kHeads);
        const RowSelections wanted = given(by_any, by_any.select(any));
        expect_best(by_any, wanted);

        const RowProblem by_radix = with(TopKMethod::kRadix);
        for (const bool several : {false, true}) {
          CudaFlow radix(by_radix.plan(), 3, kHeads);
          EXPECT_EQ(radix.source(), any.source()) << "on chip there is no other method";
          if (several) radix.use_several_kernels();
          expect_same_selection(given(by_radix, by_radix.select(radix)), wanted);
        }

        const RowProblem by_gvr = with(TopKMethod::kGvr);
        CudaFlow gvr(by_gvr.plan(), 3, kHeads);
        EXPECT_EQ(gvr.path(2, pages).cluster, 0) << "a row on chip has no hints";
        EXPECT_NE(gvr.describe_path(2, pages).find("last step selected"), std::string::npos);
        EXPECT_THROW(by_gvr.select(gvr), InternalError) << "nobody keeps what it selects";
        Requests requests(gvr, 2, pages);
        for (int step = 0; step < 3; ++step) {
          expect_same_selection(given(by_gvr, by_gvr.select(gvr, nullptr, true, 1, requests.batch({0, 1}))), wanted);
        }
        if (k + 3 >= pages - 1) continue;  // nothing was searched for
        const std::vector<int32_t> kept = requests.kept(1, 1, 0);
        ASSERT_EQ(kept.size(), static_cast<size_t>(k));
        for (int i = 0; i < k; ++i) ASSERT_EQ(kept[i] + 1, wanted.positions[kHeads][i + 1]) << i;
      }
    }
  }
}

TEST_F(CudaRowHints, HintsBelongToRequestsWhereverTheyAreInABatch) {
  constexpr int kPages = 40'000;
  constexpr int kFirst = 1;
  const RowProblem problem(mean_score_graph(kGeometry, GraphBuilder::budget(2500, kFirst, 2)), {8 * kPages, 8 * (kPages - 1000)},
                           {.levels = 1000});
  CudaFlow flow(problem.plan(), 3, kHeads);
  flow.use_several_kernels();
  Requests requests(flow, 3, kPages);
  const auto expect_kept = [&](int request, int place, int layer, const RowSelections& selection) {
    for (int head = 0; head < kHeads; ++head) {
      const std::vector<int32_t> kept = requests.kept(request, layer, head);
      const std::vector<int32_t>& selected = selection.positions.at(static_cast<size_t>(place * kHeads + head));
      ASSERT_EQ(selected.size(), 2503U);
      for (int i = 0; i < 2500; ++i) {
        ASSERT_EQ(kept.at(static_cast<size_t>(i)) + kFirst, selected.at(static_cast<size_t>(i + kFirst))) << request << ", " << i;
      }
    }
  };
  const auto expect_none = [&](int request, int layer) {
    const std::vector<int32_t> kept = requests.kept(request, layer, 0);
    EXPECT_TRUE(std::all_of(kept.begin(), kept.end(), [](int32_t page) { return page == -1; })) << request;
  };
  const RowSelections first = given(problem, problem.select(flow, nullptr, true, 1, requests.batch({2, 0})));
  expect_kept(2, 0, 1, first);
  expect_kept(0, 1, 1, first);
  expect_none(1, 1);
  expect_none(2, 0);
  expect_none(2, 2);
  const RowSelections second = given(problem, problem.select(flow, nullptr, true, 1, requests.batch({0, 1})));
  expect_kept(0, 0, 1, second);
  expect_kept(1, 1, 1, second);
  expect_kept(2, 0, 1, first);  // it was not in the batch
  requests.reset(2);
  expect_none(2, 1);
}

TEST_F(CudaRowHints, SelectionsOfAUnionKeepApartWhatTheyLastTook) {
  GraphBuilder b(kGeometry);
  b.field("centre", b.cache(Op::kMean, {b.cache(Op::kKey)}, GraphBuilder::along(Axis::kToken)));
  const NodeId products = b.index(Op::kContract, {b.index(Op::kQuery), b.read_field("centre")}, GraphBuilder::along(Axis::kDim));
  const NodeId means = b.index(Op::kMean, {products}, GraphBuilder::along(Axis::kHead));
  const NodeId highest = b.index(Op::kMax, {products}, GraphBuilder::along(Axis::kHead));
  const NodeId by_mean = b.index(Op::kTopK, {means}, GraphBuilder::budget(2500, 1, 2));
  const NodeId by_highest = b.index(Op::kTopK, {highest}, GraphBuilder::budget(2000));
  b.graph.attend_to(b.index(Op::kUnion, {by_mean, by_highest}));
  const RowProblem shorter(b.graph, {8 * 40'000, 8 * 36'000}, {.levels = 1000});
  const RowProblem longer(b.graph, {8 * 50'000, 8 * 45'000}, {.levels = 1000});
  CudaFlow flow(shorter.plan(), 3, kHeads);
  flow.use_several_kernels();
  Requests requests(flow, 2, 50'000);
  for (const RowProblem* problem : {&shorter, &longer, &shorter}) {
    CudaFlow without(problem->plan(), 3, kHeads);
    without.use_several_kernels();
    for (const int layer : {1, 2}) {
      const RowSelections wanted = given(*problem, problem->select(without, nullptr, false, layer));
      for (int step = 0; step < 2; ++step) {
        const RowSelections hinted = given(*problem, problem->select(flow, nullptr, false, layer, requests.batch({0, 1})));
        expect_same_selection(hinted, wanted);
      }
    }
  }
  for (const int layer : {1, 2}) {
    const std::vector<int32_t> mean = requests.kept(0, 2 * layer, 0);
    const std::vector<int32_t> largest = requests.kept(0, 2 * layer + 1, 0);
    EXPECT_NE(mean, largest);
    const auto expect_selection = [](const std::vector<int32_t>& kept, int count) {
      EXPECT_GE(kept.at(0), 0);
      EXPECT_EQ(std::adjacent_find(kept.begin(), kept.begin() + count, std::greater_equal<>()), kept.begin() + count);
    };
    expect_selection(mean, 2500);
    expect_selection(largest, 2000);
    EXPECT_EQ(largest.at(2000), -1);
  }
}

}  // namespace
}  // namespace sluice::testing
