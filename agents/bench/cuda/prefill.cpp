#include <fmt/format.h>

#include "agents/bench/bench.h"
#include "agents/bench/cuda/prefill_case.h"
#include "agents/bench/cuda/timing.h"

namespace sluice {
namespace {

BenchRow measure(const PrefillCaseShape& shape, double seconds) {
  PrefillCase attention(shape);
  const PrefillChunk& chunk = shape.chunks.front();
  BenchRow row;
  row.name = chunk.rows == chunk.tokens ? "whole prompt" : fmt::format("last chunk of {}", chunk.rows);
  row.shape = fmt::format("batch {}, tokens {}, kv_heads {}, group {}, dim {}, page {}, {}", shape.chunks.size(), chunk.tokens,
                          shape.kv_heads, shape.group, shape.dim, shape.page, name_of(shape.kv));
  row.time_us = time_device_call(seconds, [&](int64_t, cuda::Stream stream) { attention.run(stream); });
  row.flop = attention.flop();
  attention.poison();
  attention.run(nullptr);
  row.correct = attention.error(chunk.rows / 3 + 1, (attention.heads() + 1) / 2) < 1e-2;
  return row;
}

}  // namespace

BenchReport run_cuda_prefill_bench(const BenchOptions& options) {
  cuda::require_device();
  BenchReport report{
      .name = "prefill", .gflop_per_s = tensor_gflop_per_s(), .arithmetic = "bf16 tensor cores at the highest clock, calculated"};
  const PrefillCaseShape shapes[] = {
      {.chunks = {{8192, 8192}}, .kv_heads = 64, .group = 1},
      {.chunks = {{8192, 8192}}, .kv_heads = 16, .group = 4},
      {.chunks = {{8192, 8192}}, .kv_heads = 8, .group = 8},
      {.chunks = {{8192, 8192}}, .kv_heads = 8, .group = 8, .page = 64},
      {.chunks = {{8192, 8192}}, .kv_heads = 8, .group = 8, .page = 8},
      {.chunks = {{8192, 8192}}, .kv_heads = 8, .group = 8, .dim = 64},
      {.chunks = {{8192, 8192}}, .kv_heads = 8, .group = 4, .dim = 256},
      {.chunks = {{32768, 2048}}, .kv_heads = 8, .group = 4},
      {.chunks = {{32768, 512}}, .kv_heads = 8, .group = 4},
      {.chunks = {{8192, 8192}}, .kv_heads = 8, .group = 8, .kv = DataType::kE4M3},
      {.chunks = {{32768, 2048}}, .kv_heads = 8, .group = 4, .kv = DataType::kE4M3},
      {.chunks = std::vector<PrefillChunk>(16, {1024, 1024}), .kv_heads = 8, .group = 4},
  };
  for (const PrefillCaseShape& shape : shapes) report.rows.push_back(measure(shape, options.seconds));
  set_limits(report);
  return report;
}

}  // namespace sluice
