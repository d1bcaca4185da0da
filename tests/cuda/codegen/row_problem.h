#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cpu/selection/topk.h"
#include "kernels/cuda/flow/flow.h"
#include "kernels/device/random.h"
#include "kernels/reference/oracle.h"
#include "tests/cuda/gpu.h"
#include "tests/support/graph_builder.h"

namespace sluice::testing {

inline constexpr int kHeads = 2;
inline constexpr Geometry kGeometry{.head_dim = 64, .group = 4, .page = 8, .kv = DataType::kBF16};

/// Keys that are small whole numbers, so that scores are exact and do not depend on the order of sums; the fewer levels, the more
/// of them tie.
struct RowContent {
  int levels = 5;
  bool specials = false;  // some infinities and NaN
  bool misleads = false;  // of the first sequence the pages that an approximate selection samples are the best
};

/// The pages that an approximate selection samples, of a long row whose first page and last two are kept anyway.
inline std::vector<int32_t> sampled_pages(const std::vector<int32_t>& pages, int count) {
  std::vector<int32_t> sampled;
  if (count - 3 < 4096) return sampled;
  for (int i = 0; i < 256; ++i) sampled.push_back(pages.at(static_cast<size_t>(1 + i / 8 * ((count - 3) / 32) + i % 8)));
  return sampled;
}

/// Sequences over a pool of pages, which they may share.
class RowProblem {
 public:
  RowProblem(const FlowGraph& graph, std::vector<int32_t> lengths, const RowContent& content = {})
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

  cuda::FlowResult select(cuda::CudaFlow& flow, cuda::Stream stream = nullptr, bool wants_scores = true, int layer = 1,
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
  static cuda::DeviceMemory to_device(const std::vector<T>& values) {
    cuda::DeviceMemory memory(values.size() * sizeof(T));
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

  void fill_pool(int pages, const RowContent& content, const std::vector<int32_t>& highest) {
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
    cuda::CudaFlow flow(plan_, 3, kHeads);
    std::vector<int32_t> all(pages);
    std::iota(all.begin(), all.end(), 0);
    const cuda::DeviceMemory list = to_device(all);
    flow.refresh(blocks(), {.count = pages, .pages = list.as<int32_t>(), .last_tokens = kGeometry.page}, nullptr);
    SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
  }

  Plan plan_;
  std::vector<int32_t> lengths_;
  int most_pages_;
  cuda::DeviceMemory pool_, lengths_memory_, indptr_, indices_, query_;
};

/// What a flow gave for all rows.
struct RowSelections {
  std::vector<std::vector<float>> scores;
  std::vector<std::vector<int32_t>> positions, pages;
  std::vector<int32_t> tokens;

  bool operator==(const RowSelections&) const = default;
};

template <class T>
std::vector<T> from_device(const T* from, size_t count) {
  std::vector<T> values(count);
  SLUICE_CHECK_CUDA(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

inline RowSelections given(const RowProblem& problem, const cuda::FlowResult& result) {
  SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
  RowSelections given;
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

inline bool same_number(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

inline void expect_same_selection(const RowSelections& one, const RowSelections& other) {
  ASSERT_EQ(one.positions.size(), other.positions.size());
  for (size_t row = 0; row < one.positions.size(); ++row) {
    ASSERT_EQ(one.positions[row], other.positions[row]) << "row " << row;
    ASSERT_EQ(one.pages[row], other.pages[row]) << "row " << row;
  }
  EXPECT_EQ(one.tokens, other.tokens);
}

inline void expect_same(const RowSelections& one, const RowSelections& other) {
  ASSERT_EQ(one.scores.size(), other.scores.size());
  for (size_t row = 0; row < one.scores.size(); ++row) {
    ASSERT_TRUE(std::equal(one.scores[row].begin(), one.scores[row].end(), other.scores[row].begin(), other.scores[row].end(),
                           same_number))
        << "scores of row " << row;
  }
  expect_same_selection(one, other);
}

/// What the CPU draws of a row of layer 1 by these scores.
inline std::vector<int32_t> drawn_by_cpu(const std::vector<float>& scores, const Attributes& attributes, int head, int tokens) {
  cpu::PageSelector selector(static_cast<int>(scores.size()));
  std::vector<int32_t> drawn(scores.size() + 64);
  const uint64_t key = random_key(0, RandomPurpose::kApproxTopK, 1, head, tokens);
  drawn.resize(static_cast<size_t>(selector.approx_top_k(scores, attributes, key, drawn.data())));
  return drawn;
}

/// Selections are those of the very scores.
inline void expect_best(const RowProblem& problem, const RowSelections& given) {
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

}  // namespace sluice::testing
