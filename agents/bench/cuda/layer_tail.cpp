#include "agents/bench/cuda/layer_tail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>

#include "agents/bench/cuda/stored_numbers.h"
#include "agents/bench/cuda/timing.h"
#include "kernels/cuda/products/decode_mlp.h"
#include "kernels/cuda/products/layer_chain.h"

namespace sluice {
namespace {

using cuda::CudaWeight;
using cuda::DeviceMemory;

constexpr int kMostRows = 64;
constexpr size_t kRotation = size_t{400} << 20;  // bytes of weights that calls rotate through
constexpr float kEpsilon = 1e-6F;
constexpr double kTolerance = 0.02;  // of the norm of a row, which four roundings to bf16 in a row stay well within

/// A weight in host memory, as the device rounds it.
struct HostWeight {
  int outputs = 0;
  int inputs = 0;
  std::vector<std::byte> bf16 = {};

  double at(int output, int input) const {
    return stored_number(DataType::kBF16, bf16.data(), static_cast<size_t>(output) * inputs + input);
  }
};

HostWeight draw_weight(int outputs, int inputs, unsigned seed) {
  HostWeight weight{outputs, inputs, draw_stored(DataType::kBF16, static_cast<size_t>(outputs) * inputs, seed)};
  // Products then are about as large as what goes in.
  if (outputs > 1) scale_bf16(weight.bf16, std::exp2(-std::round(std::log2(std::sqrt(static_cast<float>(inputs))))));
  return weight;
}

std::vector<double> product(const std::vector<double>& x, const HostWeight& weight) {
  std::vector<double> sums(static_cast<size_t>(weight.outputs));
  for (int output = 0; output < weight.outputs; ++output) {
    for (int i = 0; i < weight.inputs; ++i) sums[output] += x[i] * weight.at(output, i);
  }
  return sums;
}

std::vector<double> normed(std::vector<double> x, const HostWeight& gain) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEpsilon);
  for (int i = 0; i < gain.inputs; ++i) x[i] *= factor * gain.at(0, i);
  return x;
}

/// A matrix in device memory.
struct DeviceRows {
  DeviceRows(DataType type, int columns)
      : memory(static_cast<size_t>(kMostRows) * columns * size_of(type)),
        matrix{memory.data(), type, kMostRows, columns, columns} {
    memory.clear();
  }

  DeviceMemory memory;
  Matrix matrix;
};

/// How all of it is computed.
enum class Way {
  kApart,     // each operation a kernel, SwiGLU with gate and up
  kMlp,       // gate and up, and down, as one kernel
  kTogether,  // everything as one kernel
};

class TailCase {
 public:
  explicit TailCase(const LayerWidths& widths)
      : output_(draw_weight(widths.hidden, widths.queries, 1)),
        mlp_gain_(draw_weight(1, widths.hidden, 2)),
        gate_up_(draw_weight(2 * widths.intermediate, widths.hidden, 3)),
        down_(draw_weight(widths.hidden, widths.intermediate, 4)),
        next_gain_(draw_weight(1, widths.hidden, 5)),
        next_qkv_(draw_weight(widths.qkv, widths.hidden, 6)),
        x_(draw_stored(DataType::kBF16, static_cast<size_t>(kMostRows) * widths.queries, 7)),
        attended_(DataType::kBF16, widths.queries),
        residual_(DataType::kF32, widths.hidden),
        delta_(DataType::kBF16, widths.hidden),
        normed_(DataType::kBF16, widths.hidden),
        activated_(DataType::kBF16, widths.intermediate),
        qkv_(DataType::kBF16, widths.qkv) {
    for (int row = 1; row < kMostRows; ++row)
      std::copy_n(x_.begin(), x_.size() / kMostRows, x_.begin() + row * (x_.size() / kMostRows));
    attended_.memory.upload(x_.data(), x_.size());
    const auto copies = std::max<size_t>(2, kRotation / bytes());
    for (size_t i = 0; i < copies; ++i) copies_.push_back(std::make_unique<Copy>(*this));
    judge();
  }

  /// Of the weights.
  size_t bytes() const { return output_.bf16.size() + gate_up_.bf16.size() + down_.bf16.size() + next_qkv_.bf16.size(); }

  bool can(Way way, int rows) {
    const Copy& weights = *copies_[0];
    const cuda::LayerChain::Chain at = chain(weights, rows);
    switch (way) {
      case Way::kApart:
        return true;
      case Way::kMlp:
        return mlp_.takes(at.normed, weights.gate_up.matrix(), weights.down.matrix(), at.activated);
      case Way::kTogether:
        return chain_.fits() && cuda::LayerChain::takes(at);
    }
    return false;
  }
  /// What a device does.
  Way chosen(int rows) {
    if (can(Way::kTogether, rows) && cuda::LayerChain::pays(chain(*copies_[0], rows))) return Way::kTogether;
    const bool mlp_pays = can(Way::kMlp, rows) && mlp_.pays(chain(*copies_[0], rows).normed, copies_[0]->down.matrix());
    return mlp_pays ? Way::kMlp : Way::kApart;
  }

  /// No other stream has anything to do.
  void run(Way way, int rows, int64_t call, cuda::Stream stream) {
    const Copy& weights = *copies_[static_cast<size_t>(call) % copies_.size()];
    const cuda::LayerChain::Chain at = chain(weights, rows);
    if (way == Way::kTogether) {
      chain_.run(at, false, stream);
      return;
    }
    matmul_.run(at.attended, weights.output, at.delta, stream);
    cuda::rms_norm_rows(at.residual, &at.delta, weights.mlp_gain.vector(), kEpsilon, at.normed, stream);
    if (way == Way::kMlp) {
      const cuda::SumParts delta =
          mlp_.run(at.normed, weights.gate_up.matrix(), weights.down.matrix(), weights.down.map(), at.activated, false, stream);
      cuda::rms_norm_rows(at.residual, delta, weights.next_gain.vector(), kEpsilon, at.normed, stream);
    } else {
      matmul_.run_gated(at.normed, weights.gate_up, at.activated, stream);
      matmul_.run(at.activated, weights.down, at.delta, stream);
      cuda::rms_norm_rows(at.residual, &at.delta, weights.next_gain.vector(), kEpsilon, at.normed, stream);
    }
    matmul_.run(at.normed, weights.next_qkv, at.qkv, stream);
  }

  /// Whether the first and the last row, which are the same, get what they should, but for roundings to bf16 on the way.
  bool is_correct(Way way, int rows) {
    residual_.memory.clear();
    for (const DeviceRows* scratch : {&delta_, &normed_, &activated_, &qkv_}) {
      SLUICE_CHECK_CUDA(cudaMemset(scratch->memory.data(), std::to_integer<int>(kNaNByte), scratch->memory.bytes()));
    }
    run(way, rows, 0, nullptr);
    std::vector<std::byte> found(static_cast<size_t>(rows) * wanted_.size() * sizeof(uint16_t));
    qkv_.memory.download(found.data(), found.size());
    return error_of(found, 0) <= kTolerance && error_of(found, static_cast<size_t>(rows - 1)) <= kTolerance;
  }

  double time(Way way, int rows, double seconds) {
    run(way, rows, 0, nullptr);  // asks for what the shapes need before calls are captured
    return time_device_call(seconds, [&](int64_t call, cuda::Stream stream) { run(way, rows, call, stream); });
  }

 private:
  /// The weights on the device.
  struct Copy {
    explicit Copy(const TailCase& from)
        : output(upload(from.output_)),
          mlp_gain(upload(from.mlp_gain_)),
          gate_up(upload(from.gate_up_)),
          down(upload(from.down_)),
          next_gain(upload(from.next_gain_)),
          next_qkv(upload(from.next_qkv_)) {}

    static CudaWeight upload(const HostWeight& weight) {
      return {weight.bf16.data(), DataType::kBF16, weight.outputs, weight.inputs};
    }
    CudaWeight output, mlp_gain, gate_up, down, next_gain, next_qkv;
  };

  cuda::LayerChain::Chain chain(const Copy& weights, int rows) const {
    const auto of = [rows](const DeviceRows& held) { return held.matrix.slice_rows(0, rows); };
    return {.output = &weights.output,
            .mlp_gain = &weights.mlp_gain,
            .gate_up = &weights.gate_up,
            .down = &weights.down,
            .next_gain = &weights.next_gain,
            .next_qkv = &weights.next_qkv,
            .epsilon = kEpsilon,
            .attended = of(attended_),
            .residual = of(residual_),
            .delta = of(delta_),
            .normed = of(normed_),
            .activated = of(activated_),
            .qkv = of(qkv_)};
  }

  /// How far row `row` of q, k and v is from what is wanted, of its norm.
  double error_of(const std::vector<std::byte>& found, size_t row) const {
    double squares = 0;
    double errors = 0;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const double error = stored_number(DataType::kBF16, found.data(), row * wanted_.size() + i) - wanted_[i];
      squares += wanted_[i] * wanted_[i];
      errors += error * error;
    }
    return std::sqrt(errors / squares);
  }

  /// What a row becomes whose residual is zero.
  void judge() {
    std::vector<double> x;
    for (int i = 0; i < output_.inputs; ++i) x.push_back(stored_number(DataType::kBF16, x_.data(), static_cast<size_t>(i)));
    std::vector<double> residual = product(x, output_);
    const std::vector<double> gates = product(normed(residual, mlp_gain_), gate_up_);
    std::vector<double> activated;
    for (int i = 0; i < down_.inputs; ++i) activated.push_back(gates[i] / (1 + std::exp(-gates[i])) * gates[down_.inputs + i]);
    const std::vector<double> delta = product(activated, down_);
    for (size_t i = 0; i < residual.size(); ++i) residual[i] += delta[i];
    wanted_ = product(normed(residual, next_gain_), next_qkv_);
  }

  HostWeight output_, mlp_gain_, gate_up_, down_, next_gain_, next_qkv_;
  std::vector<std::byte> x_;
  DeviceRows attended_, residual_, delta_, normed_, activated_, qkv_;
  std::vector<std::unique_ptr<Copy>> copies_;
  std::vector<double> wanted_;
  cuda::Matmul matmul_;
  cuda::DecodeMlp mlp_;
  cuda::LayerChain chain_;
};

}  // namespace

std::vector<BenchRow> measure_layer_tails(const LayerWidths& widths, double seconds) {
  TailCase tail(widths);
  std::vector<BenchRow> measured;
  for (const int rows : {1, 4, 8, 16, 64}) {
    BenchRow row;
    row.name = fmt::format("{} row{}", rows, rows == 1 ? "" : "s");
    row.shape = fmt::format("{}, all between two layers' attention", widths.model);
    row.bytes = static_cast<double>(tail.bytes());
    const Way chosen = tail.chosen(rows);
    row.correct = true;
    for (const auto& [way, name, metric] :
         {std::tuple(Way::kApart, "one by one", "one_by_one_us"), std::tuple(Way::kMlp, "MLP as one kernel", "mlp_kernel_us"),
          std::tuple(Way::kTogether, "one kernel", "one_kernel_us")}) {
      if (!tail.can(way, rows)) continue;
      row.correct = tail.is_correct(way, rows) && row.correct;
      const double time = tail.time(way, rows, seconds);
      row.metrics.emplace_back(metric, time);
      if (way == chosen) row.time_us = time;
      row.note += fmt::format("{}{} {:.1f} us{}", row.note.empty() ? "" : "; ", name, time, way == chosen ? " (chosen)" : "");
    }
    measured.push_back(row);
  }
  return measured;
}

}  // namespace sluice
