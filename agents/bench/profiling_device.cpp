#include "agents/bench/profiling_device.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace sluice {

template <typename Operation>
void ProfilingDevice::run(std::string_view name, const Operation& operation) {
  if (!active_) {
    operation();
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  operation();
  inner_.synchronize();
  Total& total = profile_[std::string(name)];
  ++total.calls;
  total.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void ProfilingDevice::start() {
  inner_.synchronize();
  profile_.clear();
  active_ = true;
}

ProfilingDevice::Profile ProfilingDevice::stop() {
  active_ = false;
  return std::exchange(profile_, {});
}

void ProfilingDevice::write(void* target, const void* host_source, size_t bytes) {
  run("write", [&] { inner_.write(target, host_source, bytes); });
}

void ProfilingDevice::read(void* host_target, const void* source, size_t bytes) {
  run("read", [&] { inner_.read(host_target, source, bytes); });
}

std::unique_ptr<Weight> ProfilingDevice::create_weight(const void* values, DataType type, int64_t rows, int64_t columns) {
  return inner_.create_weight(values, type, rows, columns);
}

std::unique_ptr<Pool> ProfilingDevice::create_pool(int layers, int kv_heads, int pages, const PageLayout& layout) {
  return inner_.create_pool(layers, kv_heads, pages, layout);
}

std::unique_ptr<CompiledFlow> ProfilingDevice::compile(const Plan& plan, int layers, int kv_heads) {
  return inner_.compile(plan, layers, kv_heads);
}

void ProfilingDevice::repeat(Repetition* repetition, std::span<const int32_t> tokens, const CompiledFlow* flow,
                             const std::function<void()>& operations) {
  if (active_) return operations();  // one by one
  inner_.repeat(repetition, tokens, flow, operations);
}

void ProfilingDevice::embed(const Weight& table, std::span<const int32_t> tokens, const Picks* picks, Matrix out) {
  run("embed", [&] { inner_.embed(table, tokens, picks, out); });
}

void ProfilingDevice::rms_norm(Matrix x, const Weight& gain, float epsilon, Matrix out) {
  run("rms_norm", [&] { inner_.rms_norm(x, gain, epsilon, out); });
}

void ProfilingDevice::add_rms_norm(Matrix residual, Matrix delta, const Weight& gain, float epsilon, Matrix out) {
  run("add_rms_norm", [&] { inner_.add_rms_norm(residual, delta, gain, epsilon, out); });
}

void ProfilingDevice::matmul(Matrix x, const Weight& weight, Matrix out) {
  const std::string name = active_ ? fmt::format("matmul {} x {}", weight.rows(), weight.columns()) : std::string();
  run(name, [&] { inner_.matmul(x, weight, out); });
}

void ProfilingDevice::silu_multiply(Matrix gate_up, Matrix out) {
  run("silu_multiply", [&] { inner_.silu_multiply(gate_up, out); });
}

void ProfilingDevice::gated_matmul(Matrix x, const Weight& weight, Matrix gate_up, Matrix out) {
  const std::string name = active_ ? fmt::format("gated matmul {} x {}", weight.rows(), weight.columns()) : std::string();
  run(name, [&] { inner_.gated_matmul(x, weight, gate_up, out); });
}

void ProfilingDevice::gather_rows(Matrix x, std::span<const int32_t> rows, Matrix out) {
  run("gather_rows", [&] { inner_.gather_rows(x, rows, out); });
}

void ProfilingDevice::rope_append(int layer, Matrix qkv, int query_heads, const Weight* query_gain, const Weight* key_gain,
                                  float epsilon, const Rope& rope) {
  run("rope_append", [&] { inner_.rope_append(layer, qkv, query_heads, query_gain, key_gain, epsilon, rope); });
}

void ProfilingDevice::append(int layer, Matrix keys, Matrix values) {
  run("append", [&] { inner_.append(layer, keys, values); });
}

void ProfilingDevice::refresh_fields(int layer, const CompiledFlow& flow) {
  run("refresh_fields", [&] { inner_.refresh_fields(layer, flow); });
}

void ProfilingDevice::refresh_pages(Pool& pool, int layer, std::span<const int32_t> pages, int last_tokens,
                                    const CompiledFlow& flow) {
  run("refresh_pages", [&] { inner_.refresh_pages(pool, layer, pages, last_tokens, flow); });
}

void ProfilingDevice::attention(const Attention& call, Matrix q, Matrix out) {
  run(call.flow == nullptr ? "attention, dense" : "index and attention, flow", [&] { inner_.attention(call, q, out); });
}

void ProfilingDevice::finish_layer(const LayerTail& tail, const TailRows& rows) {
  if (inner_.joins_layer(tail, rows)) {
    run("finish_layer", [&] { inner_.finish_layer(tail, rows); });
  } else {
    Device::finish_layer(tail, rows);  // each operation on its own
  }
}

void ProfilingDevice::add_mlp_norm(const LayerTail& tail, const TailRows& rows) {
  if (inner_.joins_mlp(tail, rows)) {
    run("add_mlp_norm", [&] { inner_.add_mlp_norm(tail, rows); });
  } else {
    Device::add_mlp_norm(tail, rows);
  }
}

void ProfilingDevice::sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) {
  run("sample", [&] { inner_.sample(logits, rows, out); });
}

void ProfilingDevice::sample(Matrix logits, std::span<const SampleRow> rows, Picks& picks) {
  run("sample", [&] { inner_.sample(logits, rows, picks); });
}

void ProfilingDevice::find_best(Matrix x, const Weight& head, Matrix logits, Picks& picks) {
  const std::string name = active_ ? fmt::format("matmul {} x {}", head.rows(), head.columns()) : std::string();
  run(name, [&] { inner_.find_best(x, head, logits, picks); });
}

void ProfilingDevice::pick_best(Matrix logits, std::span<const SampleRow> rows, Picks& picks) {
  run("sample", [&] { inner_.pick_best(logits, rows, picks); });
}

}  // namespace sluice
