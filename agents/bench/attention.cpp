#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "agents/bench/bench.h"
#include "agents/bench/paged_kv.h"
#include "kernels/device/batch_builder.h"

namespace sluice {
namespace {

constexpr int kLayers = 32;  // 1 GiB of bf16 K and V: calls rotate through it, past every cache

/// One decode step of all sequences, each over its own list of pages (positions in the sequence).
struct DecodeStep {
  BatchBuilder batch;
  std::vector<std::vector<int>> positions;  // [sequences] pages of each, ascending

  explicit DecodeStep(int page) : batch(page) {}
};

/// Steps over random lists of `pages` pages, which share no page: one after the other they read all K and V of a layer.
std::vector<DecodeStep> make_steps(const PagedKv& kv, int pages) {
  std::mt19937 random(pages);
  const int sequences = kv.shape().sequences;
  const int all = kv.pages_per_sequence();
  std::vector<std::vector<int>> orders(sequences, std::vector<int>(all));
  for (std::vector<int>& order : orders) {
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
  }
  std::vector<DecodeStep> steps(all / pages, DecodeStep(kv.shape().geometry.page));
  for (size_t i = 0; i < steps.size(); ++i) {
    DecodeStep& step = steps[i];
    for (int s = 0; s < sequences; ++s) {
      const auto first = orders[s].begin() + static_cast<int64_t>(i) * pages;
      std::vector<int> chosen(first, first + pages);
      std::sort(chosen.begin(), chosen.end());
      std::vector<int32_t> ids;
      for (const int position : chosen) ids.push_back(kv.pages()[s * all + position]);
      step.batch.add({.first = pages * kv.shape().geometry.page - 1, .decoding = true}, ids);
      step.positions.push_back(std::move(chosen));
    }
  }
  return steps;
}

BenchRow measure(Device& device, PagedKv& kv, int pages, double seconds) {
  const PagedKv::Shape& shape = kv.shape();
  const int page = shape.geometry.page;
  const bool dense = pages == kv.pages_per_sequence();
  const std::vector<DecodeStep> steps = make_steps(kv, pages);
  const auto step_of = [&](int64_t call) -> const DecodeStep& { return steps[call / kLayers % steps.size()]; };
  PagedAttention attention(device, kv, shape.sequences);
  // Calls read the whole pool before they read anything again.
  const auto run = [&](int64_t call) { attention.run(step_of(call).batch.batch(), static_cast<int>(call % kLayers)); };

  BenchRow row;
  row.name = dense ? "dense decode" : fmt::format("sparse decode, {} pages", pages);
  row.shape = fmt::format("batch {}, tokens {}, {}", shape.sequences, shape.tokens, shape.heads_text());
  row.time_us = time_call(seconds, run);
  row.bytes = 2.0 * shape.sequences * shape.kv_heads * shape.geometry.head_dim * sizeof(uint16_t) * pages * page;

  row.correct = true;
  for (const int64_t call : {0, 5, kLayers + 3}) {
    attention.clear();
    run(call);
    for (int s = 0; s < shape.sequences; ++s) {
      const int head = (s + static_cast<int>(call)) % shape.query_heads();
      std::vector<int> tokens;
      for (const int position : step_of(call).positions[s]) {
        for (int t = 0; t < page; ++t) tokens.push_back(position * page + t);
      }
      row.correct = row.correct && attention.is_correct(s, head, static_cast<int>(call % kLayers), s, tokens);
    }
  }
  return row;
}

}  // namespace

BenchReport run_attention_bench(const BenchOptions& options) {
#if SLUICE_CUDA
  if (options.device == "cuda") return run_cuda_attention_bench(options);
#endif
  BenchReport report{.name = "attention"};
  const auto device = create_device(options.device, options.threads);
  PagedKv kv(*device, {.layers = kLayers, .sequences = 8, .tokens = 8192});
  for (int pages : {kv.pages_per_sequence(), 32, 64, 128}) {
    raise_copy_bandwidth(report, options.threads);
    report.rows.push_back(measure(*device, kv, pages, options.seconds));
  }
  set_limits(report);
  return report;
}

}  // namespace sluice
