#include "kernels/cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "kernels/checks.h"
#include "kernels/cuda/flow_state.h"

namespace sluice::cuda {
namespace {

constexpr int kMostLists = 512;  // rows that attend in one launch

void require_numbers(const char* operation, const Matrix& matrix) {
  if (matrix.type != DataType::kF32 && matrix.type != DataType::kBF16) {
    throw InternalError(fmt::format("{}: activations on the GPU are f32 or bf16, not {}", operation, name_of(matrix.type)));
  }
}

const CudaWeight& as_cuda(const Weight& weight) {
  const auto* mine = dynamic_cast<const CudaWeight*>(&weight);
  if (mine == nullptr) throw InternalError("a weight of another device was given to the GPU");
  return *mine;
}

CudaPool& as_cuda(Pool& pool) {
  auto* mine = dynamic_cast<CudaPool*>(&pool);
  if (mine == nullptr) throw InternalError("a page pool of another device was given to the GPU");
  return *mine;
}

void grow(DeviceMemory& memory, size_t bytes) {
  if (memory.bytes() < bytes) memory = DeviceMemory(bytes);
}

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(size_t bytes) : memory_(bytes) { memory_.clear(); }
  void* data() const override { return memory_.data(); }
  size_t bytes() const override { return memory_.bytes(); }

 private:
  DeviceMemory memory_;
};

/// A flow that its device knows of while it lives.
class RegisteredFlow final : public CompiledFlow {
 public:
  RegisteredFlow(const Plan& plan, int layers, int kv_heads, std::shared_ptr<std::vector<CudaFlow*>> flows)
      : flow_(plan, layers, kv_heads), flows_(std::move(flows)) {
    flows_->push_back(&flow_);
  }
  ~RegisteredFlow() override { std::erase(*flows_, &flow_); }
  RegisteredFlow(const RegisteredFlow&) = delete;
  RegisteredFlow& operator=(const RegisteredFlow&) = delete;

  const Plan& plan() const override { return flow_.plan(); }
  std::unique_ptr<RequestState> create_state(int max_pages) const override { return flow_.create_state(max_pages); }
  void reserve(int sequences, int pages) { flow_.reserve(sequences, pages); }
  /// Flows have scratch, which is no part of what they mean.
  CudaFlow& flow() const { return flow_; }

 private:
  mutable CudaFlow flow_;
  std::shared_ptr<std::vector<CudaFlow*>> flows_;
};

/// The flow as this device compiled it, checked to lay out pages as `pool` does.
CudaFlow& as_cuda(const char* operation, const CompiledFlow& flow, const CudaPool& pool) {
  const auto* mine = dynamic_cast<const RegisteredFlow*>(&flow);
  if (mine == nullptr) throw InternalError("a flow of another device was given to the GPU");
  const PageLayout& layout = flow.plan().layout;
  require_equal(operation, "bytes of the pool's page", static_cast<int64_t>(pool.layout().bytes),
                static_cast<int64_t>(layout.bytes));
  require_equal(operation, "tokens of the pool's page", pool.layout().page, layout.page);
  require_equal(operation, "head dimension of the pool", pool.layout().head_dim, layout.head_dim);
  return mine->flow();
}

FlowBlocks blocks_of(const CudaPool& pool, int layer) {
  const LayerPages pages = pool.layer(layer);
  return {.base = pages.base,
          .page_stride = pages.block_bytes * pages.kv_heads,
          .block_bytes = pages.block_bytes,
          .kv_heads = pages.kv_heads,
          .layer = layer};
}

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
  info_.description = fmt::format("{}, {} multiprocessors", properties.name, properties.multiProcessorCount);
  counters_ = DeviceMemory(2 * sizeof(unsigned long long));
  counters_.clear();
}

DeviceCounters CudaDevice::counters() const {
  std::array<unsigned long long, 2> pages{};
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_.get()));
  counters_.download(pages.data(), sizeof(pages));
  return {.pages_attended = pages[0], .pages_available = pages[1]};
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

std::unique_ptr<Weight> CudaDevice::create_weight(const void* values, DataType type, int64_t rows, int64_t columns) {
  return std::make_unique<CudaWeight>(values, type, rows, columns);
}

std::unique_ptr<Pool> CudaDevice::create_pool(int layers, int kv_heads, int pages, const PageLayout& layout) {
  return std::make_unique<CudaPool>(layers, kv_heads, pages, layout, stream_.get());
}

std::unique_ptr<CompiledFlow> CudaDevice::compile(const Plan& plan, int layers, int kv_heads) {
  require_group(info_, plan.graph.geometry.group);
  auto flow = std::make_unique<RegisteredFlow>(plan, layers, kv_heads, flows_);
  flow->reserve(std::min(limits_.sequences, kMostLists), limits_.pages_per_sequence);
  return flow;
}

void CudaDevice::reserve(const Limits& limits) {
  limits_.sequences = std::max(limits_.sequences, limits.sequences);
  limits_.pages_per_sequence = std::max(limits_.pages_per_sequence, limits.pages_per_sequence);
  for (CudaFlow* flow : *flows_) flow->reserve(std::min(limits_.sequences, kMostLists), limits_.pages_per_sequence);
  pass_.reserve(limits);
  sampler_.reserve(static_cast<size_t>(limits.sequences));
  indices_.reserve(limits.rows * sizeof(int32_t));
  frequencies_.reserve(limits.head_dim / 2 * sizeof(float));
  const size_t bytes = static_cast<size_t>(limits.rows) * limits.query_heads * limits.head_dim * sizeof(uint16_t);
  grow(plain_q_, bytes);
  // Workspace depends on the shape of the pool, not on its memory: this one has
  // a page, and is asked for nothing else.
  const int group = limits.query_heads / std::max(1, limits.kv_heads);
  const PageLayout layout = page_layout({limits.head_dim, group, limits.page, DataType::kBF16}, {});
  const DeviceMemory page(layout.bytes * limits.kv_heads);
  reserve_decode(DecodeAttention({page.as<std::byte>(), layout, 1, limits.kv_heads}), group);
}

void CudaDevice::reserve_decode(const DecodeAttention& attention, int group) {
  require_group(info_, group);
  const size_t partials = attention.workspace_bytes({.sequences = 0, .group = group});
  const size_t counters = attention.workspace_bytes({.sequences = kMostLists, .group = group}) - partials;
  if (counters <= decode_counters_ && partials <= decode_workspace_.bytes() - decode_counters_) return;
  const size_t most_partials = std::max(partials, decode_workspace_.bytes() - decode_counters_);
  decode_counters_ = std::max(counters, decode_counters_);
  decode_workspace_ = DeviceMemory(decode_counters_ + most_partials);
  decode_workspace_.clear();
}

void CudaDevice::begin_pass(const PassBatch& batch, Pool& pool) { pass_.begin(batch, as_cuda(pool)); }

const int32_t* CudaDevice::send(std::span<const int32_t> indices) {
  std::copy(indices.begin(), indices.end(), reinterpret_cast<int32_t*>(indices_.fill(indices.size_bytes())));
  indices_.send(indices.size_bytes(), stream_.get());
  return reinterpret_cast<const int32_t*>(indices_.device());
}

void CudaDevice::embed(const Weight& table, std::span<const int32_t> tokens, Matrix out) {
  require_numbers("embed", out);
  require_equal("embed", "out.rows", out.rows, static_cast<int64_t>(tokens.size()));
  require_equal("embed", "out.columns", out.columns, table.columns());
  require_indices("embed", tokens, table.rows());
  if (tokens.empty()) return;
  const int32_t* on_device = nullptr;
  if (pass_.active() && !pass_.uploaded() && out.rows == pass_.batch().rows()) {
    pass_.upload(tokens, stream_.get());
    on_device = pass_.arrays(stream_.get()).tokens;
  } else {
    on_device = send(tokens);
  }
  cuda::gather_rows(as_cuda(table).matrix(), on_device, out, stream_.get());
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

void CudaDevice::gather_rows(Matrix x, std::span<const int32_t> rows, Matrix out) {
  require_numbers("gather_rows", x);
  require_numbers("gather_rows", out);
  require_equal("gather_rows", "out.rows", out.rows, static_cast<int64_t>(rows.size()));
  require_equal("gather_rows", "out.columns", out.columns, x.columns);
  require_indices("gather_rows", rows, x.rows);
  if (rows.empty()) return;
  cuda::gather_rows(x, send(rows), out, stream_.get());
}

void CudaDevice::prepare(const Rope& rope, int head_dim) {
  const int half = head_dim / 2;
  if (!rope.inverse_frequencies.empty() && static_cast<int>(rope.inverse_frequencies.size()) != half) {
    throw InternalError(
        fmt::format("rope has {} frequencies for a head dimension of {}", rope.inverse_frequencies.size(), head_dim));
  }
  if (static_cast<int>(host_frequencies_.size()) == half && theta_ == rope.theta &&
      given_frequencies_ == rope.inverse_frequencies) {
    return;
  }
  theta_ = rope.theta;
  given_frequencies_ = rope.inverse_frequencies;
  host_frequencies_ = rope.inverse_frequencies;
  for (int i = static_cast<int>(host_frequencies_.size()); i < half; ++i) {
    host_frequencies_.push_back(1.0f / std::pow(rope.theta, static_cast<float>(2 * i) / static_cast<float>(head_dim)));
  }
  const size_t bytes = half * sizeof(float);
  std::copy(host_frequencies_.begin(), host_frequencies_.end(), reinterpret_cast<float*>(frequencies_.fill(bytes)));
  frequencies_.send(bytes, stream_.get());
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
  prepare(rope, dim);
  const PassArrays arrays = pass_.arrays(stream_.get());
  rope_append_rows(qkv,
                   {.query_heads = query_heads,
                    .query_gain = query_gain == nullptr ? nullptr : as_cuda(*query_gain).vector(),
                    .key_gain = key_gain == nullptr ? nullptr : as_cuda(*key_gain).vector(),
                    .frequencies = reinterpret_cast<const float*>(frequencies_.device()),
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

void CudaDevice::refresh_fields(int layer, const CompiledFlow& flow) {
  if (!pass_.active()) throw InternalError("refresh_fields was called outside a pass");
  const CudaPool& pool = pass_.pool();
  CudaFlow& mine = as_cuda("refresh_fields", flow, pool);
  require_layer("refresh_fields", layer, pool);
  const PassArrays arrays = pass_.arrays(stream_.get());
  mine.refresh(blocks_of(pool, layer), arrays.touched_pages, arrays.touched_tokens, arrays.touched, 0, stream_.get());
}

void CudaDevice::refresh_pages(Pool& pool, int layer, std::span<const int32_t> pages, int last_tokens, const CompiledFlow& flow) {
  const CudaPool& memory = as_cuda(pool);
  CudaFlow& mine = as_cuda("refresh_pages", flow, memory);
  require_layer("refresh_pages", layer, memory);
  if (pages.empty()) return;
  if (last_tokens < 1 || last_tokens > memory.layout().page) {
    throw InternalError(fmt::format("refresh_pages: {} tokens in a page of {}", last_tokens, memory.layout().page));
  }
  for (const int32_t page : pages) require_page(memory, page);
  mine.refresh(blocks_of(memory, layer), send(pages), nullptr, static_cast<int>(pages.size()), last_tokens, stream_.get());
}

Matrix CudaDevice::plain(const Matrix& matrix, DeviceMemory& spare) {
  if (matrix.type == DataType::kBF16 && matrix.stride == matrix.columns) return matrix;
  grow(spare, matrix.rows * matrix.columns * sizeof(uint16_t));
  return {spare.data(), DataType::kBF16, matrix.rows, matrix.columns, matrix.columns};
}

void CudaDevice::attention(const Attention& call, Matrix q, Matrix out) {
  if (!pass_.active()) throw InternalError("attention was called outside a pass");
  const CudaPool& pool = pass_.pool();
  const PassBatch& batch = pass_.batch();
  const int64_t columns = static_cast<int64_t>(call.query_heads) * pool.layout().head_dim;
  require_numbers("attention", q);
  require_numbers("attention", out);
  require_equal("attention", "q.rows", q.rows, batch.rows());
  require_equal("attention", "out.rows", out.rows, batch.rows());
  require_equal("attention", "q.columns", q.columns, columns);
  require_equal("attention", "out.columns", out.columns, columns);
  require_equal("attention", "query_heads modulo kv_heads", call.query_heads % pool.kv_heads(), 0);
  require_layer("attention", call.layer, pool);
  CudaFlow* const flow = call.flow == nullptr ? nullptr : &as_cuda("attention", *call.flow, pool);
  reserve_decode(pool.decode_attention(call.layer), call.query_heads / pool.kv_heads());

  const bool as_it_is = q.type == DataType::kBF16 && q.stride % 8 == 0 && reinterpret_cast<uintptr_t>(q.data) % 16 == 0;
  const Matrix from = as_it_is ? q : plain(q, plain_q_);
  const Matrix to = plain(out, plain_out_);
  if (from.data != q.data) cuda::gather_rows(q, nullptr, from, stream_.get());
  for (int first = 0, last = 0; first < batch.sequences(); first = last) {
    while (last < batch.sequences() && batch.decoding[last] == batch.decoding[first]) ++last;
    if (batch.decoding[first] == 0) {
      attend_prefill(call, from, to, first, last);
      continue;
    }
    if (flow != nullptr) {
      last = std::min(last, first + kMostLists);
      attend_flow(call, *flow, q, from, to, first, last);
      continue;
    }
    attend_decode(call, from, to, first, last);
    for (int s = first; call.probe != nullptr && s < last; ++s) report_dense(*call.probe, s);
  }
  if (to.data != out.data) cuda::gather_rows(to, nullptr, out, stream_.get());
}

void CudaDevice::attend_lists(const Attention& call, const DecodeShape& shape, const PageLists& lists, const Matrix& q,
                              const Matrix& out, int first, float* sums) {
  const DecodeAttention& attention = pass_.pool().decode_attention(call.layer);
  DecodeShape strided = shape;
  strided.query_stride = q.stride;
  // Counters come first in what `run` is given, and must be zero, which it leaves them. They end at the same place whatever their
  // number, so that no call's partial results lie where another's counters are.
  const size_t counters = attention.workspace_bytes(shape) - attention.workspace_bytes({.sequences = 0, .group = shape.group});
  const int64_t row = pass_.batch().query_indptr[first];
  attention.run(strided, lists, static_cast<const uint16_t*>(q.data) + row * q.stride,
                static_cast<uint16_t*>(out.data) + row * out.stride, sums,
                decode_workspace_.as<std::byte>() + decode_counters_ - counters, stream_.get());
}

void CudaDevice::attend_decode(const Attention& call, const Matrix& q, const Matrix& out, int first, int last) {
  const PassArrays arrays = pass_.arrays(stream_.get());
  for (; first < last; first += kMostLists) {
    attend_lists(call,
                 {.sequences = std::min(kMostLists, last - first),
                  .group = call.query_heads / pass_.pool().kv_heads(),
                  .scale = call.scale},
                 {.pages = arrays.page_indices, .starts = arrays.page_indptr + first, .tokens = arrays.lengths + first}, q, out,
                 first, nullptr);
  }
}

void CudaDevice::attend_flow(const Attention& call, CudaFlow& flow, const Matrix& query, const Matrix& q, const Matrix& out,
                             int first, int last) {
  const CudaPool& pool = pass_.pool();
  const PassBatch& batch = pass_.batch();
  const PassArrays arrays = pass_.arrays(stream_.get());
  const DecodeShape shape{.sequences = last - first, .group = call.query_heads / pool.kv_heads(), .scale = call.scale};
  require_equal("attention", "query heads of a KV head", shape.group, flow.plan().graph.geometry.group);
  FlowSequences sequences;
  sequences.count = shape.sequences;
  for (int s = first; s < last; ++s) {
    const auto pages = static_cast<int>(pass_.pages(s).size());
    sequences.most_pages = std::max(sequences.most_pages, pages);
    if (flow.plan().graph.states.empty()) continue;
    const auto* state = batch.states.empty() ? nullptr : dynamic_cast<const CudaFlowState*>(batch.states[s]);
    if (state == nullptr) throw InternalError("attention: a flow keeps state and got none");
    if (state->max_pages() < pages) {
      throw InternalError(fmt::format("attention: {} pages, state for {}", pages, state->max_pages()));
    }
    sequences.states = arrays.states + first;
  }
  sequences.lengths = arrays.lengths + first;
  sequences.page_indptr = arrays.page_indptr + first;
  sequences.page_indices = arrays.page_indices;
  sequences.seeds = arrays.seeds + first;
  sequences.query = static_cast<const std::byte*>(query.data) + batch.query_indptr[first] * query.stride * size_of(query.type);
  sequences.query_stride = query.stride;
  sequences.query_type = query.type;
  auto* const counters = counters_.as<unsigned long long>();
  const FlowResult result =
      flow.select(blocks_of(pool, call.layer), sequences, {.attended = counters, .available = counters + 1}, stream_.get());
  const PageLists lists{.pages = result.pages, .starts = result.starts, .tokens = result.tokens, .per_head = true};
  const bool mass = call.probe != nullptr && call.probe->mass != nullptr;
  if (mass) grow(probe_sums_, 2 * sizeof(float) * shape.sequences * call.query_heads);
  attend_lists(call, shape, lists, q, out, first, mass ? probe_sums_.as<float>() : nullptr);
  if (call.probe != nullptr) report_flow(call, result, shape, q, first);
}

void CudaDevice::report_flow(const Attention& call, const FlowResult& result, const DecodeShape& shape, const Matrix& q,
                             int first) {
  const AttentionProbe& probe = *call.probe;
  const int kv_heads = pass_.pool().kv_heads();
  const size_t rows = static_cast<size_t>(shape.sequences) * kv_heads;
  const int64_t slot = int64_t{first} * kv_heads;
  std::vector<int32_t> counts(rows);
  read(counts.data(), result.counts, rows * sizeof(int32_t));
  if (probe.counts != nullptr) std::copy(counts.begin(), counts.end(), probe.counts + slot);
  for (size_t row = 0; row < rows; ++row) {
    const auto pages = static_cast<int>(pass_.pages(first + static_cast<int>(row) / kv_heads).size());
    if (probe.scores != nullptr && result.scores != nullptr) {
      if (probe.score_capacity < pages) {
        throw InternalError(fmt::format("probe: scores of {} pages, room for {}", pages, probe.score_capacity));
      }
      read(probe.scores + (slot + row) * probe.score_capacity, result.scores + row * result.score_stride, pages * sizeof(float));
    }
    if (probe.selected == nullptr) continue;
    if (probe.selected_capacity < counts[row]) {
      throw InternalError(fmt::format("probe: {} selected pages, room for {}", counts[row], probe.selected_capacity));
    }
    int32_t* const to = probe.selected + (slot + row) * probe.selected_capacity;
    read(to, result.positions + row * result.stride, counts[row] * sizeof(int32_t));
    std::fill(to + counts[row], to + probe.selected_capacity, -1);
  }
  if (probe.mass == nullptr) return;
  // The share of the dense sum that lies on the selected pages.
  const PassArrays arrays = pass_.arrays(stream_.get());
  const size_t sums = rows * shape.group;
  grow(probe_out_, static_cast<size_t>(q.rows) * q.columns * sizeof(uint16_t));
  const Matrix unused{probe_out_.data(), DataType::kBF16, q.rows, q.columns, q.columns};
  attend_lists(call, shape,
               {.pages = arrays.page_indices, .starts = arrays.page_indptr + first, .tokens = arrays.lengths + first}, q, unused,
               first, probe_sums_.as<float>() + sums);
  std::vector<float> logs(2 * sums);
  read(logs.data(), probe_sums_.data(), logs.size() * sizeof(float));
  for (size_t row = 0; row < rows; ++row) {
    float mass = 0;
    for (int h = 0; h < shape.group; ++h) mass += std::exp2(logs[row * shape.group + h] - logs[sums + row * shape.group + h]);
    probe.mass[slot + row] = mass / static_cast<float>(shape.group);
  }
}

void CudaDevice::attend_prefill(const Attention& call, const Matrix& q, const Matrix& out, int first, int last) {
  const CudaPool& pool = pass_.pool();
  const PassArrays arrays = pass_.arrays(stream_.get());
  const PrefillShape shape{.sequences = last - first,
                           .rows = pass_.batch().query_indptr[last] - pass_.batch().query_indptr[first],
                           .group = call.query_heads / pool.kv_heads(),
                           .scale = call.scale};
  const PrefillTables tables{.query_indptr = arrays.query_indptr + first,
                             .lengths = arrays.lengths + first,
                             .page_indptr = arrays.page_indptr + first,
                             .page_indices = arrays.page_indices};
  pool.prefill_attention(call.layer).run(shape, tables, {q.data, q.stride}, {out.data, out.stride}, stream_.get());
}

void CudaDevice::sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) {
  require_samples(logits, rows, out);
  if (logits.columns > kMostTokens) {
    throw InternalError(fmt::format("sample: {} tokens, at most {}", logits.columns, kMostTokens));
  }
  sampler_.run(logits, rows, out, stream_.get());
}

void CudaDevice::report_dense(const AttentionProbe& probe, int sequence) const {
  const auto pages = static_cast<int>(pass_.pages(sequence).size());
  if (probe.selected != nullptr && probe.selected_capacity < pages) {
    throw InternalError(fmt::format("probe: {} selected pages, room for {}", pages, probe.selected_capacity));
  }
  const int kv_heads = pass_.pool().kv_heads();
  for (int64_t slot = int64_t{sequence} * kv_heads; slot < int64_t{sequence + 1} * kv_heads; ++slot) {
    if (probe.counts != nullptr) probe.counts[slot] = pages;
    if (probe.mass != nullptr) probe.mass[slot] = 1;
    if (probe.selected == nullptr) continue;
    int32_t* to = probe.selected + slot * probe.selected_capacity;
    std::iota(to, to + pages, 0);
    std::fill(to + pages, to + probe.selected_capacity, -1);
  }
}

}  // namespace sluice::cuda

namespace sluice {

std::unique_ptr<Device> create_cuda_device() {
  cuda::require_device();
  return std::make_unique<cuda::CudaDevice>();
}

}  // namespace sluice
