#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "agents/bench/bench.h"
#include "agents/bench/cuda/paged_case.h"
#include "agents/bench/cuda/prefill_case.h"
#include "agents/bench/cuda/timing.h"
#include "scripting/pattern/slot_map.h"

namespace sluice {
namespace {

constexpr int kHeads = 64;
constexpr int kPage = 16;

struct NamedPattern {
  const char* name;  // as tests/cuda/peers/cases.py has it
  Pattern pattern;
};

/// Those of SAS, Table 1, with its sizes, beside all tokens by a mask.
std::vector<NamedPattern> patterns() {
  const Pattern every_fourth = Pattern::rect({.column_stride = 4});
  return {{"dense causal", Pattern::causal()},
          {"streaming", Pattern::sink(32) | Pattern::window(1024)},
          {"sliding", Pattern::window(1024)},
          {"block local", Pattern::blocks(128, 3)},
          {"strided", Pattern::strided(512, 512)},
          {"fixed", Pattern::fixed(256)},
          {"strided block local", Pattern::blocks(256, 1) & every_fourth}};
}

std::string shape_text(int tokens, int group = 1) {
  return fmt::format("batch 1, tokens {}, kv_heads {}, group {}, dim 128, page {}, bf16", tokens, kHeads / group, group, kPage);
}

BenchRow measure_prefill(const NamedPattern& named, int tokens, int group, double seconds) {
  PrefillCase attention(
      {.chunks = {{tokens, tokens}}, .kv_heads = kHeads / group, .group = group, .page = kPage, .pattern = named.pattern});
  BenchRow row;
  row.name = fmt::format("{}, prompt", named.name);
  row.shape = shape_text(tokens, group);
  row.time_us = time_device_call(seconds, [&](int64_t, cuda::Stream stream) { attention.run(stream); });
  row.flop = attention.flop();
  attention.poison();
  attention.run(nullptr);
  row.correct = attention.error(tokens / 7, kHeads / 2) < 1e-2;
  return row;
}

/// The step of the last of `tokens` tokens over its slots: the pages that have any that it sees.
BenchRow measure_step(const NamedPattern& named, int tokens, double seconds) {
  const SlotMap slots(PatternAnalysis(named.pattern), 2 * tokens);  // of a sequence that goes on
  std::vector<std::vector<int>> seen_of_page(static_cast<size_t>(tokens / kPage));
  for (int token = 0; token < tokens; ++token) {
    if (!named.pattern.sees(tokens - 1, token)) continue;
    const int slot = slots.slot(token);
    seen_of_page[static_cast<size_t>(slot / kPage)].push_back(slot % kPage);
  }
  std::erase_if(seen_of_page, [](const std::vector<int>& page) { return page.empty(); });
  constexpr int kPoolTokens = 8192;  // that no cache holds
  PagedCaseShape shape{.kv_heads = kHeads,
                       .page = kPage,
                       .tokens = std::max(tokens, kPoolTokens),
                       .selected = static_cast<int>(seen_of_page.size()),
                       .shared = true};
  bool sees_all = true;
  shape.mask.resize((seen_of_page.size() * kPage + 31) / 32);
  for (size_t page = 0; page < seen_of_page.size(); ++page) {
    for (const int token : seen_of_page[page]) set_bit(shape.mask, static_cast<int64_t>(page) * kPage + token);
    sees_all = sees_all && seen_of_page[page].size() == kPage;
  }
  if (sees_all) shape.mask.clear();
  constexpr double kCaches = 256e6;
  shape.sets = std::clamp(static_cast<int>(kCaches / (512.0 * kHeads * shape.selected * kPage)) + 1, 2, 20);
  PagedCase attention(shape);
  BenchRow row;
  row.name = fmt::format("{}, step", named.name);
  row.shape = shape_text(tokens);
  row.time_us = time_device_call(seconds, [&](int64_t call, cuda::Stream stream) { attention.run(call, stream); });
  row.bytes = attention.bytes();
  attention.poison();
  attention.run(0, nullptr);
  row.correct = attention.error(0) < 1e-2 && attention.error(kHeads - 1) < 1e-2;
  return row;
}

}  // namespace

BenchReport run_cuda_patterns_bench(const BenchOptions& options) {
  cuda::require_device();
  BenchReport report{.name = "patterns",
                     .copy_tb_per_s = measure_device_copy(),
                     .gflop_per_s = tensor_gflop_per_s(),
                     .arithmetic = "bf16 tensor cores at the highest clock, calculated"};
  // As most models have it, groups of query heads share K and V: the rows of a tile are fewer, and see what lies closer together.
  constexpr int kGroup = 8;
  std::vector<std::function<BenchRow()>> cases;
  for (const int tokens : {2048, 8192, 16384}) {
    for (const NamedPattern& named : patterns()) {
      cases.emplace_back([named, tokens, &options] { return measure_prefill(named, tokens, 1, options.seconds); });
      cases.emplace_back([named, tokens, &options] { return measure_step(named, tokens, options.seconds); });
    }
    for (const NamedPattern& named : patterns()) {
      cases.emplace_back([named, tokens, &options] { return measure_prefill(named, tokens, kGroup, options.seconds); });
    }
  }
  require_case(options, cases.size());
  for (size_t index = 0; index < cases.size(); ++index) {
    if (options.only == 0 || static_cast<size_t>(options.only) == index + 1) report.rows.push_back(cases[index]());
  }
  set_limits(report);
  return report;
}

}  // namespace sluice
