#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "agents/bench/bench.h"
#include "kernels/cpu/selection/topk.h"
#include "kernels/device.h"
#include "kernels/device/random.h"
#include "kernels/reference/oracle.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr size_t kScores = size_t{1} << 26;  // 256 MiB: calls rotate through it, past the caches
constexpr size_t kDrawn = size_t{1} << 20;   // numbers drawn; the rest repeats them

struct Distribution {
  const char* name;
  std::function<float(std::mt19937_64&)> draw;
};

std::vector<float> draw_scores(const Distribution& distribution) {
  std::mt19937_64 random(7);
  std::vector<float> scores(kScores);
  for (size_t i = 0; i < kDrawn; ++i) scores[i] = distribution.draw(random);
  for (size_t i = kDrawn; i < kScores; i += kDrawn) std::memcpy(scores.data() + i, scores.data(), kDrawn * sizeof(float));
  return scores;
}

/// Exact selections are those of the judge; approximate ones have their size and enough of them.
bool is_correct(std::span<const float> scores, const std::vector<int32_t>& selected, const Attributes& attributes) {
  const std::vector<int32_t> wanted = oracle::top_k(std::vector<double>(scores.begin(), scores.end()), attributes);
  std::vector<int32_t> common;
  std::set_intersection(wanted.begin(), wanted.end(), selected.begin(), selected.end(), std::back_inserter(common));
  const bool ascending = std::adjacent_find(selected.begin(), selected.end(), std::greater_equal<>()) == selected.end();
  return ascending && selected.size() == wanted.size() &&
         static_cast<double>(common.size()) >= (1 - attributes.tolerate) * static_cast<double>(wanted.size());
}

BenchRow measure(const std::string& name, const std::vector<float>& all, int pages, double tolerate, double copy_tb_per_s,
                 double seconds) {
  Attributes attributes;
  attributes.k = pages / 8;
  attributes.tolerate = tolerate;
  cpu::PageSelector selector(pages);
  std::vector<int32_t> selected(pages);
  const size_t arrays = kScores / pages;
  // Steps that have nothing to do with powers of two, so that neighbours in time are not neighbours in memory.
  const auto scores_of = [&](int64_t call) { return std::span<const float>(all.data() + call * 7919 % arrays * pages, pages); };
  const auto run = [&](int64_t call) {
    if (tolerate == 0) return selector.top_k(scores_of(call), attributes, selected.data());
    const uint64_t key = random_key(0, RandomPurpose::kApproxTopK, 0, 0, call);
    return selector.approx_top_k(scores_of(call), attributes, key, selected.data());
  };
  BenchRow row;
  row.name = tolerate == 0 ? fmt::format("exact, {}", name) : fmt::format("tolerate {}, {}", tolerate, name);
  row.shape = fmt::format("pages {}, k {}, one thread", pages, attributes.k);
  row.time_us = time_call(seconds, [&](int64_t call) { run(call); });
  row.bytes = sizeof(float) * pages + sizeof(int32_t) * attributes.k;
  row.limit_us = row.bytes / copy_tb_per_s / 1e6;
  row.correct = true;
  for (const int64_t call : {3, 11}) {
    const int count = run(call);
    row.correct = row.correct && is_correct(scores_of(call), {selected.begin(), selected.begin() + count}, attributes);
  }
  return row;
}

}  // namespace

BenchReport run_topk_bench(const BenchOptions& options) {
#if SLUICE_CUDA
  if (options.device == "cuda") return run_cuda_topk_bench(options);
#endif
  if (options.device != "cpu") require_device(options.device);
  BenchReport report{.name = "topk", .copy_tb_per_s = measure_copy_bandwidth(1)};
  const Distribution distributions[] = {
      {"normal", [](auto& random) { return std::normal_distribution<float>()(random); }},
      {"lognormal", [](auto& random) { return std::lognormal_distribution<float>(0, 2)(random); }},
      {"plateaus", [](auto& random) { return static_cast<float>(random() % 4); }},
  };
  for (const Distribution& distribution : distributions) {
    const std::vector<float> scores = draw_scores(distribution);
    for (const int pages : {512, 8192, 131072}) {
      for (const double tolerate : {0.0, 0.05, 0.2}) {
        report.rows.push_back(measure(distribution.name, scores, pages, tolerate, report.copy_tb_per_s, options.seconds / 3));
      }
    }
  }
  return report;
}

}  // namespace sluice
