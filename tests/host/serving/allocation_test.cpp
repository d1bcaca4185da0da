// A decode step allocates nothing on the heap: counted by replacing operator new in this program.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "host/serving/engine.h"
#include "host/serving/kv_cache.h"
#include "scripting/lua/trace.h"
#include "tests/host/transformer/tiny_model.h"

namespace {

std::atomic<bool> counting = false;
std::atomic<int> allocations = 0;

void* counted(size_t bytes, size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  const size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* memory =
      alignment > alignof(std::max_align_t) ? std::aligned_alloc(alignment, size) : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* counted_or_null(size_t bytes) noexcept {
  try {
    return counted(bytes, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

void* operator new(size_t bytes) { return counted(bytes, 1); }
void* operator new[](size_t bytes) { return counted(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<size_t>(alignment)); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<size_t>(alignment)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted_or_null(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return counted_or_null(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace sluice {
namespace {

constexpr const char* kFlow = R"(
  local flow = sluice.flow { name = "mean", page = 8 }
  function flow.cache(c) c.mid = c.k:mean("token") end
  function flow.index(q, c)
    return sluice.topk(q:mean("head"):dot(c.mid):softmax("page"), { k = 4, first = 1, last = 1 })
  end
  return flow)";

/// `shared`: beside another engine on the same cache.
int allocations_of_decode_steps(const char* source, bool run_ahead, bool shared = false) {
  testing::TinyModel tiny;
  tiny.draw();
  const testing::TemporaryDirectory directory;
  tiny.write(directory.path());
  const auto device = create_cpu_device({2});
  const auto model = load_model(directory.path(), *device);
  std::optional<Plan> plan;
  TraceOptions trace_options;
  trace_options.head_dim = tiny.head_dim;
  trace_options.group = 2;
  if (source != nullptr) plan = compile(trace(source, "flow.lua", trace_options)).plan;
  EngineOptions options;
  options.page = 8;
  options.pages = 200;
  options.max_batch = 4;
  options.run_ahead = run_ahead;
  std::unique_ptr<Engine> other;
  if (shared) {
    options.kv = plan->layout.kv;
    options.cache = create_shared_cache(*device, model->config(), options);
    other = std::make_unique<Engine>(*device, *model, nullptr, options);
  }
  Engine engine(*device, *model, plan ? &*plan : nullptr, options);
  for (int i = 0; i < 4; ++i) {
    Request request;
    request.prompt.assign(static_cast<size_t>(90 + 3 * i), i + 5);
    request.max_tokens = 120;
    request.ignore_eos = true;
    request.sampling.temperature = static_cast<float>(i % 2);  // greedy and sampled
    request.sampling.top_p = 0.9F;
    engine.submit(request);
  }
  while (engine.stats().decode_passes < 4) engine.step();
  allocations = 0;
  counting = true;
  for (int i = 0; i < 64; ++i) engine.step();  // pages fill, new ones are taken and published
  counting = false;
  EXPECT_EQ(engine.stats().running, 4);
  return allocations;
}

TEST(Allocation, CounterSeesAllocations) {
  allocations = 0;
  counting = true;
  auto* number = new std::atomic<int>(1);  // NOLINT: what the counter counts
  counting = false;
  delete number;
  EXPECT_EQ(allocations, 1);
}

TEST(Allocation, DenseDecodeStepAllocatesNothing) {
  for (const bool run_ahead : {false, true}) EXPECT_EQ(allocations_of_decode_steps(nullptr, run_ahead), 0) << run_ahead;
}

TEST(Allocation, SparseDecodeStepAllocatesNothing) {
  for (const bool run_ahead : {false, true}) EXPECT_EQ(allocations_of_decode_steps(kFlow, run_ahead), 0) << run_ahead;
}

TEST(Allocation, SparseDecodeStepOnASharedCacheAllocatesNothing) {
  for (const bool run_ahead : {false, true}) EXPECT_EQ(allocations_of_decode_steps(kFlow, run_ahead, true), 0) << run_ahead;
}

}  // namespace
}  // namespace sluice
