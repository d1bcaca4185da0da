#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/device.h"

namespace sluice {

/// A device that hands every call to another one. While a profile is being taken it also waits for each operation to end and
/// adds up the time by the operation's name, so that times include a synchronisation each and a pass takes longer than without.
class ProfilingDevice final : public Device {
 public:
  struct Total {
    int64_t calls = 0;
    double seconds = 0;
  };
  using Profile = std::map<std::string, Total>;

  explicit ProfilingDevice(Device& inner) : inner_(inner) {}

  void start();
  /// What `start` began, by operation.
  Profile stop();

  const DeviceInfo& info() const override { return inner_.info(); }
  std::unique_ptr<Memory> allocate(size_t bytes) override { return inner_.allocate(bytes); }
  void write(void* target, const void* host_source, size_t bytes) override;
  void read(void* host_target, const void* source, size_t bytes) override;
  void synchronize() override { inner_.synchronize(); }
  size_t free_bytes() const override { return inner_.free_bytes(); }
  std::unique_ptr<Weight> create_weight(const void* values, DataType type, int64_t rows, int64_t columns) override;
  std::unique_ptr<Pool> create_pool(int layers, int kv_heads, int pages, const PageLayout& layout) override;
  std::unique_ptr<CompiledFlow> compile(const Plan& plan, int layers, int kv_heads) override;
  void reserve(const Limits& limits) override { inner_.reserve(limits); }
  void begin_pass(const PassBatch& batch, Pool& pool) override { inner_.begin_pass(batch, pool); }
  void end_pass() noexcept override { inner_.end_pass(); }
  std::unique_ptr<Repetition> create_repetition() override { return inner_.create_repetition(); }
  void repeat(Repetition* repetition, std::span<const int32_t> tokens, const CompiledFlow* flow,
              const std::function<void()>& operations) override;
  std::unique_ptr<Picks> create_picks(int rows) override { return inner_.create_picks(rows); }
  void embed(const Weight& table, std::span<const int32_t> tokens, const Picks* picks, Matrix out) override;
  void rms_norm(Matrix x, const Weight& gain, float epsilon, Matrix out) override;
  void add_rms_norm(Matrix residual, Matrix delta, const Weight& gain, float epsilon, Matrix out) override;
  void matmul(Matrix x, const Weight& weight, Matrix out) override;
  void silu_multiply(Matrix gate_up, Matrix out) override;
  void gated_matmul(Matrix x, const Weight& weight, Matrix gate_up, Matrix out) override;
  void gather_rows(Matrix x, std::span<const int32_t> rows, Matrix out) override;
  void rope_append(int layer, Matrix qkv, int query_heads, const Weight* query_gain, const Weight* key_gain, float epsilon,
                   const Rope& rope) override;
  void append(int layer, Matrix keys, Matrix values) override;
  void refresh_fields(int layer, const CompiledFlow& flow) override;
  void refresh_pages(Pool& pool, int layer, std::span<const int32_t> pages, int last_tokens, const CompiledFlow& flow) override;
  void attention(const Attention& call, Matrix q, Matrix out) override;
  void finish_layer(const LayerTail& tail, const TailRows& rows) override;
  bool joins_layer(const LayerTail& tail, const TailRows& rows) const override { return inner_.joins_layer(tail, rows); }
  void add_mlp_norm(const LayerTail& tail, const TailRows& rows) override;
  bool joins_mlp(const LayerTail& tail, const TailRows& rows) const override { return inner_.joins_mlp(tail, rows); }
  void sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) override;
  void sample(Matrix logits, std::span<const SampleRow> rows, Picks& picks) override;
  void find_best(Matrix x, const Weight& head, Matrix logits, Picks& picks) override;
  void pick_best(Matrix logits, std::span<const SampleRow> rows, Picks& picks) override;
  void take(Picks& picks, std::span<Sampled> out) override { inner_.take(picks, out); }

 private:
  /// `operation`, one of `inner_`, timed where a profile is being taken.
  template <typename Operation>
  void run(std::string_view name, const Operation& operation);

  Device& inner_;
  bool active_ = false;
  Profile profile_;
};

}  // namespace sluice
