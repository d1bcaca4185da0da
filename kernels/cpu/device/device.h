#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu/attention/attend.h"
#include "kernels/cpu/attention/rope.h"
#include "kernels/cpu/products/matmul.h"
#include "kernels/cpu/runtime/batch_rows.h"
#include "kernels/cpu/runtime/thread_pool.h"
#include "kernels/cpu/sampling/sample.h"
#include "kernels/device.h"

namespace sluice::cpu {

/// The CPU: float32 activations in host memory, operations in order, each spread over the threads of one pool.
class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options);

  const DeviceInfo& info() const override { return info_; }

  std::unique_ptr<Memory> allocate(size_t bytes) override;
  void write(void* target, const void* host_source, size_t bytes) override;
  void read(void* host_target, const void* source, size_t bytes) override;
  void synchronize() override {}
  size_t free_bytes() const override;

  std::unique_ptr<Weight> create_weight(const void* values, DataType type, int64_t rows, int64_t columns) override;
  using CacheOperations::create_pool;
  std::unique_ptr<Pool> create_pool(const PoolMap& map) override;
  std::unique_ptr<CompiledFlow> compile(const Plan& plan, int layers, int kv_heads) override;

  void reserve(const Limits& limits) override;
  void begin_pass(const PassBatch& batch, Pool& pool) override;
  void end_pass() noexcept override { pass_.end(); }

  std::unique_ptr<Picks> create_picks(int rows) override;
  void embed(const Weight& table, std::span<const int32_t> tokens, const Picks* picks, Matrix out) override;
  void rms_norm(Matrix x, const Weight& gain, float epsilon, Matrix out) override;
  void add_rms_norm(Matrix residual, Matrix delta, const Weight& gain, float epsilon, Matrix out) override;
  void matmul(Matrix x, const Weight& weight, Matrix out) override;
  void silu_multiply(Matrix gate_up, Matrix out) override;
  void gather_rows(Matrix x, std::span<const int32_t> rows, Matrix out) override;
  void squared_distances(Matrix a, Matrix b, int parts, std::span<float> out) override;
  void rope_append(int layer, Matrix qkv, int query_heads, const Weight* query_gain, const Weight* key_gain, float epsilon,
                   const Rope& rope) override;
  void append(int layer, Matrix keys, Matrix values) override;
  void copy_shifted(Pool& pool, GroupLayers of, std::span<const ShiftedRun> runs, const Rope& rope) override;
  void evict(const CompiledFlow& flow) override;
  void refresh_fields(int layer, const CompiledFlow& flow) override;
  void refresh_pages(Pool& pool, int layer, const StalePages& stale, const CompiledFlow& flow) override;
  void attention(const Attention& call, Matrix q, Matrix out) override;
  int add_row_masses(const RowMasses& call, Matrix q, Matrix masses) override;
  void sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) override;
  void sample(Matrix logits, std::span<const SampleRow> rows, Picks& picks) override;
  void take(Picks& picks, std::span<Sampled> out) override;

 private:
  /// Of a sequence, in a KV head.
  void evict_head(int layer, const DeviceFlow& flow, int sequence, int head, int thread);
  /// Stores k and v [kv_heads, dim] of one row of the pass.
  void append_row(const LayerPages& layer, int64_t row, const float* keys, const float* values);
  /// Calls `body(row)` for every row, several rows to a task.
  template <typename Body>
  void for_rows(int64_t rows, int64_t columns, Body&& body);

  ThreadPool threads_;
  bool tiles_;
  DeviceInfo info_;
  BatchRows pass_;
  RopeTable rope_;
  Attend attend_;
  Matmul matmul_;
  std::vector<Sampler> samplers_;  // [threads]
  // Flows alive, so that `reserve` reaches those compiled before it. Shared with them, since they may outlive the device.
  std::shared_ptr<FlowRegistry> flows_ = std::make_shared<FlowRegistry>();
};

}  // namespace sluice::cpu
