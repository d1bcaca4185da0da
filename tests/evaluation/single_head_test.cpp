#include "agents/evaluation/single_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>

#include "agents/evaluation/numerical.h"
#include "scripting/lua/trace.h"

namespace sluice::test {
namespace {

/// The CPU, but for what a test puts between: it mixes up what belongs to different heads, layers or requests.
class MixingDevice final : public Device {
 public:
  std::function<void(PassBatch& batch)> on_pass = [](PassBatch&) {};
  std::function<void(Matrix& keys)> on_append = [](Matrix&) {};
  std::function<void(Attention& call, Matrix& queries)> on_attention = [](Attention&, Matrix&) {};

  const DeviceInfo& info() const override { return cpu_->info(); }
  std::unique_ptr<Memory> allocate(size_t bytes) override { return cpu_->allocate(bytes); }
  void write(void* target, const void* source, size_t bytes) override { cpu_->write(target, source, bytes); }
  void read(void* target, const void* source, size_t bytes) override { cpu_->read(target, source, bytes); }
  void synchronize() override { cpu_->synchronize(); }
  size_t free_bytes() const override { return cpu_->free_bytes(); }
  using CacheOperations::create_pool;
  std::unique_ptr<Pool> create_pool(const PoolMap& map) override { return cpu_->create_pool(map); }
  std::unique_ptr<CompiledFlow> compile(const Plan& plan, int layers, int kv_heads) override {
    return cpu_->compile(plan, layers, kv_heads);
  }
  void reserve(const Limits& limits) override { cpu_->reserve(limits); }
  void begin_pass(const PassBatch& batch, Pool& pool) override {
    PassBatch mixed = batch;
    on_pass(mixed);
    cpu_->begin_pass(mixed, pool);
  }
  void end_pass() noexcept override { cpu_->end_pass(); }
  void append(int layer, Matrix keys, Matrix values) override {
    on_append(keys);
    cpu_->append(layer, keys, values);
  }
  void evict(const CompiledFlow& flow) override { cpu_->evict(flow); }
  void refresh_fields(int layer, const CompiledFlow& flow) override { cpu_->refresh_fields(layer, flow); }
  int add_row_masses(const RowMasses&, Matrix, Matrix) override {
    refuse();
    return 0;
  }
  void attention(const Attention& call, Matrix q, Matrix out) override {
    Attention mixed = call;
    on_attention(mixed, q);
    cpu_->attention(mixed, q, out);
  }

  // A single head asks for no more than that.
  std::unique_ptr<Weight> create_weight(const void*, DataType, int64_t, int64_t) override { return refuse(); }
  std::unique_ptr<Picks> create_picks(int) override { return refuse(); }
  void embed(const Weight&, std::span<const int32_t>, const Picks*, Matrix) override { refuse(); }
  void rms_norm(Matrix, const Weight&, float, Matrix) override { refuse(); }
  void add_rms_norm(Matrix, Matrix, const Weight&, float, Matrix) override { refuse(); }
  void matmul(Matrix, const Weight&, Matrix) override { refuse(); }
  void silu_multiply(Matrix, Matrix) override { refuse(); }
  void gather_rows(Matrix, std::span<const int32_t>, Matrix) override { refuse(); }
  void squared_distances(Matrix, Matrix, int, std::span<float>) override { refuse(); }
  void rope_append(int, Matrix, int, const Weight*, const Weight*, float, const Rope&) override { refuse(); }
  void refresh_pages(Pool&, int, const StalePages&, const CompiledFlow&) override { refuse(); }
  void sample(Matrix, std::span<const SampleRow>, std::span<Sampled>) override { refuse(); }
  void sample(Matrix, std::span<const SampleRow>, Picks&) override { refuse(); }
  void take(Picks&, std::span<Sampled>) override { refuse(); }

 private:
  [[noreturn]] static std::nullptr_t refuse() { throw std::logic_error("a single head needs no weights and no samples"); }

  std::unique_ptr<Device> cpu_ = create_cpu_device({1});
};

bool is_found(MixingDevice& device, const std::string& flow, const std::string& folder = "/scripting/flows/") {
  const FlowGraph traced = trace_file(SLUICE_SOURCE_DIR + folder + flow + ".lua");
  return check_against_reference(device, traced, compile(traced).plan).has_value();
}

TEST(SingleHead, IsRightWhereNothingIsMixedUp) {
  MixingDevice device;
  for (const char* flow : {"full", "streaming", "quest", "h2o", "random"}) EXPECT_FALSE(is_found(device, flow)) << flow;
}

TEST(SingleHead, TellsKvHeadsApart) {
  MixingDevice device;
  device.on_append = [](const Matrix& keys) {
    for (int64_t row = 0; row < keys.rows; ++row) {
      std::swap_ranges(keys.row(row), keys.row(row) + keys.columns / 2, keys.row(row) + keys.columns / 2);
    }
  };
  for (const char* flow : {"full", "streaming", "quest"}) EXPECT_TRUE(is_found(device, flow)) << flow;
}

TEST(SingleHead, TellsLayersApart) {
  MixingDevice device;
  device.on_attention = [](Device::Attention& call, const Matrix&) { call.layer = 0; };
  for (const char* flow : {"full", "streaming", "quest", "random"}) EXPECT_TRUE(is_found(device, flow)) << flow;
}

TEST(SingleHead, TellsQueriesOfRequestsApart) {
  MixingDevice device;
  device.on_attention = [](const Device::Attention&, Matrix& queries) { queries.stride = 0; };
  for (const char* flow : {"full", "streaming", "quest"}) EXPECT_TRUE(is_found(device, flow)) << flow;
}

TEST(SingleHead, TellsSeedsOfRequestsApart) {
  MixingDevice device;
  std::vector<uint64_t> seeds;
  device.on_pass = [&](PassBatch& batch) {
    seeds.assign(batch.seeds.size(), batch.seeds[0]);
    batch.seeds = seeds;
  };
  EXPECT_TRUE(is_found(device, "random"));
}

TEST(SingleHead, TellsStatesOfRequestsApart) {
  MixingDevice device;
  std::vector<RequestState*> states;
  device.on_pass = [&](PassBatch& batch) {
    states.assign(batch.states.size(), batch.states[0]);
    batch.states = states;
  };
  EXPECT_TRUE(is_found(device, "smoothed_query", "/tests/planted/"));
}

// The other request is shorter by far, and begins anew where this one goes on.
TEST(SingleHead, DecodesForLongerThanTheOtherRequestHasPages) {
  const auto device = create_cpu_device({1});
  const FlowGraph traced = trace_file(SLUICE_SOURCE_DIR "/scripting/flows/h2o.lua");
  const Plan plan = compile(traced).plan;
  const Geometry& geometry = plan.graph.geometry;
  constexpr int kSteps = 100;
  SingleHead head(*device, plan, kSteps, 1);
  const std::vector<float> token(geometry.head_dim, 0.5F);
  const std::vector<float> query(static_cast<size_t>(geometry.group) * geometry.head_dim, 1.0F);
  for (int step = 0; step < kSteps; ++step) {
    const HeadStep got = head.decode(token, token, query);
    ASSERT_NEAR(got.output.front(), 0.5F, 1e-5) << step;
    ASSERT_EQ(got.selected.back(), step / geometry.page) << step;
  }
}

}  // namespace
}  // namespace sluice::test
