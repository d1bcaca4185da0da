#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "agents/bench/bench.h"
#include "kernels/device.h"

namespace sluice {
namespace {

constexpr size_t kRotation = size_t{1} << 30;  // bytes of weights that calls rotate through where memory is the limit

/// Copies of one random bf16 weight: one that stays in the caches, or so many that calls in turn read memory.
struct Weights {
  int outputs;
  int inputs;
  bool large;
  std::vector<float> plain = {};  // [outputs, inputs]
  std::vector<std::unique_ptr<Weight>> copies = {};

  double bytes() const { return static_cast<double>(plain.size()) * sizeof(uint16_t); }
};

float number(std::mt19937& random) { return static_cast<float>(static_cast<int>(random() >> 25) - 64) / 64; }

Weights make_weights(Device& device, int outputs, int inputs) {
  const size_t bytes = static_cast<size_t>(outputs) * inputs * sizeof(uint16_t);
  Weights weights{.outputs = outputs, .inputs = inputs, .large = bytes > 8'000'000};
  std::mt19937 random(1);
  std::vector<uint16_t> narrow;
  for (size_t i = 0; i < static_cast<size_t>(outputs) * inputs; ++i) {
    weights.plain.push_back(number(random));
    narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(weights.plain.back()) >> 16));
  }
  const size_t copies = weights.large ? kRotation / bytes : 1;
  for (size_t i = 0; i < copies; ++i) {
    weights.copies.push_back(device.create_weight(narrow.data(), DataType::kBF16, outputs, inputs));
  }
  return weights;
}

BenchRow measure(Device& device, int rows, const Weights& weights, double seconds) {
  const int outputs = weights.outputs;
  const int inputs = weights.inputs;
  std::mt19937 random(2);
  std::vector<float> x(static_cast<size_t>(rows) * inputs);
  for (float& value : x) value = number(random) * 0.7f;  // no multiple of a power of two: needs all of float32's bits
  std::vector<float> out(static_cast<size_t>(rows) * outputs, NAN);
  const Matrix left{.data = x.data(), .rows = rows, .columns = inputs, .stride = inputs};
  const Matrix result{.data = out.data(), .rows = rows, .columns = outputs, .stride = outputs};

  BenchRow row;
  row.name = fmt::format("{} row{}", rows, rows == 1 ? "" : "s");
  row.shape = fmt::format("{} x {} bf16 weight{}", outputs, inputs, weights.large ? "" : " in cache");
  row.time_us = time_call(seconds, [&](int64_t i) { device.matmul(left, *weights.copies[i % weights.copies.size()], result); });
  row.bytes = weights.large ? weights.bytes() : 0;
  row.flop = 2.0 * rows * outputs * inputs;
  row.correct = true;
  for (int check = 0; check < 64; ++check) {
    const size_t r = random() % rows;
    const size_t o = random() % outputs;
    double wanted = 0;
    for (int i = 0; i < inputs; ++i) wanted += static_cast<double>(x[r * inputs + i]) * weights.plain[o * inputs + i];
    row.correct = row.correct && std::abs(out[r * outputs + o] - wanted) <= 1e-4 * std::sqrt(static_cast<double>(inputs));
  }
  return row;
}

}  // namespace

BenchReport run_gemm_bench(const BenchOptions& options) {
#if SLUICE_CUDA
  if (options.device == "cuda") return run_cuda_gemm_bench(options);
#endif
  BenchReport report{.name = "gemm"};
  const auto device = create_device(options.device, options.threads);
  for (const auto& [outputs, inputs] : {std::pair{768, 256}, {1536, 256}, {256, 768}, {4096, 4096}}) {
    const Weights weights = make_weights(*device, outputs, inputs);
    raise_arithmetic_peak(report, options.threads);
    raise_copy_bandwidth(report, options.threads);
    for (int rows : {1, 8, 512}) report.rows.push_back(measure(*device, rows, weights, options.seconds));
  }
  set_limits(report);
  return report;
}

}  // namespace sluice
