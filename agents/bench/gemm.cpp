#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "agents/bench/bench.h"
#include "kernels/cpu/peak.h"
#include "kernels/device.h"

namespace sluice {
namespace {

constexpr size_t kRotation = size_t{512} << 20;  // bytes of weights that calls rotate through where memory is the limit

BenchRow measure(Device& device, int rows, int outputs, int inputs, const BenchReport& limits, double seconds) {
  std::mt19937 random(1);
  const auto number = [&random] { return static_cast<float>(static_cast<int>(random() >> 25) - 64) / 64; };
  std::vector<float> plain(static_cast<size_t>(outputs) * inputs);
  std::vector<uint16_t> narrow(plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    plain[i] = number();
    narrow[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(plain[i]) >> 16);
  }
  std::vector<float> x(static_cast<size_t>(rows) * inputs);
  for (float& value : x) value = number() * 0.7f;  // no multiple of a power of two: needs all of float32's bits
  std::vector<float> out(static_cast<size_t>(rows) * outputs, NAN);

  const double bytes = static_cast<double>(narrow.size()) * sizeof(uint16_t);
  const double flop = 2.0 * rows * outputs * inputs;
  const double memory_us = bytes / limits.copy_tb_per_s / 1e6;
  const double arithmetic_us = flop / limits.gflop_per_s / 1e3;
  const bool large = bytes > 8e6;
  const size_t copies = large ? std::max<size_t>(1, kRotation / static_cast<size_t>(bytes)) : 1;
  std::vector<std::unique_ptr<Weight>> weights;
  for (size_t i = 0; i < copies; ++i) weights.push_back(device.create_weight(narrow.data(), DataType::kBF16, outputs, inputs));
  const Matrix left{.data = x.data(), .rows = rows, .columns = inputs, .stride = inputs};
  const Matrix result{.data = out.data(), .rows = rows, .columns = outputs, .stride = outputs};

  BenchRow row;
  row.name = fmt::format("{} row{}", rows, rows == 1 ? "" : "s");
  row.shape = fmt::format("{} x {} bf16 weight{}", outputs, inputs, large ? "" : " in cache");
  row.time_us = time_call(seconds, [&](int64_t i) { device.matmul(left, *weights[i % copies], result); });
  row.limit_us = large ? std::max(memory_us, arithmetic_us) : arithmetic_us;
  if (large && memory_us > arithmetic_us) {
    row.bytes = bytes;
  } else {
    row.flop = flop;
  }
  row.correct = true;
  for (int check = 0; check < 64; ++check) {
    const size_t r = random() % rows;
    const size_t o = random() % outputs;
    double wanted = 0;
    for (int i = 0; i < inputs; ++i) wanted += static_cast<double>(x[r * inputs + i]) * plain[o * inputs + i];
    row.correct = row.correct && std::abs(out[r * outputs + o] - wanted) <= 1e-4 * std::sqrt(static_cast<double>(inputs));
  }
  return row;
}

}  // namespace

BenchReport run_gemm_bench(const BenchOptions& options) {
  BenchReport report{.name = "gemm",
                     .copy_tb_per_s = measure_copy_bandwidth(options.threads),
                     .gflop_per_s = cpu::measure_peak_gflops(options.threads)};
  const auto device = create_device(options.device, options.threads);
  for (const auto& [outputs, inputs] : {std::pair{768, 256}, {1536, 256}, {256, 768}, {4096, 4096}}) {
    for (int rows : {1, 8, 512}) report.rows.push_back(measure(*device, rows, outputs, inputs, report, options.seconds));
  }
  return report;
}

}  // namespace sluice
