#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flow/device_flow.h"
#include "kernels/device/checks.h"

// What CudaDevice does for a model: weights, operations on rows, and picking tokens.

namespace sluice::cuda {
namespace {

CudaPicks& as_cuda(Device::Picks& picks) {
  auto* const mine = dynamic_cast<CudaPicks*>(&picks);
  if (mine == nullptr) throw InternalError("picks of another device were given to the GPU");
  return *mine;
}

const CudaPicks& as_cuda(const Device::Picks& picks) { return as_cuda(const_cast<Device::Picks&>(picks)); }

}  // namespace

std::unique_ptr<Weight> CudaDevice::create_weight(const void* values, DataType type, int64_t rows, int64_t columns) {
  return std::make_unique<CudaWeight>(values, type, rows, columns);
}

std::unique_ptr<Device::Picks> CudaDevice::create_picks(int rows) { return std::make_unique<CudaPicks>(rows); }

void CudaDevice::embed(const Weight& table, std::span<const int32_t> tokens, const Picks* picks, Matrix out) {
  const auto told = operation("embed");
  require_numbers("embed", out);
  require_equal("embed", "out.rows", out.rows, static_cast<int64_t>(tokens.size()));
  require_equal("embed", "out.columns", out.columns, table.columns());
  require_embeddable(tokens, table.rows(), picks);
  if (tokens.empty()) return;
  const int32_t* on_device = nullptr;
  if (pass_.active() && !pass_.uploaded() && out.rows == pass_.batch().rows()) pass_.upload(tokens, stream_.get());
  if (pass_.active() && pass_.has(tokens)) {
    on_device = pass_.arrays(stream_.get(), 0).tokens;
  } else {
    on_device = send(tokens);
  }
  embed_rows(as_cuda(table).matrix(), on_device, picks == nullptr ? nullptr : as_cuda(*picks).tokens(), out, stream_.get());
}

void CudaDevice::rms_norm(Matrix x, const Weight& gain, float epsilon, Matrix out) {
  const auto told = operation("rms_norm");
  require_numbers("rms_norm", x);
  require_numbers("rms_norm", out);
  require_equal("rms_norm", "out.rows", out.rows, x.rows);
  require_equal("rms_norm", "out.columns", out.columns, x.columns);
  require_equal("rms_norm", "gain.columns", gain.columns(), x.columns);
  rms_norm_rows(x, nullptr, as_cuda(gain).vector(), epsilon, out, stream_.get());
}

void CudaDevice::add_rms_norm(Matrix residual, Matrix delta, const Weight& gain, float epsilon, Matrix out) {
  const auto told = operation("add_rms_norm");
  require_numbers("add_rms_norm", residual);
  require_numbers("add_rms_norm", delta);
  require_numbers("add_rms_norm", out);
  require_equal("add_rms_norm", "delta.rows", delta.rows, residual.rows);
  require_equal("add_rms_norm", "delta.columns", delta.columns, residual.columns);
  require_equal("add_rms_norm", "out.rows", out.rows, residual.rows);
  require_equal("add_rms_norm", "out.columns", out.columns, residual.columns);
  require_equal("add_rms_norm", "gain.columns", gain.columns(), residual.columns);
  rms_norm_rows(residual, &delta, as_cuda(gain).vector(), epsilon, out, stream_.get());
}

void CudaDevice::matmul(Matrix x, const Weight& weight, Matrix out) {
  const auto told = product("matmul", weight);
  require_numbers("matmul", x);
  require_numbers("matmul", out);
  require_equal("matmul", "x.columns", x.columns, weight.columns());
  require_equal("matmul", "out.columns", out.columns, weight.rows());
  require_equal("matmul", "out.rows", out.rows, x.rows);
  matmul_.run(x, as_cuda(weight), out, stream_.get());
}

void CudaDevice::silu_multiply(Matrix gate_up, Matrix out) {
  const auto told = operation("silu_multiply");
  require_numbers("silu_multiply", gate_up);
  require_numbers("silu_multiply", out);
  require_equal("silu_multiply", "gate_up.columns", gate_up.columns, 2 * out.columns);
  require_equal("silu_multiply", "out.rows", out.rows, gate_up.rows);
  silu_multiply_rows(gate_up, out, stream_.get());
}

void CudaDevice::gated_matmul(Matrix x, const Weight& weight, Matrix gate_up, Matrix out) {
  const auto told = product("gated matmul", weight);
  require_equal("gated_matmul", "x.columns", x.columns, weight.columns());
  require_equal("gated_matmul", "gate_up.columns", gate_up.columns, weight.rows());
  require_equal("gated_matmul", "gate_up.rows", gate_up.rows, x.rows);
  require_equal("gated_matmul", "twice out.columns", 2 * out.columns, weight.rows());
  require_equal("gated_matmul", "out.rows", out.rows, x.rows);
  if (!Matmul::takes_gated(x, as_cuda(weight), out)) {
    Device::gated_matmul(x, weight, gate_up, out);
    return;
  }
  matmul_.run_gated(x, as_cuda(weight), out, stream_.get());
}

void CudaDevice::gather_rows(Matrix x, std::span<const int32_t> rows, Matrix out) {
  const auto told = operation("gather_rows");
  require_numbers("gather_rows", x);
  require_numbers("gather_rows", out);
  require_equal("gather_rows", "out.rows", out.rows, static_cast<int64_t>(rows.size()));
  require_equal("gather_rows", "out.columns", out.columns, x.columns);
  require_indices("gather_rows", rows, x.rows);
  if (rows.empty()) return;
  cuda::gather_rows(x, send(rows), out, stream_.get());
}

void CudaDevice::squared_distances(Matrix a, Matrix b, int parts, std::span<float> out) {
  const auto told = operation("squared_distances");
  require_numbers("squared_distances", a);
  require_numbers("squared_distances", b);
  require_parts("squared_distances", a, b, parts, out.size());
  if (out.empty()) return;
  const DeviceMemory sums(out.size_bytes());
  square_distances(a, b, parts, sums.as<float>(), stream_.get());
  SLUICE_CHECK_CUDA(cudaMemcpyAsync(out.data(), sums.data(), out.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()));
  wait();
}

size_t CudaDevice::run_first(std::span<const LayerPart> parts, const Activations& rows) {
  if (const auto chain = LayerChain::find(parts, rows);
      chain && layer_chain_.fits() && LayerChain::takes(*chain) && LayerChain::pays(*chain)) {
    const auto told = operation("layer_chain");
    const Gang::Launches launches(gang_);
    layer_chain_.run(*chain, gang_.cooperative(), stream_.get());
    return chain->parts;
  }
  if (const size_t joined = run_mlp(parts, rows); joined > 0) return joined;
  return Device::run_first(parts, rows);
}

size_t CudaDevice::run_mlp(std::span<const LayerPart> parts, const Activations& rows) {
  // A cooperative launch takes longer than products one by one. Where only a second device of the process makes it one it stays,
  // so that nobody's results depend on whether there are others.
  if (gang_.always_cooperative() || parts.size() < 3) return 0;
  const auto* const gated = std::get_if<GatedProductPart>(parts.data());
  const auto* const product = std::get_if<ProductPart>(&parts[1]);
  const auto* const norm = std::get_if<AddNormPart>(&parts[2]);
  if (gated == nullptr || product == nullptr || norm == nullptr || product->in != gated->out || norm->delta != product->out)
    return 0;
  const Matrix& x = rows[gated->in];
  const Matrix& activated = rows[gated->out];
  const CudaWeight& gate_up = as_cuda(*gated->weight);
  const CudaWeight& down = as_cuda(*product->weight);
  if (!decode_mlp_.takes(x, gate_up.matrix(), down.matrix(), activated) || !decode_mlp_.pays(x, down.matrix())) return 0;
  const auto told = operation("decode_mlp");
  const Matrix& residual = rows[Activation::kResidual];
  const Matrix& out = rows[norm->out];
  require_numbers("decode_mlp", residual);
  require_equal("decode_mlp", "residual.rows", residual.rows, x.rows);
  require_equal("decode_mlp", "residual.columns", residual.columns, down.rows());
  require_equal("decode_mlp", "out.rows", out.rows, residual.rows);
  require_equal("decode_mlp", "out.columns", out.columns, residual.columns);
  require_equal("decode_mlp", "columns of a gain", norm->gain->columns(), residual.columns);
  const Gang::Launches launches(gang_);
  const SumParts delta =
      decode_mlp_.run(x, gate_up.matrix(), down.matrix(), down.map(), activated, gang_.cooperative(), stream_.get());
  rms_norm_rows(residual, delta, as_cuda(*norm->gain).vector(), norm->epsilon, out, stream_.get());
  return 3;
}

void CudaDevice::sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) {
  const auto told = operation("sample");
  require_equal("sample", "results", static_cast<int64_t>(out.size()), static_cast<int64_t>(rows.size()));
  reserve_picks(static_cast<int>(rows.size()));
  try {
    sample(logits, rows, *picks_);
    picks_->take_results(out);
  } catch (...) {
    picks_.reset();  // what has begun may never be taken
    throw;
  }
}

void CudaDevice::sample(Matrix logits, std::span<const SampleRow> rows, Picks& picks) {
  const auto told = operation("sample");
  require_samples(logits, rows);
  if (logits.columns > kMostTokens) {
    throw InternalError(fmt::format("sample: {} tokens, at most {}", logits.columns, kMostTokens));
  }
  as_cuda(picks).sample(logits, rows, stream_.get());
}

void CudaDevice::find_best(Matrix x, const Weight& head, Matrix logits, Picks& picks) {
  const auto told = product("matmul", head);
  CudaPicks& mine = as_cuda(picks);
  require_equal("find_best", "x.columns", x.columns, head.columns());
  require_equal("find_best", "logits.rows", logits.rows, x.rows);
  require_equal("find_best", "logits.columns", logits.columns, head.rows());
  const bool finds = Matmul::takes_best(x, as_cuda(head));
  if (x.rows > 0 && x.rows <= DecodeMatmul::kMostRows) mine.set_product_finds_best(finds);
  if (finds) {
    matmul_.run_best(x, as_cuda(head), mine.best(), stream_.get());
    if (is_in_pass()) mine.pick_in_pass(static_cast<int>(x.rows), pass_.half(), stream_.get());
  } else {
    matmul(x, head, logits);
  }
}

void CudaDevice::pick_best(Matrix logits, std::span<const SampleRow> rows, Picks& picks) {
  const auto told = operation("sample");
  require_samples(logits, rows);
  if (!std::all_of(rows.begin(), rows.end(), [](const SampleRow& row) { return row.wants_best(); })) {
    throw InternalError("pick_best: a row of which more than the best token is wanted");
  }
  CudaPicks& mine = as_cuda(picks);
  const auto row_of = [&](int64_t choice) { return rows[static_cast<size_t>(choice)].row; };
  const auto is_each = [&] {
    int64_t choice = 0;
    while (choice < static_cast<int64_t>(rows.size()) && row_of(choice) == choice) ++choice;
    return choice == static_cast<int64_t>(rows.size());
  };
  if (logits.rows > DecodeMatmul::kMostRows || !mine.product_finds_best()) {
    sample(logits, rows, picks);
  } else if (is_in_pass() && is_each()) {
    mine.call_picked(rows.size(), pass_.half(), stream_.get());
  } else {
    mine.sample_best(rows, stream_.get());
  }
}

void CudaDevice::take(Picks& picks, std::span<Sampled> out) { as_cuda(picks).take_results(out); }

}  // namespace sluice::cuda
