#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <random>
#include <vector>

#include "agents/bench/bench.h"
#include "agents/bench/cuda/timing.h"
#include "kernels/cuda/selection/topk.h"
#include "kernels/reference/oracle.h"

namespace sluice {
namespace {

using cuda::DeviceMemory;

struct TopKShape {
  int rows;
  int length;
  int k;
  bool hinted = false;
  double tolerate = 0;  // above 0: drawn
};

DeviceMemory on_device(const void* data, size_t bytes) {
  DeviceMemory memory(bytes);
  memory.upload(data, bytes);
  return memory;
}

/// Rows of scores that calls rotate through, and what is the best of each.
class TopKCase {
 public:
  explicit TopKCase(const TopKShape& shape)
      : shape_(shape),
        copies_(static_cast<int>(std::clamp<size_t>(kCaches / (count() * sizeof(float)), 2, 20))),
        plan_(cuda::plan_top_k(shape.rows, shape.length, shape.k, shape.hinted, cuda::multiprocessors())) {
    std::mt19937_64 random(5);
    const std::vector<float> scores = draw_scores(random);
    draw_hints(scores, random);
    scores_ = DeviceMemory(count() * sizeof(float) * static_cast<size_t>(copies_));
    for (int i = 0; i < copies_; ++i) {
      SLUICE_CHECK_CUDA(
          cudaMemcpy(scores_.as<float>() + static_cast<size_t>(i) * count(), scores.data(), bytes(), cudaMemcpyHostToDevice));
    }
    const std::vector<int32_t> tokens(static_cast<size_t>(shape.rows), 1);
    tokens_ = on_device(tokens.data(), tokens.size() * sizeof(int32_t));
  }

  /// Of the scores of one call.
  size_t bytes() const { return count() * sizeof(float); }

  void run(int64_t call, cuda::Stream stream) {
    const cuda::TopK rows{.scores = scores_.as<float>() + static_cast<size_t>(call % copies_) * count(),
                          .stride = shape_.length,
                          .rows = shape_.rows,
                          .max_length = shape_.length,
                          .max_budget = shape_.k,
                          .hints = shape_.hinted ? block_.as<cuda::HintBlock>() : nullptr,
                          .owner_rows = shape_.rows,
                          .hint_count = shape_.k,
                          .selected = selected_.as<int32_t>(),
                          .selected_stride = shape_.k};
    if (shape_.tolerate > 0) {
      cuda::draw_top_k(rows, {.tolerate = shape_.tolerate, .tokens = tokens_.as<int32_t>()}, stream);
    } else {
      cuda::select_top_k(rows, plan_, stream);
    }
  }

  struct Found {
    bool correct = true;  // each row a set, of which as many are among the best as is tolerated
    double recall = 0;    // of all rows
  };
  Found check() {
    SLUICE_CHECK_CUDA(cudaMemset(selected_.data(), 0xff, selected_.bytes()));
    run(0, nullptr);
    std::vector<int32_t> found(selected_.bytes() / sizeof(int32_t));
    selected_.download(found.data(), selected_.bytes());
    Found result;
    size_t right = 0;
    for (int r = 0; r < shape_.rows; ++r) {
      const auto begin = found.begin() + static_cast<int64_t>(r) * shape_.k;
      std::vector<int32_t> common;
      std::set_intersection(best_[r].begin(), best_[r].end(), begin, begin + shape_.k, std::back_inserter(common));
      right += common.size();
      const double least = (1 - shape_.tolerate) * shape_.k;
      const bool is_set = std::adjacent_find(begin, begin + shape_.k, std::greater_equal<>()) == begin + shape_.k;
      result.correct = result.correct && is_set && static_cast<double>(common.size()) >= least;
    }
    result.recall = static_cast<double>(right) / static_cast<double>(found.size());
    return result;
  }

 private:
  // Calls rotate through scores that together are larger than the second-level cache, or through 20 copies.
  static constexpr size_t kCaches = size_t{256} << 20;

  size_t count() const { return static_cast<size_t>(shape_.rows) * shape_.length; }

  std::vector<float> draw_scores(std::mt19937_64& random) const {
    std::normal_distribution<float> normal;
    std::vector<float> scores(count());
    for (float& score : scores) score = normal(random);
    return scores;
  }

  /// The best of each row, and as hints the last step's selection, of which half is still right.
  void draw_hints(const std::vector<float>& scores, std::mt19937_64& random) {
    Attributes attributes;
    attributes.k = shape_.k;
    std::vector<int32_t> hints;
    for (int row = 0; row < shape_.rows; ++row) {
      const float* from = scores.data() + static_cast<size_t>(row) * shape_.length;
      best_.push_back(oracle::top_k(std::vector<double>(from, from + shape_.length), attributes));
      for (int i = 0; i < shape_.k; ++i) {
        hints.push_back(i % 2 == 0 ? best_.back()[i] : static_cast<int32_t>(random() % static_cast<uint64_t>(shape_.length)));
      }
    }
    hints_ = on_device(hints.data(), hints.size() * sizeof(int32_t));
    const cuda::HintBlock block{hints_.as<int32_t>(), shape_.k};
    block_ = on_device(&block, sizeof(block));
    selected_ = DeviceMemory(hints.size() * sizeof(int32_t));
  }

  TopKShape shape_;
  int copies_;
  cuda::TopKPlan plan_;
  std::vector<std::vector<int32_t>> best_;
  DeviceMemory scores_, hints_, block_, selected_, tokens_;
};

BenchRow measure(const TopKShape& shape, double seconds) {
  TopKCase measured(shape);
  BenchRow row;
  row.name = shape.tolerate > 0 ? fmt::format("tolerate {}", shape.tolerate) : shape.hinted ? "exact, hints half right" : "exact";
  row.shape = fmt::format("rows {}, pages {}, k {}, float32", shape.rows, shape.length, shape.k);
  row.time_us = time_device_call(seconds, [&](int64_t call, cuda::Stream stream) { measured.run(call, stream); });
  row.bytes = static_cast<double>(measured.bytes());
  const TopKCase::Found found = measured.check();
  row.correct = found.correct;
  if (shape.tolerate > 0) {
    row.metrics = {{"recall", found.recall}};
    row.note = fmt::format("recall {:.2f}%", 100 * found.recall);
  }
  return row;
}

}  // namespace

BenchReport run_cuda_topk_bench(const BenchOptions& options) {
  cuda::require_device();
  BenchReport report{.name = "topk", .copy_tb_per_s = measure_device_copy()};
  const TopKShape shapes[] = {{128, 2048, 128},
                              {128, 2048, 64},
                              {512, 1024, 64},
                              {128, 8192, 125},
                              {1, 8192, 2048},
                              {1, 65536, 2048},
                              {1, 65536, 2048, true},
                              {1, 131072, 2048},
                              {1, 131072, 2048, true},
                              {64, 65536, 2048},
                              {64, 65536, 2048, true},
                              {1, 1 << 20, 2048, true},
                              {128, 2048, 128, false, 0.05},
                              {128, 2048, 128, false, 0.2},
                              {128, 8192, 125, false, 0.05},
                              {128, 8192, 1024, false, 0.05},
                              {128, 8192, 1024},
                              {64, 65536, 2048, false, 0.05},
                              {1, 131072, 2048, false, 0.05}};
  for (const TopKShape& shape : shapes) report.rows.push_back(measure(shape, options.seconds));
  set_limits(report);
  return report;
}

}  // namespace sluice
