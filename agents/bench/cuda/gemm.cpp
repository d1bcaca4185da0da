#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "agents/bench/bench.h"
#include "agents/bench/cuda/layer_tail.h"
#include "agents/bench/cuda/timing.h"
#include "kernels/cuda/products/matmul.h"

namespace sluice {
namespace {

using cuda::CudaWeight;
using cuda::DeviceMemory;

constexpr size_t kRotation = size_t{400} << 20;  // bytes of weights that calls rotate through: much more than the caches hold
constexpr int kCalls = 20;                       // that are captured at a time; more copies would not be used
constexpr int kMostRows = 128;

struct Product {
  const char* name;
  int outputs;
  int inputs;
  bool wide = false;  // the result is float32
};

/// What a decode step multiplies by: an attention layer, its MLP, and the head.
struct DecodeModel {
  const char* name;
  Product products[5];
};
constexpr DecodeModel kModels[] = {
    {"mini",
     {{"qkv", 768, 256}, {"output", 256, 512}, {"gate and up", 1536, 256}, {"down", 256, 768}, {"head", 1024, 256, true}}},
    {"qwen3-0.6b",
     {{"qkv", 4096, 1024},
      {"output", 1024, 2048},
      {"gate and up", 6144, 1024},
      {"down", 1024, 3072},
      {"head", 151936, 1024, true}}},
    {"qwen3-1.7b",
     {{"qkv", 4096, 2048},
      {"output", 2048, 2048},
      {"gate and up", 12288, 2048},
      {"down", 2048, 6144},
      {"head", 151936, 2048, true}}},
    {"qwen3-8b",
     {{"qkv", 6144, 4096},
      {"output", 4096, 4096},
      {"gate and up", 24576, 4096},
      {"down", 4096, 12288},
      {"head", 151936, 4096, true}}},
};

float widen(uint16_t number) { return std::bit_cast<float>(static_cast<uint32_t>(number) << 16); }

/// Numbers in [-1, 1) with seven bits, which bf16 holds. They repeat after a prime number of them, which no row's length divides.
std::vector<uint16_t> draw(size_t count, unsigned seed) {
  constexpr size_t kPeriod = 1'048'573;
  std::minstd_rand random(seed);
  std::vector<uint16_t> numbers(count);
  for (size_t i = 0; i < std::min(count, kPeriod); ++i) {
    const auto value = static_cast<float>(static_cast<int>(random() >> 8 & 127) - 64) / 64;
    numbers[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  }
  for (size_t i = kPeriod; i < count; ++i) numbers[i] = numbers[i - kPeriod];
  return numbers;
}

/// A product with copies of one random weight.
class GemmCase {
 public:
  explicit GemmCase(const Product& product)
      : product_(product),
        weight_(draw(static_cast<size_t>(product.outputs) * product.inputs, 1)),
        x_(draw(static_cast<size_t>(kMostRows) * product.inputs, 2)),
        device_x_(x_.size() * sizeof(uint16_t)),
        device_out_(static_cast<size_t>(kMostRows) * product.outputs * sizeof(float)) {
    device_x_.upload(x_.data(), device_x_.bytes());
    const auto copies = std::clamp<size_t>(kRotation / (weight_.size() * sizeof(uint16_t)), 2, kCalls);
    for (size_t i = 0; i < copies; ++i) {
      copies_.push_back(std::make_unique<CudaWeight>(weight_.data(), DataType::kBF16, product.outputs, product.inputs));
    }
  }

  double bytes() const { return static_cast<double>(weight_.size() * sizeof(uint16_t)); }

  void run(cuda::Matmul& matmul, int rows, int64_t call, cuda::Stream stream) const {
    matmul.run(x(rows), weight(call), out(rows), stream);
  }
  void run_library(cuda::Matmul& matmul, int rows, int64_t call, cuda::Stream stream) const {
    matmul.run_library(x(rows), weight(call), out(rows), stream);
  }

  /// Whether some elements of what `run` gives are right.
  bool is_correct(cuda::Matmul& matmul, int rows) const {
    SLUICE_CHECK_CUDA(cudaMemset(device_out_.data(), 0xff, device_out_.bytes()));
    run(matmul, rows, 0, nullptr);
    const Matrix result = out(rows);
    const size_t size = size_of(result.type);
    std::vector<std::byte> found(static_cast<size_t>(rows) * product_.outputs * size);
    device_out_.download(found.data(), found.size());
    std::mt19937 random(3);
    bool correct = true;
    for (int check = 0; check < 256; ++check) {
      const size_t row = random() % rows;
      const size_t output = random() % product_.outputs;
      double wanted = 0;
      double scale = 0;
      for (int i = 0; i < product_.inputs; ++i) {
        const double term =
            static_cast<double>(widen(x_[row * product_.inputs + i])) * widen(weight_[output * product_.inputs + i]);
        wanted += term;
        scale += term * term;
      }
      const std::byte* at = found.data() + (row * product_.outputs + output) * size;
      const float got = product_.wide ? *reinterpret_cast<const float*>(at) : widen(*reinterpret_cast<const uint16_t*>(at));
      correct = correct && std::abs(got - wanted) <= (product_.wide ? 1e-5 : 4e-3) * std::max(std::abs(wanted), std::sqrt(scale));
    }
    return correct;
  }

 private:
  Matrix x(int rows) const { return {device_x_.data(), DataType::kBF16, rows, product_.inputs, product_.inputs}; }
  Matrix out(int rows) const {
    return {device_out_.data(), product_.wide ? DataType::kF32 : DataType::kBF16, rows, product_.outputs, product_.outputs};
  }
  const CudaWeight& weight(int64_t call) const { return *copies_[static_cast<size_t>(call) % copies_.size()]; }

  Product product_;
  std::vector<uint16_t> weight_, x_;
  DeviceMemory device_x_, device_out_;
  std::vector<std::unique_ptr<CudaWeight>> copies_;
};

std::string rows_text(int rows) { return fmt::format("{} row{}", rows, rows == 1 ? "" : "s"); }

BenchRow measure(const std::vector<const GemmCase*>& cases, int rows, cuda::Matmul& matmul, double seconds) {
  BenchRow row;
  row.name = rows_text(rows);
  row.correct = true;
  for (const GemmCase* one : cases) {
    row.bytes += one->bytes();
    row.correct = row.correct && one->is_correct(matmul, rows);
    one->run_library(matmul, rows, 0, nullptr);  // asks for what the shape needs before calls are captured
  }
  row.time_us = time_device_call(seconds, [&](int64_t call, cuda::Stream stream) {
    for (const GemmCase* one : cases) one->run(matmul, rows, call, stream);
  });
  const double library = time_device_call(seconds, [&](int64_t call, cuda::Stream stream) {
    for (const GemmCase* one : cases) one->run_library(matmul, rows, call, stream);
  });
  row.note = fmt::format("cuBLASLt {:.1f} us", library);
  row.metrics = {{"library_us", library}};
  return row;
}

}  // namespace

BenchReport run_cuda_gemm_bench(const BenchOptions& options) {
  cuda::require_device();
  BenchReport report{.name = "gemm", .copy_tb_per_s = measure_device_copy()};
  cuda::Matmul matmul;
  for (const DecodeModel& model : kModels) {
    std::vector<GemmCase> cases;
    cases.reserve(std::size(model.products));
    std::vector<const GemmCase*> layer;
    for (const Product& product : model.products) {
      cases.emplace_back(product);
      if (!product.wide) layer.push_back(&cases.back());
    }
    for (const int rows : {1, 4, 16, 64, 128}) {
      for (size_t i = 0; i < cases.size(); ++i) {
        const Product& product = model.products[i];
        report.rows.push_back(measure({&cases[i]}, rows, matmul, options.seconds));
        report.rows.back().shape = fmt::format("{} {}, {} x {} bf16", model.name, product.name, product.outputs, product.inputs);
      }
      report.rows.push_back(measure(layer, rows, matmul, options.seconds));
      report.rows.back().shape = fmt::format("{}, the four of a layer in turn", model.name);
    }
    const auto& [qkv, output, gate_up, down, head] = model.products;
    const std::vector<BenchRow> tails = measure_layer_tails({.model = model.name,
                                                             .hidden = output.outputs,
                                                             .queries = output.inputs,
                                                             .intermediate = down.inputs,
                                                             .qkv = qkv.outputs},
                                                            options.seconds);
    report.rows.insert(report.rows.end(), tails.begin(), tails.end());
  }
  set_limits(report);
  return report;
}

}  // namespace sluice
