// What reaches the pages of a pool: positions, keys and values of a pass, and whole pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/flow/storage.h"
#include "kernels/device/open_pass.h"
#include "scripting/base/error.h"
#include "tests/cuda/device/device_fixture.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::CudaDeviceTest;
using testing::error_of;
using testing::Held;
using testing::stored;

TEST_F(CudaDeviceTest, RotatesQueriesAndAppendsKeysAndValues) {
  const int query_heads = 6;
  const int kv_heads = 2;
  for (const int dim : {64, 128, 256}) {
    for (const auto& how : {std::pair{false, kBF16}, {true, kBF16}, {true, DataType::kE4M3}, {false, DataType::kE5M2}}) {
      const bool normed = how.first;
      const DataType kv = how.second;
      const double kv_tolerance = kv == kBF16 ? 4e-3 : kv == DataType::kE4M3 ? 4e-2 : 8e-2;
      for (const DataType type : kTypes) {
        const PageLayout layout = page_layout({dim, query_heads / kv_heads, 16, kv}, {});
        const Batch batch({1, 40, 1, 5}, {9000, 40, 1, 21}, 16, dim);
        const auto pool = device_->create_pool(2, kv_heads, batch.all_pages(), layout);
        const std::vector<float> query_gains = draw(dim);
        const std::vector<float> key_gains = draw(dim);
        const auto query_gain = weight_of(query_gains, 1, dim);
        const auto key_gain = weight_of(key_gains, 1, dim);
        const Held qkv = hold(batch.rows(), (query_heads + 2 * kv_heads) * dim, type, 64);
        Device::Rope rope;
        rope.theta = 50000;
        rope.attention_scale = 1.25F;
        {
          const OpenPass pass(*device_, batch.view(), *pool);
          device_->rope_append(1, qkv.matrix, query_heads, normed ? query_gain.get() : nullptr, normed ? key_gain.get() : nullptr,
                               1e-3F, rope);
        }
        // q, k and v of a row as they ought to be.
        const auto rotate = [&](int s, int row, int head) {
          std::vector<double> x(dim), turned(dim);
          double squares = 0;
          for (int i = 0; i < dim; ++i) x[i] = qkv.at(row, head * dim + i), squares += x[i] * x[i];
          if (head >= query_heads + kv_heads) return x;
          const auto& gains = head < query_heads ? query_gains : key_gains;
          for (int i = 0; normed && i < dim; ++i) x[i] *= gains[i] / std::sqrt(squares / dim + 1e-3);
          for (int i = 0; i < dim / 2; ++i) {
            const float frequency = 1.0F / std::pow(rope.theta, static_cast<float>(2 * i) / static_cast<float>(dim));
            const double angle = static_cast<float>(batch.position(s, row)) * frequency;
            turned[i] = (x[i] * std::cos(angle) - x[i + dim / 2] * std::sin(angle)) * rope.attention_scale;
            turned[i + dim / 2] = (x[i + dim / 2] * std::cos(angle) + x[i] * std::sin(angle)) * rope.attention_scale;
          }
          return turned;
        };
        const std::vector<float> q = fetch(qkv.matrix.slice_columns(0, query_heads * dim));
        std::vector<double> wanted_q;
        for (int s = 0; s < batch.sequences(); ++s) {
          const size_t numbers = static_cast<size_t>(batch.lengths[s]) * kv_heads * dim;
          std::vector<float> keys(2 * numbers), values(2 * numbers);
          pool->read(batch.pages(s), batch.lengths[s], keys.data(), values.data());
          std::vector<double> wanted_keys(2 * numbers), wanted_values(2 * numbers);  // zeros in layer 0 and before the pass
          for (int row = batch.query_indptr[s]; row < batch.query_indptr[s + 1]; ++row) {
            for (int head = 0; head < query_heads; ++head) {
              const auto head_q = rotate(s, row, head);
              wanted_q.insert(wanted_q.end(), head_q.begin(), head_q.end());
            }
            for (int head = 0; head < kv_heads; ++head) {
              const size_t at = numbers + (static_cast<size_t>(batch.position(s, row)) * kv_heads + head) * dim;
              const auto key = rotate(s, row, query_heads + head);
              const auto value = rotate(s, row, query_heads + kv_heads + head);
              std::copy(key.begin(), key.end(), wanted_keys.begin() + at);
              std::copy(value.begin(), value.end(), wanted_values.begin() + at);
            }
          }
          EXPECT_LT(error_of(keys, wanted_keys), kv_tolerance) << dim << ", sequence " << s;
          EXPECT_LT(error_of(values, wanted_values), kv_tolerance) << dim << ", sequence " << s;
        }
        EXPECT_LT(error_of(q, wanted_q), type == kF32 ? 1e-5 : 4e-3) << dim;
      }
    }
  }
}

TEST_F(CudaDeviceTest, AppendsWhatItIsGiven) {
  const Batch batch({3, 1, 17}, {3, 9, 20}, 8, 1);
  for (const auto& [type, kv] :
       {std::pair{kF32, kBF16}, {kBF16, kBF16}, {kF32, DataType::kE4M3}, {kBF16, DataType::kE4M3}, {kF32, DataType::kE5M2}}) {
    const auto pool = device_->create_pool(1, 3, batch.all_pages(), page_layout({64, 1, 8, kv}, {}));
    const Held keys = hold(batch.rows(), 3 * 64, type);
    const Held values = hold(batch.rows(), 3 * 64, type, 2);
    {
      const OpenPass pass(*device_, batch.view(), *pool);
      device_->append(0, keys.matrix, values.matrix);
    }
    for (int s = 0; s < batch.sequences(); ++s) {
      std::vector<float> k(batch.lengths[s] * 3 * 64), v(k.size());
      pool->read(batch.pages(s), batch.lengths[s], k.data(), v.data());
      for (int row = batch.query_indptr[s]; row < batch.query_indptr[s + 1]; ++row) {
        for (int i = 0; i < 3 * 64; ++i) {
          EXPECT_EQ(k[batch.position(s, row) * 3 * 64 + i], stored(kv, static_cast<float>(keys.at(row, i))));
          EXPECT_EQ(v[batch.position(s, row) * 3 * 64 + i], stored(kv, static_cast<float>(values.at(row, i))));
        }
      }
    }
  }
}

TEST_F(CudaDeviceTest, KeepsPagesAsTheyWereWritten) {
  for (const DataType kv : kKvTypes) {
    const PageLayout layout = page_layout({128, 2, 16, kv}, {});
    const auto pool = device_->create_pool(3, 2, 9, layout);
    EXPECT_EQ(pool->bytes(), 3 * 2 * 9 * layout.bytes);
    const std::vector<int32_t> pages = {4, 0, 8};
    const int tokens = 41;
    const size_t count = size_t{3} * tokens * 2 * 128;
    std::vector<float> keys(count, 1), values(count, 1);
    pool->read(pages, tokens, keys.data(), values.data());
    EXPECT_EQ(keys, std::vector<float>(count));
    EXPECT_EQ(values, std::vector<float>(count));

    const auto [written_keys, written_values] = fill(*pool, pages, tokens);
    for (const int32_t page : {4, 0, 8}) pool->copy_page(page, page == 8 ? 1 : page + 1);
    for (const auto& list : {pages, {5, 1, 1}}) {
      pool->read(list, list == pages ? tokens : 16, keys.data(), values.data());
      const int read = list == pages ? tokens : 16;
      for (int layer = 0; layer < 3; ++layer) {
        const size_t numbers = static_cast<size_t>(read) * 2 * 128;
        for (size_t i = 0; i < numbers; ++i) {
          ASSERT_EQ(keys[layer * numbers + i], written_keys[layer * size_t{tokens} * 2 * 128 + i]);
          ASSERT_EQ(values[layer * numbers + i], written_values[layer * size_t{tokens} * 2 * 128 + i]);
        }
      }
    }
    EXPECT_THROW(pool->copy_page(0, 9), InternalError);
    EXPECT_THROW(pool->read(pages, 49, keys.data(), values.data()), InternalError);
  }
}

TEST_F(CudaDeviceTest, RoundsEightBitKeysAndValuesAsTheCpuRoundsFields) {
  for (const DataType kv : {DataType::kE4M3, DataType::kE5M2}) {
    // Every number of the type, and what lies in the middle of neighbours and just beside it; and what is beyond all of them.
    std::vector<float> numbers = {INFINITY, -INFINITY, NAN,   448,  449,   464,   465,  480,
                                  57344,    57345,     61440, 1e9F, -1e9F, 1e-9F, -0.0F};
    for (int code = 0; code < 255; ++code) {
      const float number = cpu::flows::float_from_byte(kv, static_cast<uint8_t>(code));
      const float middle = (number + cpu::flows::float_from_byte(kv, static_cast<uint8_t>(code + 1))) / 2;
      numbers.insert(numbers.end(), {number, middle, std::nextafter(middle, -INFINITY), std::nextafter(middle, INFINITY)});
    }
    while (numbers.size() % 64 != 0) numbers.push_back(draw(1)[0]);
    const auto tokens = static_cast<int>(numbers.size() / 64);
    const Batch batch({tokens}, {tokens}, 16, 2);
    const auto pool = device_->create_pool(1, 1, batch.all_pages(), page_layout({64, 1, 16, kv}, {}));
    const Held held = hold(numbers, tokens, 64, kF32);
    const auto expect_stored = [&](const char* how) {
      std::vector<float> keys(numbers.size(), -7), values(numbers.size(), -7);
      pool->read(batch.pages(0), tokens, keys.data(), values.data());
      for (size_t i = 0; i < numbers.size(); ++i) {
        const float wanted = cpu::flows::float_from_byte(kv, cpu::flows::byte_from_float(kv, numbers[i]));
        const auto same = [&](float got) { return std::isnan(wanted) ? std::isnan(got) : got == wanted; };
        EXPECT_TRUE(same(keys[i])) << how << ": " << numbers[i] << " became " << keys[i];
        EXPECT_TRUE(same(values[i])) << how << ": " << numbers[i] << " became " << values[i];
      }
    };
    pool->write(batch.pages(0), tokens, numbers.data(), numbers.data());
    expect_stored("written");
    const std::vector<float> zeros(numbers.size());
    pool->write(batch.pages(0), tokens, zeros.data(), zeros.data());
    {
      const OpenPass pass(*device_, batch.view(), *pool);
      device_->append(0, held.matrix, held.matrix);
    }
    expect_stored("appended");
  }
}

}  // namespace
}  // namespace sluice
