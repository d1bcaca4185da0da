#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "agents/bench/bench.h"
#include "agents/bench/paged_kv.h"

namespace sluice {
namespace {

constexpr int kSequences = 8;
constexpr int kTokens = 8192;
constexpr int kKvHeads = 2;
constexpr int kGroup = 4;
constexpr int kDim = 64;
constexpr int kPage = 16;
constexpr int kLayers = 32;  // 1 GiB of bf16 K and V: calls rotate through it, past every cache

/// One decode step of all sequences, each over its own list of pages (positions in the sequence).
struct DecodeStep {
  std::vector<int32_t> query_indptr, lengths, page_indptr, page_indices;
  std::vector<std::vector<int>> positions;  // [sequences] ascending
  std::vector<uint8_t> decoding;

  PassBatch batch() const {
    return {.query_indptr = query_indptr,
            .lengths = lengths,
            .page_indptr = page_indptr,
            .page_indices = page_indices,
            .decoding = decoding,
            .seeds = {},
            .states = {}};
  }
};

DecodeStep make_step(const PagedKv& kv, int pages, std::mt19937& random) {
  DecodeStep step;
  step.query_indptr = step.page_indptr = {0};
  for (int s = 0; s < kSequences; ++s) {
    std::vector<int> all(kv.pages_per_sequence());
    std::iota(all.begin(), all.end(), 0);
    std::vector<int> chosen;
    std::sample(all.begin(), all.end(), std::back_inserter(chosen), pages, random);
    for (int position : chosen) step.page_indices.push_back(kv.pages()[static_cast<size_t>(s) * all.size() + position]);
    step.positions.push_back(chosen);
    step.query_indptr.push_back(s + 1);
    step.page_indptr.push_back(static_cast<int32_t>(step.page_indices.size()));
    step.lengths.push_back(pages * kPage);
    step.decoding.push_back(1);
  }
  return step;
}

BenchRow measure(Device& device, PagedKv& kv, int pages, double copy_tb_per_s, double seconds) {
  constexpr int kSteps = 31;  // lists of pages; prime to kLayers, so that all pairs come up
  constexpr int kQueryHeads = kKvHeads * kGroup;
  constexpr float kScale = 0.125f;
  const bool dense = pages == kv.pages_per_sequence();
  std::mt19937 random(pages);
  std::vector<DecodeStep> steps;
  for (int i = 0; i < (dense ? 1 : kSteps); ++i) steps.push_back(make_step(kv, pages, random));

  std::vector<float> query(static_cast<size_t>(kSequences) * kQueryHeads * kDim);
  for (size_t i = 0; i < query.size(); ++i)
    query[i] = PagedKv::query(static_cast<int>(i / 512), static_cast<int>(i % 512)) * 3.7f;
  std::vector<float> out(query.size());
  const int64_t columns = static_cast<int64_t>(kQueryHeads) * kDim;
  const Matrix q{.data = query.data(), .rows = kSequences, .columns = columns, .stride = columns};
  const Matrix result{.data = out.data(), .rows = kSequences, .columns = columns, .stride = columns};
  const auto run = [&](int64_t i) {
    device.begin_pass(steps[i % steps.size()].batch(), kv.pool());
    device.attention({.layer = static_cast<int>(i % kLayers), .query_heads = kQueryHeads, .scale = kScale}, q, result);
    device.end_pass();
  };

  BenchRow row;
  row.name = dense ? "dense decode" : fmt::format("sparse decode, {} pages", pages);
  row.shape =
      fmt::format("batch {}, tokens {}, kv_heads {}, group {}, dim {}, bf16", kSequences, kTokens, kKvHeads, kGroup, kDim);
  row.time_us = time_call(seconds, run);
  row.bytes = 2.0 * kSequences * kKvHeads * kDim * sizeof(uint16_t) * pages * kPage;
  row.limit_us = row.bytes / copy_tb_per_s / 1e6;

  row.correct = true;
  for (int64_t call : {0, 5}) {
    std::fill(out.begin(), out.end(), NAN);
    run(call);
    for (int s = 0; s < kSequences; ++s) {
      const int head = (s + static_cast<int>(call)) % kQueryHeads;
      std::vector<int> tokens;
      for (int position : steps[call % steps.size()].positions[s]) {
        for (int t = 0; t < kPage; ++t) tokens.push_back(position * kPage + t);
      }
      const size_t at = (static_cast<size_t>(s) * kQueryHeads + head) * kDim;
      const auto wanted = kv.judge(query.data() + at, kScale, static_cast<int>(call % kLayers), s, head / kGroup, tokens);
      row.correct = row.correct && agrees(out.data() + at, wanted, 2e-5);
    }
  }
  return row;
}

}  // namespace

BenchReport run_attention_bench(const BenchOptions& options) {
  BenchReport report{.name = "attention", .copy_tb_per_s = measure_copy_bandwidth(options.threads)};
  const auto device = create_device(options.device, options.threads);
  PagedKv kv(*device, {.layers = kLayers,
                       .sequences = kSequences,
                       .tokens = kTokens,
                       .kv_heads = kKvHeads,
                       .geometry = {.head_dim = kDim, .group = kGroup, .page = kPage, .kv = DataType::kBF16}});
  for (int pages : {kv.pages_per_sequence(), 32, 64, 128}) {
    report.rows.push_back(measure(*device, kv, pages, report.copy_tb_per_s, options.seconds));
  }
  return report;
}

}  // namespace sluice
