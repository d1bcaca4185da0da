#include "kernels/cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/flow/device_flow.h"
#include "kernels/cuda/runtime/step_graphs.h"
#include "kernels/device/checks.h"

namespace sluice::cuda {
namespace {

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(size_t bytes) : memory_(bytes) { memory_.clear(); }
  void* data() const override { return memory_.data(); }
  size_t bytes() const override { return memory_.bytes(); }

 private:
  DeviceMemory memory_;
};

CudaPicks& as_cuda(Device::Picks& picks) {
  auto* const mine = dynamic_cast<CudaPicks*>(&picks);
  if (mine == nullptr) throw InternalError("picks of another device were given to the GPU");
  return *mine;
}

const CudaPicks& as_cuda(const Device::Picks& picks) { return as_cuda(const_cast<Device::Picks&>(picks)); }

}  // namespace

void CudaDevice::DestroyStream::operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }

CudaDevice::CudaDevice() {
  // In order with the default stream, which uploads of weights use.
  cudaStream_t stream = nullptr;
  SLUICE_CHECK_CUDA(cudaStreamCreate(&stream));
  stream_.reset(stream);
  int device = 0;
  cudaDeviceProp properties{};
  SLUICE_CHECK_CUDA(cudaGetDevice(&device));
  SLUICE_CHECK_CUDA(cudaGetDeviceProperties(&properties, device));
  info_.name = "cuda";
  info_.activation = DataType::kBF16;
  info_.works_beside_host = true;
  info_.description = fmt::format("{}, {} multiprocessors", properties.name, properties.multiProcessorCount);
}

std::unique_ptr<Memory> CudaDevice::allocate(size_t bytes) { return std::make_unique<CudaMemory>(bytes); }

void CudaDevice::write(void* target, const void* host_source, size_t bytes) {
  SLUICE_CHECK_CUDA(cudaMemcpyAsync(target, host_source, bytes, cudaMemcpyHostToDevice, stream_.get()));
  synchronize();
}

void CudaDevice::read(void* host_target, const void* source, size_t bytes) {
  SLUICE_CHECK_CUDA(cudaMemcpyAsync(host_target, source, bytes, cudaMemcpyDeviceToHost, stream_.get()));
  synchronize();
}

void CudaDevice::synchronize() { SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_.get())); }

size_t CudaDevice::free_bytes() const { return cuda::free_bytes(); }

std::unique_ptr<Weight> CudaDevice::create_weight(const void* values, DataType type, int64_t rows, int64_t columns) {
  return std::make_unique<CudaWeight>(values, type, rows, columns);
}

std::unique_ptr<Pool> CudaDevice::create_pool(int layers, int kv_heads, int pages, const PageLayout& layout) {
  return std::make_unique<CudaPool>(layers, kv_heads, pages, layout, stream_.get());
}

std::unique_ptr<CompiledFlow> CudaDevice::compile(const Plan& plan, int layers, int kv_heads) {
  require_group(info_, plan.graph.geometry.group);
  auto flow = std::make_unique<RegisteredFlow>(plan, layers, kv_heads, flows_, stream_.get());
  flow->reserve(std::min(limits_.sequences, kMostLists), limits_.pages_per_sequence);
  return flow;
}

void CudaDevice::reserve(const Limits& limits) {
  Limits most = limits_;
  most.sequences = std::max(most.sequences, limits.sequences);
  most.pages_per_sequence = std::max(most.pages_per_sequence, limits.pages_per_sequence);
  for (CudaFlow* flow : *flows_) flow->reserve(std::min(most.sequences, kMostLists), most.pages_per_sequence);
  pass_.reserve(limits);
  reserve_picks(limits.sequences);
  indices_.reserve(limits.rows * sizeof(int32_t));
  const size_t bytes = static_cast<size_t>(limits.rows) * limits.query_heads * limits.head_dim * sizeof(uint16_t);
  grow(plain_q_, bytes);
  // Workspace depends on the shape of the pool, not on its memory: this one has
  // a page, and is asked for nothing else.
  const int group = limits.query_heads / std::max(1, limits.kv_heads);
  const PageLayout layout = page_layout({limits.head_dim, group, limits.page, DataType::kBF16}, {});
  const DeviceMemory page(layout.bytes * limits.kv_heads);
  reserve_decode(DecodeAttention({page.as<std::byte>(), layout, 1, limits.kv_heads}), group);
  limits_ = most;  // once there is memory for all of it
}

void CudaDevice::reserve_decode(const DecodeAttention& attention, int group) {
  require_group(info_, group);
  const size_t partials = attention.workspace_bytes({.sequences = 0, .group = group});
  const size_t counters = attention.workspace_bytes({.sequences = kMostLists, .group = group}) - partials;
  if (counters <= decode_counters_ && partials <= decode_workspace_.bytes() - decode_counters_) return;
  const size_t most_partials = std::max(partials, decode_workspace_.bytes() - decode_counters_);
  const size_t most_counters = std::max(counters, decode_counters_);
  DeviceMemory workspace(most_counters + most_partials);
  workspace.clear();
  decode_workspace_ = std::move(workspace);
  decode_counters_ = most_counters;
}

void CudaDevice::begin_pass(const PassBatch& batch, Pool& pool) {
  refreshed_ = {};
  pass_.begin(batch, as_cuda(pool));
}

const int32_t* CudaDevice::send(std::span<const int32_t> indices) {
  std::copy(indices.begin(), indices.end(), reinterpret_cast<int32_t*>(indices_.fill(indices.size_bytes())));
  indices_.send(indices.size_bytes(), stream_.get());
  return reinterpret_cast<const int32_t*>(indices_.device());
}

std::unique_ptr<Device::Repetition> CudaDevice::create_repetition() { return std::make_unique<StepGraphs>(); }

std::vector<uintptr_t> CudaDevice::ground(const RegisteredFlow* flow) const {
  std::vector<uintptr_t> ground{pass_.ground(), matmul_.ground(), decode_counters_, gang_.cooperative() ? 1U : 0U};
  for (const DeviceMemory* memory : {&plain_q_, &plain_out_, &decode_workspace_}) {
    ground.push_back(reinterpret_cast<uintptr_t>(memory->data()));
  }
  if (flow != nullptr) ground.push_back(flow->flow().ground());
  return ground;
}

void CudaDevice::repeat(Repetition* repetition, std::span<const int32_t> tokens, const CompiledFlow* flow,
                        const std::function<void()>& operations) {
  if (!pass_.active()) throw InternalError("repeat was called outside a pass");
  const PassBatch& batch = pass_.batch();
  require_equal("repeat", "tokens", static_cast<int64_t>(tokens.size()), batch.rows());
  auto* const graphs = dynamic_cast<StepGraphs*>(repetition);
  if (graphs == nullptr || !std::all_of(batch.decoding.begin(), batch.decoding.end(), [](uint8_t step) { return step == 1; })) {
    operations();
    return;
  }
  const RegisteredFlow* const mine = flow == nullptr ? nullptr : &as_cuda("repeat", *flow, pass_.pool());
  StepGraphs::Shape shape{.sequences = batch.sequences()};
  if (mine != nullptr) {
    check_flow_sequences(mine->flow(), 0, batch.sequences());
    shape.pages = bound_on_pages();
    shape.even = mine->flow().minds_evenness(batch.sequences(), shape.pages) && decodes_evenly();
  }
  pass_.upload(tokens, stream_.get());
  const Gang::Launches launches(gang_);
  graphs->run(
      shape, pass_.half(), [this, mine] { return ground(mine); }, stream_.get(), operations);
}

std::unique_ptr<Device::Picks> CudaDevice::create_picks(int rows) { return std::make_unique<CudaPicks>(rows); }

void CudaDevice::reserve_picks(int rows) {
  if (picks_ == nullptr || picks_->most_rows() < rows) picks_ = std::make_unique<CudaPicks>(rows);
}

void CudaDevice::embed(const Weight& table, std::span<const int32_t> tokens, const Picks* picks, Matrix out) {
  require_numbers("embed", out);
  require_equal("embed", "out.rows", out.rows, static_cast<int64_t>(tokens.size()));
  require_equal("embed", "out.columns", out.columns, table.columns());
  require_embeddable(tokens, table.rows(), picks);
  if (tokens.empty()) return;
  const int32_t* on_device = nullptr;
  if (pass_.active() && !pass_.uploaded() && out.rows == pass_.batch().rows()) pass_.upload(tokens, stream_.get());
  if (pass_.active() && pass_.has(tokens)) {
    on_device = pass_.arrays(stream_.get()).tokens;
  } else {
    on_device = send(tokens);
  }
  embed_rows(as_cuda(table).matrix(), on_device, picks == nullptr ? nullptr : as_cuda(*picks).tokens(), out, stream_.get());
}

void CudaDevice::rms_norm(Matrix x, const Weight& gain, float epsilon, Matrix out) {
  require_numbers("rms_norm", x);
  require_numbers("rms_norm", out);
  require_equal("rms_norm", "out.rows", out.rows, x.rows);
  require_equal("rms_norm", "out.columns", out.columns, x.columns);
  require_equal("rms_norm", "gain.columns", gain.columns(), x.columns);
  rms_norm_rows(x, nullptr, as_cuda(gain).vector(), epsilon, out, stream_.get());
}

void CudaDevice::add_rms_norm(Matrix residual, Matrix delta, const Weight& gain, float epsilon, Matrix out) {
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
  require_numbers("matmul", x);
  require_numbers("matmul", out);
  require_equal("matmul", "x.columns", x.columns, weight.columns());
  require_equal("matmul", "out.columns", out.columns, weight.rows());
  require_equal("matmul", "out.rows", out.rows, x.rows);
  matmul_.run(x, as_cuda(weight), out, stream_.get());
}

void CudaDevice::silu_multiply(Matrix gate_up, Matrix out) {
  require_numbers("silu_multiply", gate_up);
  require_numbers("silu_multiply", out);
  require_equal("silu_multiply", "gate_up.columns", gate_up.columns, 2 * out.columns);
  require_equal("silu_multiply", "out.rows", out.rows, gate_up.rows);
  silu_multiply_rows(gate_up, out, stream_.get());
}

void CudaDevice::gated_matmul(Matrix x, const Weight& weight, Matrix gate_up, Matrix out) {
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
  require_numbers("gather_rows", x);
  require_numbers("gather_rows", out);
  require_equal("gather_rows", "out.rows", out.rows, static_cast<int64_t>(rows.size()));
  require_equal("gather_rows", "out.columns", out.columns, x.columns);
  require_indices("gather_rows", rows, x.rows);
  if (rows.empty()) return;
  cuda::gather_rows(x, send(rows), out, stream_.get());
}

const float* CudaDevice::frequencies_of(const Rope& rope, int head_dim) {
  const int half = head_dim / 2;
  if (!rope.inverse_frequencies.empty() && static_cast<int>(rope.inverse_frequencies.size()) != half) {
    throw InternalError(
        fmt::format("rope has {} frequencies for a head dimension of {}", rope.inverse_frequencies.size(), head_dim));
  }
  DeviceMemory& known = frequencies_[{head_dim, rope.theta, rope.inverse_frequencies}];
  if (known.data() != nullptr) return known.as<float>();
  std::vector<float> frequencies = rope.inverse_frequencies;
  for (int i = static_cast<int>(frequencies.size()); i < half; ++i) {
    frequencies.push_back(1.0f / std::pow(rope.theta, static_cast<float>(2 * i) / static_cast<float>(head_dim)));
  }
  DeviceMemory memory(half * sizeof(float));
  memory.upload(frequencies.data(), memory.bytes());
  known = std::move(memory);
  return known.as<float>();
}

void CudaDevice::rope_append(int layer, Matrix qkv, int query_heads, const Weight* query_gain, const Weight* key_gain,
                             float epsilon, const Rope& rope) {
  if (!pass_.active()) throw InternalError("rope_append was called outside a pass");
  const CudaPool& pool = pass_.pool();
  const int dim = pool.layout().head_dim;
  require_numbers("rope_append", qkv);
  require_equal("rope_append", "qkv.rows", qkv.rows, pass_.batch().rows());
  require_equal("rope_append", "qkv.columns", qkv.columns, static_cast<int64_t>(query_heads + 2 * pool.kv_heads()) * dim);
  require_equal("rope_append", "qkv.stride modulo 8", qkv.stride % 8, 0);
  if (query_gain != nullptr) require_equal("rope_append", "query_gain.columns", query_gain->columns(), dim);
  if (key_gain != nullptr) require_equal("rope_append", "key_gain.columns", key_gain->columns(), dim);
  require_layer("rope_append", layer, pool);
  const float* const frequencies = frequencies_of(rope, dim);
  const PassArrays arrays = pass_.arrays(stream_.get());
  rope_append_rows(qkv,
                   {.query_heads = query_heads,
                    .query_gain = query_gain == nullptr ? nullptr : as_cuda(*query_gain).vector(),
                    .key_gain = key_gain == nullptr ? nullptr : as_cuda(*key_gain).vector(),
                    .frequencies = frequencies,
                    .epsilon = epsilon,
                    .attention_scale = rope.attention_scale},
                   pool.layer(layer), {arrays.positions, arrays.row_pages}, stream_.get());
}

void CudaDevice::append(int layer, Matrix keys, Matrix values) {
  if (!pass_.active()) throw InternalError("append was called outside a pass");
  const CudaPool& pool = pass_.pool();
  const int64_t columns = static_cast<int64_t>(pool.kv_heads()) * pool.layout().head_dim;
  require_numbers("append", keys);
  require_numbers("append", values);
  require_equal("append", "keys.rows", keys.rows, pass_.batch().rows());
  require_equal("append", "values.rows", values.rows, pass_.batch().rows());
  require_equal("append", "keys.columns", keys.columns, columns);
  require_equal("append", "values.columns", values.columns, columns);
  require_layer("append", layer, pool);
  const PassArrays arrays = pass_.arrays(stream_.get());
  append_rows(keys, values, pool.layer(layer), {arrays.positions, arrays.row_pages}, stream_.get());
}

void CudaDevice::finish_layer(const LayerTail& tail, const TailRows& rows) {
  if (joins_layer(tail, rows)) {
    const Gang::Launches launches(gang_);
    layer_chain_.run(tail, rows, gang_.cooperative(), stream_.get());
  } else {
    Device::finish_layer(tail, rows);
  }
}

bool CudaDevice::joins_layer(const LayerTail& tail, const TailRows& rows) const {
  return layer_chain_.fits() && LayerChain::takes(tail, rows) && LayerChain::pays(tail, rows);
}

void CudaDevice::add_mlp_norm(const LayerTail& tail, const TailRows& rows) {
  if (!joins_mlp(tail, rows)) {
    Device::add_mlp_norm(tail, rows);
    return;
  }
  require_numbers("add_mlp_norm", rows.residual);
  require_equal("add_mlp_norm", "residual.rows", rows.residual.rows, rows.normed.rows);
  require_equal("add_mlp_norm", "residual.columns", rows.residual.columns, tail.down->rows());
  require_equal("add_mlp_norm", "columns of a gain", tail.next_gain->columns(), rows.residual.columns);
  const CudaWeight& down = as_cuda(*tail.down);
  const Gang::Launches launches(gang_);
  const SumParts delta = decode_mlp_.run(rows.normed, as_cuda(*tail.gate_up).matrix(), down.matrix(), down.map(), rows.activated,
                                         gang_.cooperative(), stream_.get());
  rms_norm_rows(rows.residual, delta, as_cuda(*tail.next_gain).vector(), tail.epsilon, rows.normed, stream_.get());
}

bool CudaDevice::joins_mlp(const LayerTail& tail, const TailRows& rows) const {
  // A cooperative launch takes longer than products one by one. Where only a second device of the process makes it one it stays,
  // so that nobody's results depend on whether there are others.
  if (tail.next_gain == nullptr || gang_.always_cooperative()) return false;
  const Matrix down = as_cuda(*tail.down).matrix();
  return decode_mlp_.takes(rows.normed, as_cuda(*tail.gate_up).matrix(), down, rows.activated) &&
         decode_mlp_.pays(rows.normed, down);
}

void CudaDevice::sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) {
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
  require_samples(logits, rows);
  if (logits.columns > kMostTokens) {
    throw InternalError(fmt::format("sample: {} tokens, at most {}", logits.columns, kMostTokens));
  }
  as_cuda(picks).sample(logits, rows, stream_.get());
}

void CudaDevice::find_best(Matrix x, const Weight& head, Matrix logits, Picks& picks) {
  CudaPicks& mine = as_cuda(picks);
  require_equal("find_best", "x.columns", x.columns, head.columns());
  require_equal("find_best", "logits.rows", logits.rows, x.rows);
  require_equal("find_best", "logits.columns", logits.columns, head.rows());
  const bool finds = Matmul::takes_best(x, as_cuda(head));
  if (x.rows > 0 && x.rows <= DecodeMatmul::kMostRows) mine.set_product_finds_best(finds);
  if (finds) {
    matmul_.run_best(x, as_cuda(head), mine.best(), stream_.get());
  } else {
    matmul(x, head, logits);
  }
}

void CudaDevice::pick_best(Matrix logits, std::span<const SampleRow> rows, Picks& picks) {
  require_samples(logits, rows);
  if (!std::all_of(rows.begin(), rows.end(), [](const SampleRow& row) { return row.greedy(); })) {
    throw InternalError("pick_best: a row that is not greedy");
  }
  CudaPicks& mine = as_cuda(picks);
  if (logits.rows <= DecodeMatmul::kMostRows && mine.product_finds_best()) {
    mine.sample_best(rows, stream_.get());
  } else {
    sample(logits, rows, picks);
  }
}

void CudaDevice::take(Picks& picks, std::span<Sampled> out) { as_cuda(picks).take_results(out); }

}  // namespace sluice::cuda

namespace sluice {

std::unique_ptr<Device> create_cuda_device() {
  cuda::require_device();
  return std::make_unique<cuda::CudaDevice>();
}

}  // namespace sluice
