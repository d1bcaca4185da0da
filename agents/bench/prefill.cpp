#include <fmt/format.h>

#include <numeric>

#include "agents/bench/bench.h"
#include "agents/bench/paged_kv.h"
#include "kernels/device/batch_builder.h"

namespace sluice {
namespace {

constexpr int kLayers = 2;

BenchRow measure(Device& device, PagedKv& kv, int rows, double seconds) {
  const PagedKv::Shape& shape = kv.shape();
  const int tokens = shape.tokens;
  BatchBuilder chunk(shape.geometry.page);
  chunk.add({.first = tokens - rows, .rows = rows}, kv.pages());
  const PassBatch batch = chunk.batch();
  PagedAttention attention(device, kv, rows);

  BenchRow row;
  row.name = rows == tokens ? "whole prompt" : fmt::format("last chunk of {}", rows);
  row.shape = fmt::format("tokens {}, {}", tokens, shape.heads_text());
  row.time_us = time_call(seconds, [&](int64_t call) { attention.run(batch, static_cast<int>(call % kLayers)); });
  // Row i sees tokens - rows + i + 1 tokens; a token costs a dot product and a weighted sum.
  const double seen = static_cast<double>(rows) * (tokens - rows) + 0.5 * rows * (rows + 1.0);
  row.flop = 4.0 * shape.query_heads() * shape.geometry.head_dim * seen;

  attention.clear();
  attention.run(batch, 1);
  row.correct = true;
  for (const int r : {0, rows / 3, rows - 1}) {
    std::vector<int> seen_tokens(tokens - rows + r + 1);
    std::iota(seen_tokens.begin(), seen_tokens.end(), 0);
    for (int head = 0; head < shape.query_heads(); ++head) {
      row.correct = row.correct && attention.is_correct(r, head, 1, 0, seen_tokens);
    }
  }
  return row;
}

}  // namespace

BenchReport run_prefill_bench(const BenchOptions& options) {
#if SLUICE_CUDA
  if (options.device == "cuda") return run_cuda_prefill_bench(options);
#endif
  BenchReport report{.name = "prefill"};
  const auto device = create_device(options.device, options.threads);
  for (int tokens : {1024, 8192}) {
    PagedKv kv(*device, {.layers = kLayers, .sequences = 1, .tokens = tokens});
    for (int rows : {512, tokens}) {
      raise_arithmetic_peak(report, options.threads);
      report.rows.push_back(measure(*device, kv, rows, options.seconds));
    }
  }
  set_limits(report);
  return report;
}

}  // namespace sluice
