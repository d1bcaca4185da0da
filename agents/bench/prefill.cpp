#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "agents/bench/bench.h"
#include "agents/bench/paged_kv.h"

namespace sluice {
namespace {

constexpr int kKvHeads = 2;
constexpr int kGroup = 4;
constexpr int kDim = 64;
constexpr int kPage = 16;
constexpr int kLayers = 2;

BenchRow measure(Device& device, PagedKv& kv, int tokens, int rows, double seconds) {
  constexpr int kQueryHeads = kKvHeads * kGroup;
  constexpr float kScale = 0.125f;
  const int64_t columns = static_cast<int64_t>(kQueryHeads) * kDim;
  std::vector<float> query(rows * columns);
  for (size_t i = 0; i < query.size(); ++i) {
    query[i] = PagedKv::query(static_cast<int>(i / columns), static_cast<int>(i % columns)) * 3.7f;
  }
  std::vector<float> out(query.size(), NAN);
  const Matrix q{.data = query.data(), .rows = rows, .columns = columns, .stride = columns};
  const Matrix result{.data = out.data(), .rows = rows, .columns = columns, .stride = columns};
  const std::vector<int32_t> query_indptr = {0, rows};
  const std::vector<int32_t> page_indptr = {0, tokens / kPage};
  const std::vector<int32_t> lengths = {tokens};
  const std::vector<uint8_t> decoding = {0};
  const PassBatch batch{.query_indptr = query_indptr,
                        .lengths = lengths,
                        .page_indptr = page_indptr,
                        .page_indices = kv.pages(),
                        .decoding = decoding,
                        .seeds = {},
                        .states = {}};
  const auto run = [&](int64_t i) {
    device.begin_pass(batch, kv.pool());
    device.attention({.layer = static_cast<int>(i % kLayers), .query_heads = kQueryHeads, .scale = kScale}, q, result);
    device.end_pass();
  };

  BenchRow row;
  row.name = rows == tokens ? "whole prompt" : fmt::format("last chunk of {}", rows);
  row.shape = fmt::format("tokens {}, kv_heads {}, group {}, dim {}, bf16", tokens, kKvHeads, kGroup, kDim);
  row.time_us = time_call(seconds, run);
  // Row i sees tokens - rows + i + 1 tokens; a token costs a dot product and a weighted sum.
  const double seen = static_cast<double>(rows) * (tokens - rows) + 0.5 * rows * (rows + 1.0);
  row.flop = 4.0 * kQueryHeads * kDim * seen;

  std::fill(out.begin(), out.end(), NAN);
  run(1);
  row.correct = true;
  for (int r : {0, rows / 3, rows - 1}) {
    for (int head = 0; head < kQueryHeads; ++head) {
      std::vector<int> seen_tokens(tokens - rows + r + 1);
      std::iota(seen_tokens.begin(), seen_tokens.end(), 0);
      const size_t at = r * columns + static_cast<size_t>(head) * kDim;
      const auto wanted = kv.judge(query.data() + at, kScale, 1, 0, head / kGroup, seen_tokens);
      row.correct = row.correct && agrees(out.data() + at, wanted, 2e-5);
    }
  }
  return row;
}

}  // namespace

BenchReport run_prefill_bench(const BenchOptions& options) {
  BenchReport report{.name = "prefill"};
  const auto device = create_device(options.device, options.threads);
  for (int tokens : {1024, 8192}) {
    PagedKv kv(*device, {.layers = kLayers,
                         .sequences = 1,
                         .tokens = tokens,
                         .kv_heads = kKvHeads,
                         .geometry = {.head_dim = kDim, .group = kGroup, .page = kPage, .kv = DataType::kBF16}});
    for (int rows : {512, tokens}) {
      raise_arithmetic_peak(report, options.threads);
      report.rows.push_back(measure(*device, kv, tokens, rows, options.seconds));
    }
  }
  set_limits(report);
  return report;
}

}  // namespace sluice
