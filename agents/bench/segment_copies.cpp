#include "agents/bench/segment_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/device/key_turns.h"
#include "kernels/device/page_pool.h"

namespace sluice {
namespace {

constexpr int kFirstSlot = 37;  // of the text that is copied, as SegmentTexts::known has it

/// Each segment in the place that a prompt has for it: pages [0, ..) before, those from `target` on afterwards.
std::vector<ShiftedRun> runs_of(const SegmentLayout& layout, int target) {
  std::vector<ShiftedRun> runs;
  int from = kFirstSlot;
  int to = 0;
  for (int segment = 0; segment < layout.segments; ++segment) {
    to += layout.own(segment);
    for (int left = layout.segment; left > 0;) {
      const int count = std::min({left, kSegmentPage - from % kSegmentPage, kSegmentPage - to % kSegmentPage});
      runs.push_back({.from_page = from / kSegmentPage,
                      .from_token = from % kSegmentPage,
                      .to_page = target + to / kSegmentPage,
                      .to_token = to % kSegmentPage,
                      .tokens = count,
                      .from_position = from,
                      .to_position = to});
      from += count;
      to += count;
      left -= count;
    }
  }
  return runs;
}

/// Whether the tokens of a layer's first and last run are those that were, turned on the host.
bool are_turned(const Pool& pool, int layer, std::span<const ShiftedRun> runs, const Device::Rope& rope) {
  const int dim = pool.layout().head_dim;
  const KeyTurns turns(rope, dim, runs);
  const auto row = static_cast<size_t>(pool.kv_heads()) * static_cast<size_t>(dim);
  std::vector<float> keys(2 * kSegmentPage * row), values(keys.size());
  for (const size_t i : {size_t{0}, runs.size() - 1}) {
    const ShiftedRun& run = runs[i];
    const std::array pages = {run.from_page, run.to_page};
    pool.read_layer(layer, pages, 2 * kSegmentPage, keys.data(), values.data());
    for (int token = 0; token < run.tokens; ++token) {
      const size_t before = static_cast<size_t>(run.from_token + token) * row;
      const size_t after = static_cast<size_t>(kSegmentPage + run.to_token + token) * row;
      for (int head = 0; head < pool.kv_heads(); ++head)
        turns.turn(i, token, keys.data() + before + static_cast<size_t>(head) * dim);
      for (size_t n = 0; n < row; ++n) {
        const float unit = std::fabs(keys[before + n]) / 64 + 1e-3F;  // of a bf16 that is rounded
        if (values[after + n] != values[before + n] || std::fabs(keys[after + n] - keys[before + n]) > unit) return false;
      }
    }
  }
  return true;
}

}  // namespace

BenchRow measure_segment_copies(Device& device, const ModelConfig& config, const SegmentLayout& layout, double seconds) {
  const int target = pages_for(kFirstSlot + layout.segments * layout.segment, kSegmentPage);
  const PageLayout page = page_layout({.head_dim = config.head_dim, .group = config.group(), .page = kSegmentPage}, {});
  const auto pool = device.create_pool(config.layers, config.kv_heads, target + pages_for(layout.tokens, kSegmentPage), page);
  const std::vector<ShiftedRun> runs = runs_of(layout, target);
  const int layer = config.layers - 1;  // that is looked at
  std::vector<int32_t> pages(static_cast<size_t>(target));
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<float> numbers(static_cast<size_t>(target) * kSegmentPage * static_cast<size_t>(config.kv_heads * config.head_dim));
  std::mt19937 random(7);
  for (float& x : numbers) x = std::normal_distribution<float>()(random);
  pool->write_layer(layer, pages, target * kSegmentPage, {}, numbers.data(), numbers.data());
  const auto copy = [&](int64_t) {
    device.copy_shifted(*pool, {}, runs, config.rope);
    device.synchronize();
  };
  BenchRow row;
  row.name = "copy and turn";
  row.shape = fmt::format("{} tokens in {} runs, {} layers, kv_heads {}, dim {}, bf16", layout.segments * layout.segment,
                          runs.size(), config.layers, config.kv_heads, config.head_dim);
  row.time_us = time_call(seconds, copy);
  row.bytes = 4.0 * config.kv_heads * config.head_dim * static_cast<double>(size_of(page.kv)) * config.layers * layout.segments *
              layout.segment;
  row.correct = are_turned(*pool, layer, runs, config.rope);
  return row;
}

}  // namespace sluice
