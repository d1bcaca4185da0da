#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "kernels/cpu/selection/topk.h"
#include "kernels/cuda/flow/flow.h"
#include "kernels/cuda/flow/state.h"
#include "kernels/device/random.h"
#include "kernels/reference/oracle.h"
#include "tests/cuda/gpu.h"
#include "tests/support/graph_builder.h"

// The index stage in one kernel, beside the same in several.

namespace sluice::testing {
namespace {

using cuda::CudaFlow;
using cuda::DeviceMemory;
using cuda::FlowPath;
using cuda::FlowResult;

constexpr int kHeads = 2;
constexpr Geometry kGeometry{.head_dim = 64, .group = 4, .page = 8, .kv = DataType::kBF16};

/// Keys that are small whole numbers, so that scores are exact and do not depend on the order of sums; the fewer levels, the more
/// of them tie.
struct Content {
  int levels = 5;
  bool specials = false;  // some infinities and NaN
  bool misleads = false;  // of the first sequence the pages that an approximate selection samples are the best
};

/// The pages that an approximate selection samples, of a long row whose first page and last two are kept anyway.
std::vector<int32_t> sampled_pages(const std::vector<int32_t>& pages, int count) {
  std::vector<int32_t> sampled;
  if (count - 3 < 4096) return sampled;
  for (int i = 0; i < 256; ++i) sampled.push_back(pages.at(static_cast<size_t>(1 + i / 8 * ((count - 3) / 32) + i % 8)));
  return sampled;
}

/// Sequences over a pool of pages, which they may share.
class Problem {
 public:
  Problem(const FlowGraph& graph, std::vector<int32_t> lengths, const Content& content = {})
      : plan_(compile(graph).plan),
        lengths_(std::move(lengths)),
        most_pages_((*std::max_element(lengths_.begin(), lengths_.end()) + kGeometry.page - 1) / kGeometry.page) {
    const int pool = most_pages_ + 300;
    std::mt19937 random(7);
    std::vector<int32_t> indices;
    std::vector<int32_t> indptr{0};
    for (const int length : lengths_) {
      std::vector<int32_t> order(pool);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      // Growing sequences find their pages behind those that they have.
      order.resize(std::max(most_pages_, (length + kGeometry.page - 1) / kGeometry.page));
      indices.insert(indices.end(), order.begin(), order.end());
      indptr.push_back(static_cast<int32_t>(indices.size()));
    }
    std::vector<float> query(sequences() * kHeads * kGeometry.group * kGeometry.head_dim);
    for (float& number : query) {
      number = static_cast<float>(static_cast<int>(random() % 9) - 4);
      if (content.misleads) number = std::fabs(number) + 1;
    }
    fill_pool(pool, content, content.misleads ? sampled_pages(indices, pages(0)) : std::vector<int32_t>{});
    lengths_memory_ = to_device(lengths_);
    indptr_ = to_device(indptr);
    indices_ = to_device(indices);
    query_ = to_device(query);
    refresh_all(pool);
  }

  int sequences() const { return static_cast<int>(lengths_.size()); }
  int rows() const { return sequences() * kHeads; }
  int most_pages() const { return most_pages_; }
  int tokens(int row) const { return lengths_[row / kHeads]; }
  int pages(int row) const { return (tokens(row) + kGeometry.page - 1) / kGeometry.page; }
  const Plan& plan() const { return plan_; }

  void set_lengths(const std::vector<int32_t>& lengths) {
    lengths_ = lengths;
    lengths_memory_.upload(lengths.data(), lengths.size() * sizeof(int32_t));
  }

  FlowResult select(CudaFlow& flow, cuda::Stream stream = nullptr, bool wants_scores = true, int layer = 1,
                    const cuda::HintBlock* hints = nullptr) const {
    return flow.select(blocks(layer),
                       {.count = sequences(),
                        .most_pages = most_pages_,
                        .lengths = lengths_memory_.as<int32_t>(),
                        .page_indptr = indptr_.as<int32_t>(),
                        .page_indices = indices_.as<int32_t>(),
                        .hints = hints,
                        .query = query_.data(),
                        .query_stride = int64_t{kHeads} * kGeometry.group * kGeometry.head_dim,
                        .query_type = DataType::kF32,
                        .wants_scores = wants_scores},
                       {}, stream);
  }

 private:
  template <class T>
  static DeviceMemory to_device(const std::vector<T>& values) {
    DeviceMemory memory(values.size() * sizeof(T));
    memory.upload(values.data(), values.size() * sizeof(T));
    return memory;
  }

  cuda::FlowBlocks blocks(int layer = 1) const {
    return {.base = pool_.as<std::byte>(),
            .page_stride = kHeads * plan_.layout.bytes,
            .block_bytes = plan_.layout.bytes,
            .kv_heads = kHeads,
            .layer = layer};
  }

  void fill_pool(int pages, const Content& content, const std::vector<int32_t>& highest) {
    std::vector<uint16_t> numbers(static_cast<size_t>(pages) * kHeads * plan_.layout.bytes / sizeof(uint16_t));
    std::mt19937 random(11);
    for (uint16_t& number : numbers) {
      const int whole = static_cast<int>(random() % content.levels) - content.levels / 2;
      number = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(whole)) >> 16);
      if (content.specials && random() % 30'000 == 0) number = random() % 2 == 0 ? 0x7f80 : random() % 2 == 0 ? 0xff80 : 0x7fc0;
    }
    const size_t page = numbers.size() / static_cast<size_t>(pages);
    for (const int32_t best : highest) std::fill_n(numbers.begin() + static_cast<int64_t>(best * page), page, 0x40e0);  // 7
    pool_ = to_device(numbers);
  }

  void refresh_all(int pages) {
    CudaFlow flow(plan_, 3, kHeads);
    std::vector<int32_t> all(pages);
    std::iota(all.begin(), all.end(), 0);
    const DeviceMemory list = to_device(all);
    flow.refresh(blocks(), {.count = pages, .pages = list.as<int32_t>(), .last_tokens = kGeometry.page}, nullptr);
    SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
  }

  Plan plan_;
  std::vector<int32_t> lengths_;
  int most_pages_;
  DeviceMemory pool_, lengths_memory_, indptr_, indices_, query_;
};

/// What a flow gave for all rows.
struct Given {
  std::vector<std::vector<float>> scores;
  std::vector<std::vector<int32_t>> positions, pages;
  std::vector<int32_t> tokens;

  bool operator==(const Given&) const = default;
};

template <class T>
std::vector<T> from_device(const T* from, size_t count) {
  std::vector<T> values(count);
  SLUICE_CHECK_CUDA(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

Given given(const Problem& problem, const FlowResult& result) {
  SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
  Given given;
  const std::vector<int32_t> counts = from_device(result.counts, problem.rows());
  for (int row = 0; row < problem.rows(); ++row) {
    for (const float* scores : result.scores) {
      given.scores.push_back(from_device(scores + row * result.score_stride, problem.pages(row)));
    }
    given.positions.push_back(from_device(result.positions + row * result.stride, counts[row]));
    given.pages.push_back(from_device(result.pages + row * result.stride, counts[row]));
  }
  given.tokens = from_device(result.tokens, problem.rows());
  const std::vector<int32_t> starts = from_device(result.starts, problem.rows());
  for (int row = 0; row < problem.rows(); ++row) EXPECT_EQ(starts[row], row * result.stride);
  return given;
}

bool same_number(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void expect_same_selection(const Given& one, const Given& other) {
  ASSERT_EQ(one.positions.size(), other.positions.size());
  for (size_t row = 0; row < one.positions.size(); ++row) {
    ASSERT_EQ(one.positions[row], other.positions[row]) << "row " << row;
    ASSERT_EQ(one.pages[row], other.pages[row]) << "row " << row;
  }
  EXPECT_EQ(one.tokens, other.tokens);
}

void expect_same(const Given& one, const Given& other) {
  ASSERT_EQ(one.scores.size(), other.scores.size());
  for (size_t row = 0; row < one.scores.size(); ++row) {
    ASSERT_TRUE(std::equal(one.scores[row].begin(), one.scores[row].end(), other.scores[row].begin(), other.scores[row].end(),
                           same_number))
        << "scores of row " << row;
  }
  expect_same_selection(one, other);
}

/// What the CPU draws of a row of layer 1 by these scores.
std::vector<int32_t> drawn_by_cpu(const std::vector<float>& scores, const Attributes& attributes, int head, int tokens) {
  cpu::PageSelector selector(static_cast<int>(scores.size()));
  std::vector<int32_t> drawn(scores.size() + 64);
  const uint64_t key = random_key(0, RandomPurpose::kApproxTopK, 1, head, tokens);
  drawn.resize(static_cast<size_t>(selector.approx_top_k(scores, attributes, key, drawn.data())));
  return drawn;
}

/// Selections are those of the very scores.
void expect_best(const Problem& problem, const Given& given) {
  const FlowGraph& graph = problem.plan().graph;
  const Node& selection = graph.nodes[graph.selection()];
  for (int row = 0; row < problem.rows(); ++row) {
    const std::vector<double> scores(given.scores[row].begin(), given.scores[row].end());
    ASSERT_EQ(given.positions[row], selection.op == Op::kApproxTopK
                                        ? drawn_by_cpu(given.scores[row], selection.attributes, row % kHeads, problem.tokens(row))
                                        : oracle::top_k(scores, selection.attributes))
        << "row " << row;
  }
}

void expect_one_kernel_like_several(const Problem& problem) {
  CudaFlow flow(problem.plan(), 3, kHeads);
  ASSERT_GT(flow.path(problem.sequences(), problem.most_pages()).cluster, 0);
  const Given one = given(problem, problem.select(flow));
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
    expect_one_kernel_like_several(Problem(quest_graph(kGeometry, GraphBuilder::budget(37, 1, 2)), lengths));
    expect_one_kernel_like_several(Problem(mean_score_graph(kGeometry, GraphBuilder::budget(125, 0, 1)), lengths));
  }
}

TEST_F(CudaRowKernel, KeepsLowerPagesOnPlateaus) {
  for (const int pages : {130, 2047, 2048, 9000}) {
    for (const int levels : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} pages, {} levels", pages, levels));
      expect_one_kernel_like_several(
          Problem(quest_graph(kGeometry, GraphBuilder::budget(pages / 3, 2, 1)), lengths_of(2, pages), {.levels = levels}));
    }
  }
}

TEST_F(CudaRowKernel, TakesInfinitiesAndNaNAsTheyAre) {
  for (const int pages : {50, 2047, 2048, 20'000}) {
    SCOPED_TRACE(pages);
    const Content content{.levels = 5, .specials = true};
    expect_one_kernel_like_several(
        Problem(quest_graph(kGeometry, GraphBuilder::budget(pages / 2, 1, 1)), lengths_of(2, pages), content));
    expect_one_kernel_like_several(
        Problem(mean_score_graph(kGeometry, GraphBuilder::budget(pages / 2, 1, 1)), lengths_of(2, pages), content));
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
    expect_one_kernel_like_several(Problem(quest_graph(kGeometry, GraphBuilder::budget(37, 1, 2)),
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
      expect_one_kernel_like_several(Problem(graph, lengths_of(200, pages), {.levels = levels, .specials = levels > 1}));
    }
  }
}

TEST_F(CudaRowKernel, DrawsWhatTheCpuDrawsByTheSameScores) {
  for (const double tolerate : {0.05, 0.6}) {
    for (const auto& [sequences, pages] :
         {std::pair{1, 4}, {3, 700}, {1, 5000}, {5, 3001}, {16, 2048}, {64, 300}, {200, 300}, {1, 65'536}}) {
      for (const Content& content : {Content{.levels = 3}, Content{.levels = 100}, Content{.levels = 5, .specials = true},
                                     Content{.levels = 5, .misleads = true}}) {
        SCOPED_TRACE(fmt::format("{} sequences of {} pages, {} levels, tolerate {}", sequences, pages, content.levels, tolerate));
        FlowGraph graph = mean_score_graph(kGeometry, GraphBuilder::budget(2, 1, 2));
        Node& selection = graph.nodes[static_cast<size_t>(graph.selection())];
        selection.op = Op::kApproxTopK;
        selection.attributes.tolerate = tolerate;
        selection.attributes.ratio = 1.0 / 8;
        expect_one_kernel_like_several(Problem(graph, lengths_of(sequences, pages), content));
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

TEST_F(CudaRowKernel, WhatARequestSelectedLastIsAHintThatChangesNothing) {
  constexpr int kPages = 40'000;
  for (const int levels : {2, 1000}) {
    Problem problem(mean_score_graph(kGeometry, GraphBuilder::budget(2500, 1, 2)), {8 * kPages, 8 * kPages - 3},
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

TEST_F(CudaRowKernel, EveryMethodSelectsTheSamePages) {
  for (const int pages : {5, 50, 700, 12'000}) {
    for (const Content& content : {Content{.levels = 1}, {.levels = 2}, {.levels = 5, .specials = true}, {.levels = 1000}}) {
      for (const int k : {1, pages / 8 + 1, pages / 2}) {
        SCOPED_TRACE(fmt::format("{} pages of {} levels, {}", pages, content.levels, k));
        FlowGraph graph = mean_score_graph(kGeometry, GraphBuilder::budget(k, 1, 2));
        const auto with = [&](TopKMethod method) {
          graph.nodes[graph.selection()].attributes.method = method;
          return Problem(graph, {kGeometry.page * pages, kGeometry.page * (pages - 1) + 3}, content);
        };
        const Problem by_any = with(TopKMethod::kAuto);
        CudaFlow any(by_any.plan(), 3, kHeads);
        const Given wanted = given(by_any, by_any.select(any));
        expect_best(by_any, wanted);

        const Problem by_radix = with(TopKMethod::kRadix);
        for (const bool several : {false, true}) {
          CudaFlow radix(by_radix.plan(), 3, kHeads);
          EXPECT_EQ(radix.source(), any.source()) << "on chip there is no other method";
          if (several) radix.use_several_kernels();
          expect_same_selection(given(by_radix, by_radix.select(radix)), wanted);
        }

        const Problem by_gvr = with(TopKMethod::kGvr);
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

TEST_F(CudaRowKernel, HintsBelongToRequestsWhereverTheyAreInABatch) {
  constexpr int kPages = 40'000;
  constexpr int kFirst = 1;
  const Problem problem(mean_score_graph(kGeometry, GraphBuilder::budget(2500, kFirst, 2)), {8 * kPages, 8 * (kPages - 1000)},
                        {.levels = 1000});
  CudaFlow flow(problem.plan(), 3, kHeads);
  flow.use_several_kernels();
  Requests requests(flow, 3, kPages);
  const auto expect_kept = [&](int request, int place, int layer, const Given& selection) {
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
  const Given first = given(problem, problem.select(flow, nullptr, true, 1, requests.batch({2, 0})));
  expect_kept(2, 0, 1, first);
  expect_kept(0, 1, 1, first);
  expect_none(1, 1);
  expect_none(2, 0);
  expect_none(2, 2);
  const Given second = given(problem, problem.select(flow, nullptr, true, 1, requests.batch({0, 1})));
  expect_kept(0, 0, 1, second);
  expect_kept(1, 1, 1, second);
  expect_kept(2, 0, 1, first);  // it was not in the batch
  requests.reset(2);
  expect_none(2, 1);
}

TEST_F(CudaRowKernel, SelectionsOfAUnionKeepApartWhatTheyLastTook) {
  GraphBuilder b(kGeometry);
  b.field("centre", b.cache(Op::kMean, {b.cache(Op::kKey)}, GraphBuilder::along(Axis::kToken)));
  const NodeId products = b.index(Op::kContract, {b.index(Op::kQuery), b.read_field("centre")}, GraphBuilder::along(Axis::kDim));
  const NodeId means = b.index(Op::kMean, {products}, GraphBuilder::along(Axis::kHead));
  const NodeId highest = b.index(Op::kMax, {products}, GraphBuilder::along(Axis::kHead));
  const NodeId by_mean = b.index(Op::kTopK, {means}, GraphBuilder::budget(2500, 1, 2));
  const NodeId by_highest = b.index(Op::kTopK, {highest}, GraphBuilder::budget(2000));
  b.graph.attend_to(b.index(Op::kUnion, {by_mean, by_highest}));
  const Problem shorter(b.graph, {8 * 40'000, 8 * 36'000}, {.levels = 1000});
  const Problem longer(b.graph, {8 * 50'000, 8 * 45'000}, {.levels = 1000});
  CudaFlow flow(shorter.plan(), 3, kHeads);
  flow.use_several_kernels();
  Requests requests(flow, 2, 50'000);
  for (const Problem* problem : {&shorter, &longer, &shorter}) {
    CudaFlow without(problem->plan(), 3, kHeads);
    without.use_several_kernels();
    for (const int layer : {1, 2}) {
      const Given wanted = given(*problem, problem->select(without, nullptr, false, layer));
      for (int step = 0; step < 2; ++step) {
        const Given hinted = given(*problem, problem->select(flow, nullptr, false, layer, requests.batch({0, 1})));
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

TEST_F(CudaRowKernel, CapturedLaunchesFollowLengths) {
  const std::vector<int32_t> longest{8 * 3000, 8 * 2500, 8 * 3000};
  Problem problem(quest_graph(kGeometry, GraphBuilder::budget(61, 1, 2)), longest);
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
