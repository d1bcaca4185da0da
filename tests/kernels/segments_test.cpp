// Keys that go to another place of a text, and what single rows give the tokens before them.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/device/open_pass.h"
#include "scripting/base/error.h"
#include "tests/kernels/paged_batch.h"
#include "tests/kernels/random_floats.h"
#include "tests/support/log_softmax.h"

namespace sluice {
namespace {

constexpr int kDim = 32;
constexpr int kHeads = 2;
constexpr int kPage = 16;

/// Appends `rows` at positions from `first` on, rotated for them, to `page`.
void append(Device& device, Pool& pool, int32_t page, int first, std::vector<float> qkv, const Device::Rope& rope) {
  const int rows = static_cast<int>(qkv.size()) / (3 * kHeads * kDim);
  BatchBuilder builder(kPage);
  std::vector<int32_t> positions;
  for (int row = 0; row < rows; ++row) positions.push_back(first + row);
  builder.add_at(positions, {});
  // Only the last page of the text is written to; what stands for the others is not.
  std::vector<int32_t> pages(static_cast<size_t>(pages_for(first + rows, kPage)), page);
  builder.keep(0, pages);
  const OpenPass open(device, builder.batch(), pool);
  for (int layer = 0; layer < pool.layers(); ++layer) {
    std::vector<float> own = qkv;
    device.rope_append(layer, test::matrix_of(own, 3 * kHeads * kDim), kHeads, nullptr, nullptr, 0, rope);
  }
}

std::vector<float> keys_of(const Pool& pool, int32_t page, int layer, std::vector<float>* values = nullptr) {
  std::vector<float> keys(size_t{kPage} * kHeads * kDim), other(keys.size());
  pool.read_layer(layer, {&page, 1}, kPage, keys.data(), other.data());
  if (values != nullptr) *values = other;
  return keys;
}

Device::Rope scaled_rope() {
  Device::Rope rope{.theta = 10000, .inverse_frequencies = {}, .attention_scale = 1.25F};
  for (int i = 0; i < kDim / 2; ++i)
    rope.inverse_frequencies.push_back(std::pow(5e5F, -2.0F * float(i) / kDim) / (1 + float(i % 3)));
  return rope;
}

TEST(ShiftedRuns, KeysAreThoseOfTheirNewPlaceAndComeBack) {
  const auto device = create_cpu_device({.threads = 2});
  for (const DataType type : {DataType::kF32, DataType::kBF16}) {
    const PageLayout layout = page_layout({.head_dim = kDim, .group = 1, .page = kPage, .kv = type}, {});
    for (const Device::Rope& rope : {Device::Rope{}, scaled_rope()}) {
      for (const int shift : {1, -1, 5, 16, -31, 1000, -4097, 100000, -100000}) {
        const auto pool = device->create_pool(2, kHeads, 8, layout);
        // A page's worth of a text, before and after.
        const int from = shift < 0 ? -shift / kPage * kPage + kPage : 3 * kPage;
        const int to = from + shift;
        const std::vector<float> qkv = test::random_floats(size_t{8} * 3 * kHeads * kDim, 7);
        append(*device, *pool, 1, from, qkv, rope);  // tokens 0 to 7 of page 1
        append(*device, *pool, 2, to / kPage * kPage, qkv, rope);
        // Rows of page 3 stand where they are to go.
        const auto wanted_pool = device->create_pool(2, kHeads, 8, layout);
        const int slot = to % kPage;
        const int tokens = std::min(8, kPage - slot);
        std::vector<float> first(qkv.begin(), qkv.begin() + ptrdiff_t(tokens) * 3 * kHeads * kDim);
        append(*device, *wanted_pool, 3, to, first, rope);
        const ShiftedRun run{1, 0, 4, slot, tokens, from, to};
        device->copy_shifted(*pool, {}, {&run, 1}, rope);
        const ShiftedRun back{4, slot, 5, 2, tokens, to, from};
        device->copy_shifted(*pool, {}, {&back, 1}, rope);
        for (int layer = 0; layer < 2; ++layer) {
          std::vector<float> values, wanted_values;
          const std::vector<float> keys = keys_of(*pool, 4, layer, &values);
          const std::vector<float> wanted = keys_of(*wanted_pool, 3, layer, &wanted_values);
          const std::vector<float> again = keys_of(*pool, 5, layer), original = keys_of(*pool, 1, layer);
          for (int token = 0; token < tokens; ++token) {
            for (int i = 0; i < kHeads * kDim; ++i) {
              const size_t at = size_t(slot + token) * kHeads * kDim + size_t(i);
              // Of the pair that a channel is rotated with.
              const size_t pair = at - size_t(i % kDim) + size_t((i % kDim + kDim / 2) % kDim);
              const float size = std::hypot(wanted[at], wanted[pair]);
              const float unit = type == DataType::kF32 ? 6e-7F : 1.0F / 128;
              ASSERT_NEAR(keys[at], wanted[at], unit * size) << "shift " << shift << " token " << token;
              ASSERT_EQ(values[at], wanted_values[at]);
              const size_t old = size_t(token) * kHeads * kDim + size_t(i);
              ASSERT_NEAR(again[size_t(2 + token) * kHeads * kDim + size_t(i)], original[old], 2 * unit * size) << "and back";
            }
          }
        }
      }
    }
  }
}

TEST(ShiftedRuns, ScoresOfTokensThatMovedTogetherAreUnchanged) {
  const auto device = create_cpu_device({.threads = 1});
  const PageLayout layout = page_layout({.head_dim = kDim, .group = 1, .page = kPage, .kv = DataType::kF32}, {});
  const auto pool = device->create_pool(1, kHeads, 4, layout);
  append(*device, *pool, 0, 5 * kPage, test::random_floats(size_t{kPage} * 3 * kHeads * kDim, 3), {});
  const ShiftedRun run{0, 0, 2, 0, kPage, 5 * kPage, 900 * kPage};
  device->copy_shifted(*pool, {}, {&run, 1}, {});
  const std::vector<float> before = keys_of(*pool, 0, 0), after = keys_of(*pool, 2, 0);
  for (int a = 0; a < kPage; ++a) {
    for (int b = 0; b < kPage; ++b) {
      double old = 0, moved = 0;
      for (int d = 0; d < kDim; ++d) {
        old += double(before[size_t(a * kHeads * kDim + d)]) * before[size_t(b * kHeads * kDim + d)];
        moved += double(after[size_t(a * kHeads * kDim + d)]) * after[size_t(b * kHeads * kDim + d)];
      }
      // Angles near 14,400 are rounded by half a thousandth.
      EXPECT_NEAR(old, moved, 0.02) << a << " " << b;
    }
  }
}

TEST(ShiftedRuns, ByWayOfTheHostTheyAreTheSame) {
  const auto device = create_cpu_device({.threads = 2});
  const PageLayout layout = page_layout({.head_dim = kDim, .group = 1, .page = kPage, .kv = DataType::kBF16}, {});
  const auto pool = device->create_pool(3, kHeads, 6, layout);
  for (const int page : {0, 1})
    append(*device, *pool, page, page * kPage, test::random_floats(size_t{kPage} * 3 * kHeads * kDim, 3), {});
  const std::vector<ShiftedRun> runs = {{0, 5, 2, 0, 11, 5, 640}, {1, 0, 2, 11, 5, 16, 651}, {0, 0, 3, 9, 5, 0, 1001}};
  device->copy_shifted(*pool, {}, runs, scaled_rope());
  const auto of_first = keys_of(*pool, 2, 0);
  device->copy_shifted(*pool, {.group = 0, .first = 1}, std::vector<ShiftedRun>{{1, 0, 2, 0, 11, 16, 0}}, scaled_rope());
  EXPECT_EQ(keys_of(*pool, 2, 0), of_first) << "layers before the first stay as they are";
  EXPECT_NE(keys_of(*pool, 2, 1), of_first);
  device->copy_shifted(*pool, {.group = 0, .first = 3}, std::vector<ShiftedRun>{{1, 0, 2, 0, 11, 16, 0}}, scaled_rope());
  device->copy_shifted(*pool, {}, runs, scaled_rope());
  std::vector<ShiftedRun> elsewhere = runs;
  for (ShiftedRun& run : elsewhere) run.to_page += 2;
  device->CacheOperations::copy_shifted(*pool, {}, elsewhere, scaled_rope());
  for (int layer = 0; layer < 3; ++layer) {
    for (const int page : {2, 3}) {
      std::vector<float> values, host_values;
      const std::vector<float> keys = keys_of(*pool, page, layer, &values);
      EXPECT_EQ(keys, keys_of(*pool, page + 2, layer, &host_values));
      EXPECT_EQ(values, host_values);
    }
  }
}

TEST(ShiftedRuns, OutsideTheirPagesTheyAreRefused) {
  const auto device = create_cpu_device({.threads = 1});
  const auto pool =
      device->create_pool(1, kHeads, 4, page_layout({.head_dim = kDim, .group = 1, .page = kPage, .kv = DataType::kF32}, {}));
  for (const ShiftedRun& run : {ShiftedRun{0, 10, 1, 0, 7, 0, 0},
                                {0, 0, 1, 10, 7, 0, 0},
                                {0, 0, 4, 0, 1, 0, 0},
                                {-1, 0, 1, 0, 1, 0, 0},
                                {0, 0, 1, 0, 0, 0, 0},
                                {0, 0, 1, 0, 1, -1, 0},
                                {0, -1, 1, 0, 1, 0, 0}})
    EXPECT_THROW(device->copy_shifted(*pool, {}, {&run, 1}, {}), InternalError);
}

TEST(RowMasses, AreWhatFloat64Gives) {
  const auto device = create_cpu_device({.threads = 2});
  for (const auto& [group, length, rows] : {std::tuple(1, 300, 20), {4, 131, 131}, {3, 40, 1}}) {
    const int query_heads = group * kHeads;
    test::PagedBatch batch(*device, {{length, rows, false}}, kHeads,
                           {.head_dim = kDim, .group = group, .page = kPage, .kv = DataType::kF32}, 2);
    Device::Limits limits{.rows = rows,
                          .sequences = 1,
                          .pages_per_sequence = pages_for(length, kPage),
                          .query_heads = query_heads,
                          .kv_heads = kHeads,
                          .head_dim = kDim};
    device->reserve(limits);
    std::vector<float> q = test::random_floats(size_t(rows) * size_t(query_heads) * kDim, 4);
    std::vector<int32_t> chosen;
    for (int row = 0; row < rows; row += 3) chosen.push_back(row);
    std::vector<float> masses(size_t(length) * size_t(query_heads), 0.5F);  // [query_heads, length]
    std::vector<float> of_all(size_t(length), 0.5F);
    const int known = length / 2;
    {
      const OpenPass open(*device, batch.batch(), batch.pool());
      for (std::vector<float>* const to : {&masses, &of_all}) {
        const int seen =
            device->add_row_masses({.layer = 1, .query_heads = query_heads, .scale = 0.2F, .rows = chosen, .known = known},
                                   test::matrix_of(q, query_heads * kDim), test::matrix_of(*to, length));
        EXPECT_EQ(seen, std::max(known, length - rows + chosen.back() + 1));
      }
    }
    const int seen = length - rows + chosen.back() + 1;
    std::vector<double> wanted(masses.size(), 0.5);
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
          for (int d = 0; d < kDim; ++d)
            product += double(q[(size_t(row) * size_t(query_heads) + size_t(head)) * kDim + size_t(d)]) *
                       double(batch.key(0, 1, token, head / group, d));
          scores.push_back(0.2 * product);
        }
        const std::vector<double> logs = testing::log_softmax(std::span<const double>(scores));
        for (size_t token = 0; token < logs.size(); ++token)
          wanted[size_t(head) * size_t(length) + token] += std::exp(logs[token]);
      }
    }
    for (size_t i = 0; i < masses.size(); ++i) EXPECT_NEAR(masses[i], wanted[i], 1e-4) << i;
    for (size_t token = 0; token < of_all.size(); ++token) {
      const double before = int(token) >= known && int(token) < seen ? 0 : 0.5;
      double sum = before;
      for (size_t i = token; i < wanted.size(); i += of_all.size()) sum += wanted[i] - before;
      EXPECT_NEAR(of_all[token], sum, 3e-4) << token;
    }
  }
}

}  // namespace
}  // namespace sluice
