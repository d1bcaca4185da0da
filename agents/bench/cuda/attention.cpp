#include <fmt/format.h>

#include <algorithm>

#include "agents/bench/bench.h"
#include "agents/bench/cuda/paged_case.h"
#include "agents/bench/cuda/timing.h"

namespace sluice {
namespace {

BenchRow measure(PagedCaseShape shape, double seconds) {
  // Sparse calls rotate through selections that together are larger than the second-level cache.
  constexpr double kCaches = 256e6;
  const double kv_bytes =
      2.0 * static_cast<double>(size_of(shape.kv)) * shape.sequences * shape.kv_heads * shape.selected * shape.page * shape.dim;
  if (shape.selected > 0) shape.sets = std::clamp(static_cast<int>(kCaches / kv_bytes) + 1, 2, 20);
  PagedCase attention(shape);
  BenchRow row;
  row.name = shape.selected > 0 ? fmt::format("sparse decode, {} pages", shape.selected) : "dense decode";
  row.shape = fmt::format("batch {}, tokens {}, kv_heads {}, group {}, dim {}, page {}, {}", shape.sequences, shape.tokens,
                          shape.kv_heads, shape.group, shape.dim, shape.page, name_of(shape.kv));
  row.time_us = time_device_call(seconds, [&](int64_t call, cuda::Stream stream) { attention.run(call, stream); });
  row.bytes = attention.bytes();
  attention.poison();
  attention.run(0, nullptr);
  row.correct = true;
  for (const int checked : {0, attention.rows() / 2, attention.rows() - 1}) {
    row.correct = row.correct && attention.error(checked) < 1e-2;
  }
  return row;
}

}  // namespace

BenchReport run_cuda_attention_bench(const BenchOptions& options) {
  cuda::require_device();
  BenchReport report{.name = "attention", .copy_tb_per_s = measure_device_copy()};
  const PagedCaseShape shapes[] = {
      {.sequences = 16, .kv_heads = 8, .group = 4, .tokens = 32768},
      {.sequences = 64, .kv_heads = 8, .group = 2, .tokens = 8192},
      {.sequences = 1, .kv_heads = 8, .group = 4, .tokens = 131072},
      {.sequences = 16, .kv_heads = 8, .group = 4, .tokens = 32768, .selected = 256},
      {.sequences = 16, .kv_heads = 8, .group = 4, .tokens = 32768, .selected = 128},
      {.sequences = 16, .kv_heads = 8, .group = 4, .tokens = 32768, .selected = 32},
      {.sequences = 64, .kv_heads = 8, .group = 2, .tokens = 8192, .selected = 64},
      {.sequences = 128, .kv_heads = 8, .group = 2, .tokens = 8192, .selected = 64},
      {.sequences = 4, .kv_heads = 8, .group = 4, .tokens = 32768, .selected = 128},
      {.sequences = 1, .kv_heads = 8, .group = 4, .tokens = 131072, .selected = 128},
      {.sequences = 16, .kv_heads = 8, .group = 8, .dim = 64, .tokens = 32768},
      {.sequences = 16, .kv_heads = 4, .group = 16, .tokens = 32768},
      {.sequences = 16, .kv_heads = 4, .group = 8, .dim = 256, .page = 32, .tokens = 16384},
      {.sequences = 16, .kv_heads = 8, .group = 4, .page = 8, .tokens = 32768, .selected = 256},
      {.sequences = 16, .kv_heads = 8, .group = 4, .page = 64, .tokens = 32768, .selected = 32},
      {.sequences = 16, .kv_heads = 8, .group = 4, .tokens = 32768, .kv = DataType::kE4M3},
      {.sequences = 16, .kv_heads = 8, .group = 4, .tokens = 32768, .kv = DataType::kE5M2},
      {.sequences = 16, .kv_heads = 8, .group = 8, .dim = 64, .tokens = 32768, .kv = DataType::kE4M3},
      {.sequences = 16, .kv_heads = 4, .group = 16, .tokens = 32768, .kv = DataType::kE4M3},
      {.sequences = 16, .kv_heads = 4, .group = 8, .dim = 256, .page = 32, .tokens = 16384, .kv = DataType::kE4M3},
      {.sequences = 16, .kv_heads = 8, .group = 4, .tokens = 32768, .selected = 128, .kv = DataType::kE4M3},
      {.sequences = 1, .kv_heads = 8, .group = 4, .tokens = 131072, .selected = 128, .kv = DataType::kE4M3},
  };
  for (const PagedCaseShape& shape : shapes) report.rows.push_back(measure(shape, options.seconds));
  set_limits(report);
  return report;
}

}  // namespace sluice
