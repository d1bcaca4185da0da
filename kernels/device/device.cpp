#include "kernels/device.h"

#include <fmt/format.h>

#ifdef SLUICE_CUDA
#include "kernels/cuda/device.h"
#include "kernels/cuda/runtime/runtime.h"
#endif

namespace sluice {

int Device::Picks::begin(size_t rows) {
  if (begun_ - taken_ >= rows_.size()) throw InternalError("sample: results of two calls have not been taken");
  if (rows > static_cast<size_t>(most_rows_)) {
    throw InternalError(fmt::format("sample: {} rows, picks have room for {}", rows, most_rows_));
  }
  const auto place = static_cast<int>(begun_++ % 2);
  rows_[static_cast<size_t>(place)] = static_cast<int>(rows);
  return place;
}

int Device::Picks::take(size_t rows) {
  if (taken_ == begun_) throw InternalError("take: nothing was sampled");
  const auto place = static_cast<int>(taken_ % 2);
  if (rows != static_cast<size_t>(rows_[static_cast<size_t>(place)])) {
    throw InternalError(fmt::format("take: {} rows, {} were sampled", rows, rows_[static_cast<size_t>(place)]));
  }
  ++taken_;
  return place;
}

void Device::repeat(Repetition* /*repetition*/, std::span<const int32_t> /*tokens*/, const CompiledFlow* /*flow*/,
                    const std::function<void()>& operations) {
  operations();
}

void Device::gated_matmul(Matrix x, const Weight& weight, Matrix gate_up, Matrix out) {
  matmul(x, weight, gate_up);
  silu_multiply(gate_up, out);
}

void Device::finish_layer(const LayerTail& tail, const TailRows& rows) {
  matmul(rows.attended, *tail.output, rows.delta);
  add_rms_norm(rows.residual, rows.delta, *tail.mlp_gain, tail.epsilon, rows.normed);
  if (tail.next_qkv == nullptr) {
    gated_matmul(rows.normed, *tail.gate_up, rows.gate_up, rows.activated);
    matmul(rows.activated, *tail.down, rows.delta);
    return;
  }
  add_mlp_norm(tail, rows);
  matmul(rows.normed, *tail.next_qkv, rows.qkv);
}

void Device::add_mlp_norm(const LayerTail& tail, const TailRows& rows) {
  if (tail.next_gain == nullptr) throw InternalError("add_mlp_norm: no norm follows the last layer's MLP");
  gated_matmul(rows.normed, *tail.gate_up, rows.gate_up, rows.activated);
  matmul(rows.activated, *tail.down, rows.delta);
  add_rms_norm(rows.residual, rows.delta, *tail.next_gain, tail.epsilon, rows.normed);
}

bool Device::joins_mlp(const LayerTail& /*tail*/, const TailRows& /*rows*/) const { return false; }

void Device::find_best(Matrix x, const Weight& head, Matrix logits, Picks& /*picks*/) { matmul(x, head, logits); }

void Device::pick_best(Matrix logits, std::span<const SampleRow> rows, Picks& picks) { sample(logits, rows, picks); }

bool Device::joins_layer(const LayerTail& /*tail*/, const TailRows& /*rows*/) const { return false; }

void require_device_name(const std::string& name) {
  if (name == "cpu" || name == "cuda") return;
  throw InputError(fmt::format("there is no device \"{}\"", name), "devices are cpu and cuda");
}

void require_device(const std::string& name) {
  require_device_name(name);
  if (name == "cpu") return;
#ifdef SLUICE_CUDA
  cuda::require_device();
#else
  throw InputError("device \"cuda\" is not available: this program was built without the CUDA toolkit",
                   "use --device cpu, or build where CMake finds nvcc 13.0 or later");
#endif
}

std::unique_ptr<Device> create_device(const std::string& name, int threads) {
  require_device(name);
#ifdef SLUICE_CUDA
  if (name == "cuda") return create_cuda_device();
#endif
  return create_cpu_device({.threads = threads});
}

std::vector<std::string> visible_gpus() {
#ifdef SLUICE_CUDA
  return cuda::visible_gpus();
#else
  return {};
#endif
}

}  // namespace sluice
