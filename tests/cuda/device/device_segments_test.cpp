// Keys that go to another place of a text, and what single rows give the tokens before them, on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "kernels/device/open_pass.h"
#include "scripting/base/error.h"
#include "tests/cuda/device/device_fixture.h"
#include "tests/support/log_softmax.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::CudaDeviceTest;
using testing::Held;

class CudaSegments : public CudaDeviceTest {
 protected:
  /// Runs of tokens of pages [0, pages) that go to pages behind those, each once, shifted by about `shift`.
  std::vector<ShiftedRun> draw_runs(int pages, int page, int shift) {
    std::vector<ShiftedRun> runs;
    std::uniform_int_distribution<int> any(0, page - 1);
    for (int p = 0; p < pages; ++p) {
      const int tokens = 1 + any(random_);
      const int from = std::uniform_int_distribution<int>(0, page - tokens)(random_);
      const int to = std::uniform_int_distribution<int>(0, page - tokens)(random_);
      const int position = std::max(0, -shift) + p * page + from;
      runs.push_back({p, from, pages + (p * 7 + 3) % pages, to, tokens, position, position + shift});
    }
    return runs;
  }
};

TEST_F(CudaSegments, CopiesAreThoseByWayOfTheHost) {
  constexpr int kPages = 11;
  constexpr int kLayers = 3;
  for (const auto& [dim, heads, page] : {std::tuple(64, 2, 16), {128, 8, 16}, {256, 1, 8}, {128, 3, 64}}) {
    for (const DataType kv : kKvTypes) {
      const PageLayout layout = page_layout({dim, 4, page, kv}, {});
      for (const int shift : {1, -17, 4096, 100000, -100000}) {
        const auto pool = device_->create_pool(kLayers, heads, 2 * kPages, layout);
        std::vector<int32_t> sources(kPages), targets(kPages);
        std::iota(sources.begin(), sources.end(), 0);
        std::iota(targets.begin(), targets.end(), kPages);
        fill(*pool, sources, kPages * page);
        Device::Rope rope{.theta = 1e6F, .inverse_frequencies = {}, .attention_scale = 1.1F};
        for (int i = 0; shift % 2 == 0 && i < dim / 2; ++i)
          rope.inverse_frequencies.push_back(std::pow(5e5F, -2.0F * float(i) / float(dim)) / float(1 + i % 3));
        const std::vector<ShiftedRun> runs = draw_runs(kPages, page, shift);
        // From one layer on, and those before it.
        pool->clear_pages(0, targets);
        const GroupLayers from{.group = 0, .first = shift == 1 ? 1 : shift == -17 ? 2 : 0};
        device_->copy_shifted(*pool, from, runs, rope);
        const size_t numbers = size_t(kLayers) * kPages * size_t(page) * size_t(heads) * size_t(dim);
        std::vector<float> keys(numbers), values(numbers), wanted_keys(numbers), wanted_values(numbers);
        pool->read(targets, kPages * page, keys.data(), values.data());
        pool->clear_pages(0, targets);
        device_->CacheOperations::copy_shifted(*pool, from, runs, rope);
        pool->read(targets, kPages * page, wanted_keys.data(), wanted_values.data());
        ASSERT_EQ(values, wanted_values) << dim << " channels, shift " << shift;
        // Sums in another order may round to the neighbour.
        const float unit = kv == kBF16 ? 1.0F / 128 : kv == DataType::kE4M3 ? 1.0F / 8 : 1.0F / 4;
        size_t others = 0;
        for (size_t i = 0; i < numbers; ++i) {
          ASSERT_NEAR(keys[i], wanted_keys[i], unit * std::fabs(wanted_keys[i]) + 2e-3F) << dim << " channels, shift " << shift;
          others += keys[i] != wanted_keys[i] ? 1 : 0;
        }
        EXPECT_LT(others, numbers / 1000 + 2);
      }
    }
  }
}

// With so many runs a block has all layers of one, which are more pieces than it has room for in shared memory.
TEST_F(CudaSegments, CopiesOfManyRunsGoThroughSharedMemoryAgainAndAgain) {
  constexpr int kPage = 8;
  constexpr int kPages = 313;
  constexpr int kRuns = kPages * kPage;
  constexpr int kLayers = 7;
  constexpr int kHeads = 6;
  constexpr int kDim = 64;
  std::vector<int32_t> sources(kPages), targets(kPages);
  std::iota(sources.begin(), sources.end(), 0);
  std::iota(targets.begin(), targets.end(), kPages);
  std::vector<ShiftedRun> runs;
  for (int run = 0; run < kRuns; ++run) {
    const int target = int(int64_t{run} * 1999 % kRuns);  // each once
    runs.push_back({run / kPage, run % kPage, kPages + target / kPage, target % kPage, 1, run, target});
  }
  for (const DataType kv : kKvTypes) {
    const auto pool = device_->create_pool(kLayers, kHeads, 2 * kPages, page_layout({kDim, 1, kPage, kv}, {}));
    fill(*pool, sources, kPages * kPage);
    const size_t numbers = size_t{kLayers} * kPages * kPage * kHeads * kDim;
    std::vector<float> keys(numbers), values(numbers), wanted_keys(numbers), wanted_values(numbers);
    device_->copy_shifted(*pool, {}, runs, {});
    pool->read(targets, kPages * kPage, keys.data(), values.data());
    pool->clear_pages(0, targets);
    device_->CacheOperations::copy_shifted(*pool, {}, runs, {});
    pool->read(targets, kPages * kPage, wanted_keys.data(), wanted_values.data());
    ASSERT_EQ(values, wanted_values);
    const float unit = kv == kBF16 ? 1.0F / 128 : kv == DataType::kE4M3 ? 1.0F / 8 : 1.0F / 4;
    for (size_t i = 0; i < numbers; ++i) ASSERT_NEAR(keys[i], wanted_keys[i], unit * std::fabs(wanted_keys[i]) + 2e-3F) << i;
  }
}

TEST_F(CudaSegments, CopiesBackAndForthAreWhatTheyWere) {
  const PageLayout layout = page_layout({128, 4, 16, kBF16}, {});
  const auto pool = device_->create_pool(2, 4, 3, layout);
  fill(*pool, std::vector<int32_t>{0}, 16);
  const ShiftedRun there{0, 0, 1, 0, 16, 12000, 77};
  const ShiftedRun back{1, 0, 2, 0, 16, 77, 12000};
  device_->copy_shifted(*pool, {}, {&there, 1}, {});
  device_->copy_shifted(*pool, {}, {&back, 1}, {});
  const size_t numbers = size_t{2} * 16 * 4 * 128;
  std::vector<float> keys(numbers), values(numbers), again(numbers), other(numbers), moved(numbers);
  pool->read(std::vector<int32_t>{0}, 16, keys.data(), values.data());
  pool->read(std::vector<int32_t>{1}, 16, moved.data(), other.data());
  pool->read(std::vector<int32_t>{2}, 16, again.data(), other.data());
  double largest = 0, turned = 0;
  for (size_t i = 0; i < numbers; ++i) {
    const size_t pair = i - i % 128 + (i % 128 + 64) % 128;
    const double size = std::hypot(double(keys[i]), double(keys[pair])) + 1e-6;
    largest = std::max(largest, std::fabs(double(again[i]) - keys[i]) / size);
    turned = std::max(turned, std::fabs(double(moved[i]) - keys[i]) / size);
  }
  EXPECT_LT(largest, 1.0 / 64) << "one rounding each way";
  EXPECT_GT(turned, 0.5);
  EXPECT_EQ(other, values);
}

TEST_F(CudaSegments, WhoAsksForALayerHasItsCopies) {
  constexpr int kPages = 3000;
  constexpr int kLayers = 12;
  constexpr int kHeads = 8;
  constexpr int kDim = 128;
  const auto pool = device_->create_pool(kLayers, kHeads, 2 * kPages, page_layout({kDim, 1, 16, kBF16}, {}));
  std::vector<int32_t> sources(kPages), targets(kPages);
  std::iota(sources.begin(), sources.end(), 0);
  std::iota(targets.begin(), targets.end(), kPages);
  fill(*pool, sources, kPages * 16);
  std::vector<ShiftedRun> runs;
  for (int page = 0; page < kPages; ++page) runs.push_back({page, 0, kPages + page, 0, 16, page * 16, page * 16 + 5});
  const Held q = hold(1, kHeads * kDim, kBF16);
  const Held out = empty(1, kHeads * kDim, kBF16);
  BatchBuilder builder(16);
  builder.add({.first = kPages * 16 - 1, .decoding = true}, targets);
  const PassBatch batch = builder.batch();
  const auto attend = [&](int layer) {
    Device::Attention call;
    call.layer = layer;
    call.query_heads = kHeads;
    call.scale = 0.1F;
    device_->attention(call, q.matrix, out.matrix);
  };
  const auto repetition = device_->create_repetition();
  for (const bool repeated : {false, true, true, true}) {
    for (const int layer : {kLayers - 1, 1, 0}) {
      const auto result = [&] {
        const OpenPass pass(*device_, batch, *pool);
        if (repeated) {
          device_->repeat(repetition.get(), std::vector<int32_t>(1), {}, [&] { attend(kLayers - 1); });
        } else {
          attend(layer);
        }
        return fetch(out.matrix);
      };
      pool->clear_pages(0, targets);
      device_->copy_shifted(*pool, {}, runs, {});
      const std::vector<float> got = result();
      device_->synchronize();
      EXPECT_EQ(got, result()) << layer;
      EXPECT_GT(std::fabs(got.front()), 0);
    }
  }
  device_->copy_shifted(*pool, {}, runs, {});
  pool->clear_pages(0, targets);
  {
    const OpenPass pass(*device_, batch, *pool);
    attend(kLayers - 1);
    EXPECT_EQ(fetch(out.matrix), std::vector<float>(kHeads * kDim)) << "cleared after they were made";
  }
}

TEST_F(CudaSegments, WhatFollowsCopiesFindsThemMade) {
  constexpr int kPages = 2000;
  constexpr int kLayers = 8;
  const auto pool = device_->create_pool(kLayers, 8, 4 * kPages, page_layout({128, 1, 16, kBF16}, {}));
  std::vector<int32_t> sources(kPages), targets(kPages), others(kPages);
  std::iota(sources.begin(), sources.end(), 0);
  std::iota(targets.begin(), targets.end(), kPages);
  std::iota(others.begin(), others.end(), 2 * kPages);
  fill(*pool, sources, kPages * 16);
  const auto runs_to = [&](int from, int to) {
    std::vector<ShiftedRun> runs;
    for (int page = 0; page < kPages; ++page) runs.push_back({from + page, 0, to + page, 0, 16, page * 16, page * 16});
    return runs;
  };
  const size_t numbers = size_t{kPages} * 16 * 8 * 128;
  std::vector<float> keys(numbers), values(numbers), wanted_keys(numbers), wanted_values(numbers);
  for (const int layer : {1, kLayers - 1}) {
    pool->read_layer(layer, sources, kPages * 16, wanted_keys.data(), wanted_values.data());
    const auto expect_in = [&](std::span<const int32_t> pages, const char* what) {
      pool->read_layer(layer, pages, kPages * 16, keys.data(), values.data());
      EXPECT_TRUE(values == wanted_values && keys == wanted_keys) << what << ", layer " << layer;
    };
    pool->clear_pages(0, targets);
    device_->copy_shifted(*pool, {}, runs_to(0, kPages), {});
    device_->copy_shifted(*pool, {.group = 0, .first = layer}, runs_to(kPages, 2 * kPages), {});
    expect_in(others, "copies of copies");
    pool->clear_pages(0, targets);
    pool->clear_pages(0, others);
    device_->copy_shifted(*pool, {}, runs_to(0, kPages), {});
    pool->copy_pages(0, targets, others);
    expect_in(others, "pages that are copied");
    pool->clear_pages(0, targets);
    device_->copy_shifted(*pool, {}, runs_to(0, kPages), {});
    expect_in(targets, "what is read");
  }
  const auto gone = device_->create_pool(kLayers, 8, 2 * kPages, page_layout({128, 1, 16, kBF16}, {}));
  device_->copy_shifted(*gone, {}, runs_to(0, kPages), {});
}

TEST_F(CudaSegments, RunsOutsideTheirPagesAreRefused) {
  const auto pool = device_->create_pool(1, 2, 4, page_layout({64, 1, 16, kBF16}, {}));
  for (const ShiftedRun& run :
       {ShiftedRun{0, 10, 1, 0, 7, 0, 0}, {0, 0, 1, 10, 7, 0, 0}, {0, 0, 4, 0, 1, 0, 0}, {0, 0, 1, 0, 1, -1, 0}})
    EXPECT_THROW(device_->copy_shifted(*pool, {}, {&run, 1}, {}), InternalError);
}

TEST_F(CudaSegments, RowMassesAreWhatFloat64Gives) {
  constexpr int kHeads = 2;
  for (const auto& [dim, group, length, rows] :
       {std::tuple(64, 1, 300, 20), {128, 4, 131, 131}, {64, 3, 40, 1}, {256, 2, 700, 90}}) {
    for (const DataType type : kTypes) {
      const int query_heads = group * kHeads;
      const Batch batch({rows}, {length}, 16, 5);
      const auto pool = device_->create_pool(2, kHeads, batch.all_pages(), page_layout({dim, group, 16, kBF16}, {}));
      const auto [keys, values] = fill(*pool, batch.pages(0), length);
      device_->reserve({.rows = rows,
                        .sequences = 1,
                        .pages_per_sequence = pages_for(length, 16),
                        .query_heads = query_heads,
                        .kv_heads = kHeads,
                        .head_dim = dim});
      const Held q = hold(rows, int64_t{query_heads} * dim, type, 64);
      std::vector<int32_t> chosen;
      for (int row = 0; row < rows; row += 3) chosen.push_back(row);
      const int known = length / 2;
      const Held masses = hold(std::vector<float>(size_t(length) * size_t(query_heads), 0.5F), query_heads, length, kF32);
      const Held of_all = hold(std::vector<float>(size_t(length), 0.5F), 1, length, kF32);
      for (const Held* const to : {&masses, &of_all}) {
        const OpenPass open(*device_, batch.view(), *pool);
        EXPECT_EQ(device_->add_row_masses({.layer = 1, .query_heads = query_heads, .scale = 0.1F, .rows = chosen, .known = known},
                                          q.matrix, to->matrix),
                  std::max(known, length - rows + chosen.back() + 1));
      }
      const int seen = length - rows + chosen.back() + 1;
      const std::vector<float> given = fetch(masses.matrix);
      std::vector<double> wanted(given.size(), 0.5);
      for (size_t i = 0; i < wanted.size(); ++i) {
        const auto token = int(i % size_t(length));
        if (token >= known && token < seen) wanted[i] = 0;
      }
      for (const int row : chosen) {
        const int last = length - rows + row;
        for (int head = 0; head < query_heads; ++head) {
          std::vector<double> scores;
          for (int token = 0; token <= last; ++token) {
            double product = 0;
            const size_t key = ((size_t(length) + size_t(token)) * kHeads + size_t(head / group)) * size_t(dim);
            for (int d = 0; d < dim; ++d)
              product += double(testing::rounded(float(q.at(row, int64_t{head} * dim + d)))) * double(keys[key + size_t(d)]);
            scores.push_back(0.1 * product);
          }
          const std::vector<double> logs = testing::log_softmax(std::span<const double>(scores));
          for (size_t token = 0; token < logs.size(); ++token)
            wanted[size_t(head) * size_t(length) + token] += std::exp(logs[token]);
        }
      }
      for (size_t i = 0; i < given.size(); ++i) ASSERT_NEAR(given[i], wanted[i], 2e-4) << dim << " " << group << " " << i;
      const std::vector<float> sums = fetch(of_all.matrix);
      for (size_t token = 0; token < sums.size(); ++token) {
        const double before = int(token) >= known && int(token) < seen ? 0 : 0.5;
        double sum = before;
        for (size_t i = token; i < wanted.size(); i += sums.size()) sum += wanted[i] - before;
        ASSERT_NEAR(sums[token], sum, 5e-4) << dim << " " << group << " " << token;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
