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

BenchRow measure(const TopKShape& shape, double seconds) {
  // Calls rotate through scores that together are larger than the second-level cache, or through 20 copies.
  constexpr size_t kCaches = size_t{256} << 20;
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  const size_t count = static_cast<size_t>(shape.rows) * shape.length;
  const int copies = static_cast<int>(std::clamp<size_t>(kCaches / (count * sizeof(float)), 2, 20));
  std::vector<float> scores(count);
  for (float& score : scores) score = normal(random);
  Attributes attributes;
  attributes.k = shape.k;
  std::vector<std::vector<int32_t>> best(shape.rows);
  std::vector<int32_t> hints;
  for (int row = 0; row < shape.rows; ++row) {
    const float* from = scores.data() + static_cast<size_t>(row) * shape.length;
    best[row] = oracle::top_k(std::vector<double>(from, from + shape.length), attributes);
    // The last step's selection, of which half is still right.
    for (int i = 0; i < shape.k; ++i) {
      hints.push_back(i % 2 == 0 ? best[row][i] : static_cast<int32_t>(random() % static_cast<uint64_t>(shape.length)));
    }
  }
  DeviceMemory device_scores(count * sizeof(float) * copies);
  for (int i = 0; i < copies; ++i) {
    SLUICE_CHECK_CUDA(
        cudaMemcpy(device_scores.as<float>() + i * count, scores.data(), count * sizeof(float), cudaMemcpyHostToDevice));
  }
  const DeviceMemory device_hints = on_device(hints.data(), hints.size() * sizeof(int32_t));
  const cuda::HintBlock block{device_hints.as<int32_t>(), shape.k};
  const DeviceMemory device_block = on_device(&block, sizeof(block));
  const DeviceMemory selected(hints.size() * sizeof(int32_t));
  const std::vector<int32_t> tokens(static_cast<size_t>(shape.rows), 1);
  const DeviceMemory device_tokens = on_device(tokens.data(), tokens.size() * sizeof(int32_t));
  const cuda::Draws draws{.tolerate = shape.tolerate, .tokens = device_tokens.as<int32_t>()};
  const cuda::TopKPlan plan = cuda::plan_top_k(shape.rows, shape.length, shape.k, shape.hinted, cuda::multiprocessors());
  const auto run = [&](int64_t call, cuda::Stream stream) {
    const cuda::TopK rows{.scores = device_scores.as<float>() + static_cast<size_t>(call % copies) * count,
                          .stride = shape.length,
                          .rows = shape.rows,
                          .max_length = shape.length,
                          .max_budget = shape.k,
                          .hints = shape.hinted ? device_block.as<cuda::HintBlock>() : nullptr,
                          .owner_rows = shape.rows,
                          .hint_count = shape.k,
                          .selected = selected.as<int32_t>(),
                          .selected_stride = shape.k};
    if (shape.tolerate > 0) {
      cuda::draw_top_k(rows, draws, stream);
    } else {
      cuda::select_top_k(rows, plan, stream);
    }
  };
  BenchRow row;
  row.name = shape.tolerate > 0 ? fmt::format("tolerate {}", shape.tolerate) : shape.hinted ? "exact, hints half right" : "exact";
  row.shape = fmt::format("rows {}, pages {}, k {}, float32", shape.rows, shape.length, shape.k);
  row.time_us = time_device_call(seconds, run);
  row.bytes = static_cast<double>(count) * sizeof(float);
  SLUICE_CHECK_CUDA(cudaMemset(selected.data(), 0xff, selected.bytes()));
  run(0, nullptr);
  std::vector<int32_t> found(hints.size());
  selected.download(found.data(), selected.bytes());
  row.correct = true;
  size_t right = 0;
  for (int r = 0; r < shape.rows; ++r) {
    const auto begin = found.begin() + static_cast<int64_t>(r) * shape.k;
    std::vector<int32_t> common;
    std::set_intersection(best[r].begin(), best[r].end(), begin, begin + shape.k, std::back_inserter(common));
    right += common.size();
    const double least = (1 - shape.tolerate) * shape.k;
    const bool is_set = std::adjacent_find(begin, begin + shape.k, std::greater_equal<>()) == begin + shape.k;
    row.correct = row.correct && is_set && static_cast<double>(common.size()) >= least;
  }
  if (shape.tolerate > 0) {
    row.metrics = {{"recall", static_cast<double>(right) / static_cast<double>(found.size())}};
    row.note = fmt::format("recall {:.2f}%", 100 * row.metrics.front().second);
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
