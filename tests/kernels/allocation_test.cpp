#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/kernels/allocation_counter.h"
#include "tests/kernels/paged_batch.h"
#include "tests/support/graph_builder.h"

namespace sluice::testing {
std::atomic<int64_t> allocations{0};
}  // namespace sluice::testing

namespace {
using sluice::testing::allocations;

void* counted(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* counted(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void* operator new(std::size_t size, std::align_val_t alignment) { return counted(size, alignment); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return counted(size, alignment); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace sluice {
namespace {

class ReservedPass : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Cpu, ReservedPass, ::testing::Bool(), [](const auto& unit) { return unit.param ? "Tiles" : "Vectors"; });

TEST_P(ReservedPass, AllocatesNothing) {
  const Geometry geometry{.head_dim = 64, .group = 2, .page = 16, .kv = DataType::kBF16};
  const auto device = create_cpu_device({.threads = 2, .tiles = GetParam()});
  const Compilation compilation = compile(testing::quest_graph(geometry, testing::GraphBuilder::budget(4, 1, 1)));
  const auto flow = device->compile(compilation.plan, 1, 2);
  std::vector<float> gain(64, 1.0f);
  std::vector<uint16_t> narrow(768 * 256, 0x3c00);
  const auto norm = device->create_weight(gain.data(), DataType::kF32, 1, 64);
  const auto wide_norm = device->create_weight(std::vector<float>(256, 1.0f).data(), DataType::kF32, 1, 256);
  const auto weight = device->create_weight(narrow.data(), DataType::kBF16, 512, 256);
  const auto table = device->create_weight(narrow.data(), DataType::kBF16, 768, 256);
  device->reserve({.rows = 64, .sequences = 3, .pages_per_sequence = 160, .query_heads = 4, .kv_heads = 2, .head_dim = 64});

  test::PagedBatch batch(*device, {{2500}, {300}, {200, 50, false}}, 2, geometry, compilation.plan.layout);
  const PassBatch pass = batch.batch();
  const std::vector<int32_t> tokens(52, 5);
  const std::vector<int32_t> picked = {0, 51};
  std::vector<float> x(52 * 256, 1.0f);
  std::vector<float> residual(x);
  std::vector<float> qkv(52 * 512, 1.0f);
  std::vector<float> out(52 * 256);
  std::vector<float> rows(2 * 256);
  const Device::Rope rope{.theta = 10000, .inverse_frequencies = std::vector<float>(32, 0.1f)};

  for (const CompiledFlow* chosen : {static_cast<const CompiledFlow*>(nullptr), static_cast<const CompiledFlow*>(flow.get())}) {
    const int64_t before = allocations;
    device->begin_pass(pass, batch.pool());
    device->embed(*table, tokens, nullptr, test::matrix_of(x, 256));
    device->rms_norm(test::matrix_of(x, 256), *wide_norm, 1e-6f, test::matrix_of(residual, 256));
    device->matmul(test::matrix_of(x, 256), *weight, test::matrix_of(qkv, 512));
    device->rope_append(0, test::matrix_of(qkv, 512), 4, norm.get(), norm.get(), 1e-6f, rope);
    device->refresh_fields(0, *flow);
    device->attention({.query_heads = 4, .scale = 0.125f, .flow = chosen}, test::matrix_of(qkv, 512).slice_columns(0, 256),
                      test::matrix_of(out, 256));
    device->add_rms_norm(test::matrix_of(residual, 256), test::matrix_of(out, 256), *wide_norm, 1e-6f, test::matrix_of(x, 256));
    device->silu_multiply(test::matrix_of(qkv, 512), test::matrix_of(out, 256));
    device->gather_rows(test::matrix_of(out, 256), picked, test::matrix_of(rows, 256));
    device->end_pass();
    EXPECT_EQ(allocations - before, 0) << (chosen == nullptr ? "dense" : "with a flow");
  }
}

}  // namespace
}  // namespace sluice
