// Every operation of the GPU against the same in float64, and the mini model against the CPU.
#include "kernels/cuda/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "host/engine.h"
#include "host/mapped_file.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/flow_storage.h"
#include "kernels/open_pass.h"
#include "kernels/reference/oracle.h"
#include "tests/cuda/gpu.h"
#include "tests/support/source_path.h"

namespace sluice {
namespace {

constexpr DataType kF32 = DataType::kF32;
constexpr DataType kBF16 = DataType::kBF16;

float rounded(float value) { return cpu::widen(cpu::round_to_bf16(value)); }
/// As a pool of that type holds it.
float stored(DataType kv, float value) { return static_cast<float>(oracle::round_to(kv, value)); }

/// ||got - wanted|| / ||wanted||; NaN anywhere gives NaN.
double error_of(const std::vector<float>& got, const std::vector<double>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  double off = 0;
  double size = 0;
  for (size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
    off += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  return std::sqrt(off / size);
}

/// A matrix on the device, with its numbers as the device has them. Rows lie `stride` apart; what lies between is NaN.
struct Held {
  std::unique_ptr<Memory> memory;
  Matrix matrix;
  std::vector<float> values;  // [rows, columns]

  double at(int64_t row, int64_t column) const { return values[row * matrix.columns + column]; }
};

/// A batch of sequences whose pages are dealt at random; sequence s has rows[s] rows of lengths[s] tokens.
struct Batch {
  Batch(const std::vector<int>& rows, const std::vector<int>& tokens, int page, unsigned seed)
      : lengths(tokens.begin(), tokens.end()) {
    query_indptr = page_indptr = {0};
    for (size_t s = 0; s < rows.size(); ++s) {
      query_indptr.push_back(query_indptr.back() + rows[s]);
      page_indptr.push_back(page_indptr.back() + (tokens[s] + page - 1) / page);
      decoding.push_back(rows[s] == 1 ? 1 : 0);
    }
    page_indices.resize(page_indptr.back());
    std::iota(page_indices.begin(), page_indices.end(), 0);
    std::shuffle(page_indices.begin(), page_indices.end(), std::mt19937(seed));
  }

  PassBatch view() const {
    return {.query_indptr = query_indptr,
            .lengths = lengths,
            .page_indptr = page_indptr,
            .page_indices = page_indices,
            .decoding = decoding,
            .seeds = {},
            .states = {}};
  }
  int sequences() const { return static_cast<int>(lengths.size()); }
  int rows() const { return query_indptr.back(); }
  std::span<const int32_t> pages(int s) const {
    return std::span(page_indices).subspan(page_indptr[s], page_indptr[s + 1] - page_indptr[s]);
  }
  int position(int s, int row) const { return lengths[s] - query_indptr[s + 1] + row; }

  std::vector<int32_t> query_indptr, lengths, page_indptr, page_indices;
  std::vector<uint8_t> decoding;
};

class CudaDeviceTest : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (!IsSkipped()) device_ = create_device("cuda");
  }

  std::vector<float> draw(size_t count, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }

  Held hold(std::vector<float> values, int64_t rows, int64_t columns, DataType type, int64_t gap = 0) {
    Held held;
    const int64_t stride = columns + gap;
    held.values = std::move(values);
    std::vector<float> wide(rows * stride, NAN);
    std::vector<uint16_t> narrow(rows * stride, 0x7fc0);
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t at = i / columns * stride + i % columns;
      narrow[at] = cpu::round_to_bf16(held.values[i]);
      if (type == kBF16) held.values[i] = cpu::widen(narrow[at]);
      wide[at] = held.values[i];
    }
    const size_t bytes = wide.size() * size_of(type);
    held.memory = device_->allocate(bytes);
    device_->write(held.memory->data(), type == kBF16 ? static_cast<const void*>(narrow.data()) : wide.data(), bytes);
    held.matrix = {held.memory->data(), type, rows, columns, stride};
    return held;
  }
  Held hold(int64_t rows, int64_t columns, DataType type, int64_t gap = 0) {
    return hold(draw(rows * columns), rows, columns, type, gap);
  }
  /// For results: NaN until something is written.
  Held empty(int64_t rows, int64_t columns, DataType type, int64_t gap = 0) {
    return hold(std::vector<float>(rows * columns, NAN), rows, columns, type, gap);
  }

  std::vector<float> fetch(const Matrix& matrix) {
    std::vector<std::byte> bytes(((matrix.rows - 1) * matrix.stride + matrix.columns) * size_of(matrix.type));
    device_->read(bytes.data(), matrix.data, bytes.size());
    std::vector<float> values;
    for (int64_t row = 0; row < matrix.rows; ++row) {
      for (int64_t i = row * matrix.stride; i < row * matrix.stride + matrix.columns; ++i) {
        values.push_back(matrix.type == kBF16 ? cpu::widen(reinterpret_cast<const uint16_t*>(bytes.data())[i])
                                              : reinterpret_cast<const float*>(bytes.data())[i]);
      }
    }
    return values;
  }

  std::unique_ptr<Weight> weight_of(const std::vector<float>& values, int64_t rows, int64_t columns) {
    return device_->create_weight(values.data(), kF32, rows, columns);
  }

  /// K and V of all pages of a pool of one sequence's pages each, by writing through the pool.
  std::pair<std::vector<float>, std::vector<float>> fill(Pool& pool, std::span<const int32_t> pages, int tokens) {
    const size_t count = static_cast<size_t>(pool.layers()) * tokens * pool.kv_heads() * pool.layout().head_dim;
    std::vector<float> keys = draw(count);
    std::vector<float> values = draw(count);
    pool.write(pages, tokens, keys.data(), values.data());
    for (float& key : keys) key = stored(pool.layout().kv, key);
    for (float& value : values) value = stored(pool.layout().kv, value);
    return {keys, values};
  }

  static double tolerance(DataType type) { return type == kF32 ? 2e-6 : 4e-3; }
  static constexpr std::array<DataType, 2> kTypes = {kF32, kBF16};
  static constexpr std::array<DataType, 3> kKvTypes = {kBF16, DataType::kE4M3, DataType::kE5M2};

  std::unique_ptr<Device> device_;
  std::mt19937 random_{7};
};

TEST_F(CudaDeviceTest, NamesItself) {
  EXPECT_EQ(device_->info().name, "cuda");
  EXPECT_EQ(device_->info().activation, kBF16);
  EXPECT_FALSE(device_->info().description.empty());
}

TEST_F(CudaDeviceTest, EmbedsAndGathersRowsExactly) {
  for (const int columns : {37, 256}) {
    const std::vector<float> values = draw(50 * columns);
    const auto table = weight_of(values, 50, columns);
    const std::vector<int32_t> tokens = {49, 0, 7, 7, 31};
    for (const DataType type : kTypes) {
      const Held out = empty(5, columns, type, 4);
      device_->embed(*table, tokens, out.matrix);
      const Held again = empty(5, columns, type);
      const std::vector<int32_t> rows = {4, 4, 1, 0, 2};
      device_->gather_rows(out.matrix, rows, again.matrix);
      const std::vector<float> embedded = fetch(out.matrix);
      const std::vector<float> gathered = fetch(again.matrix);
      for (int i = 0; i < 5 * columns; ++i) {
        EXPECT_EQ(embedded[i], rounded(values[tokens[i / columns] * columns + i % columns]));
        EXPECT_EQ(gathered[i], embedded[rows[i / columns] * columns + i % columns]);
      }
    }
    const Held out = empty(1, columns, kF32);
    EXPECT_THROW(device_->embed(*table, std::vector<int32_t>{50}, out.matrix), InternalError);
    EXPECT_THROW(device_->gather_rows(out.matrix, std::vector<int32_t>{1}, out.matrix), InternalError);
  }
}

TEST_F(CudaDeviceTest, NormalisesRows) {
  for (const int columns : {5, 37, 256, 4100}) {
    const std::vector<float> gains = draw(columns);
    const auto gain = weight_of(gains, 1, columns);
    for (const DataType type : kTypes) {
      const Held x = hold(9, columns, kF32, 4);
      const Held delta = hold(9, columns, type);
      const Held out = empty(9, columns, type, 8);
      const Held sum = empty(9, columns, type);
      device_->rms_norm(x.matrix, *gain, 1e-3F, out.matrix);
      const std::vector<float> normed = fetch(out.matrix);
      device_->add_rms_norm(x.matrix, delta.matrix, *gain, 1e-3F, sum.matrix);
      std::vector<double> wanted(9 * columns), wanted_residual(9 * columns), wanted_sum(9 * columns);
      for (int row = 0; row < 9; ++row) {
        double squares = 0, sum_squares = 0;
        for (int i = 0; i < columns; ++i) {
          squares += x.at(row, i) * x.at(row, i);
          wanted_residual[row * columns + i] = x.at(row, i) + delta.at(row, i);
          sum_squares += std::pow(wanted_residual[row * columns + i], 2);
        }
        for (int i = 0; i < columns; ++i) {
          wanted[row * columns + i] = x.at(row, i) / std::sqrt(squares / columns + 1e-3) * gains[i];
          wanted_sum[row * columns + i] = wanted_residual[row * columns + i] / std::sqrt(sum_squares / columns + 1e-3) * gains[i];
        }
      }
      EXPECT_LT(error_of(normed, wanted), tolerance(type)) << columns;
      EXPECT_LT(error_of(fetch(x.matrix), wanted_residual), tolerance(kF32)) << columns;
      EXPECT_LT(error_of(fetch(sum.matrix), wanted_sum), tolerance(type)) << columns;
    }
  }
}

TEST_F(CudaDeviceTest, MultipliesBySilu) {
  for (const int columns : {3, 768, 1030}) {
    for (const DataType type : kTypes) {
      std::vector<float> numbers = draw(14 * columns, 3);
      numbers[0] = -200;
      numbers[1] = 200;
      const Held gate_up = hold(numbers, 7, 2 * columns, type);
      const Held out = empty(7, columns, type);
      device_->silu_multiply(gate_up.matrix, out.matrix);
      std::vector<double> wanted;
      for (int row = 0; row < 7; ++row) {
        for (int i = 0; i < columns; ++i) {
          const double gate = gate_up.at(row, i);
          wanted.push_back(gate / (1 + std::exp(-gate)) * gate_up.at(row, columns + i));
        }
      }
      EXPECT_LT(error_of(fetch(out.matrix), wanted), tolerance(type)) << columns;
    }
  }
}

TEST_F(CudaDeviceTest, MultipliesByWeights) {
  for (const auto& [outputs, inputs] : {std::pair{48, 64}, {1536, 256}, {1000, 768}, {33, 40}, {50, 36}}) {
    std::vector<float> values = draw(static_cast<size_t>(outputs) * inputs);
    const auto weight = weight_of(values, outputs, inputs);
    for (float& value : values) value = rounded(value);
    for (const int rows : {1, 2, 7, 64, 130}) {
      for (const DataType type : kTypes) {
        for (const DataType out_type : kTypes) {
          const Held x = hold(rows, inputs, type, rows % 2 * 8);
          const Held out = empty(rows, outputs, out_type, rows % 2 * 2);
          device_->matmul(x.matrix, *weight, out.matrix);
          std::vector<double> wanted;
          for (int r = 0; r < rows; ++r) {
            for (int o = 0; o < outputs; ++o) {
              double sum = 0;
              for (int i = 0; i < inputs; ++i) {
                sum += static_cast<double>(rounded(static_cast<float>(x.at(r, i)))) * values[static_cast<size_t>(o) * inputs + i];
              }
              wanted.push_back(sum);
            }
          }
          EXPECT_LT(error_of(fetch(out.matrix), wanted), tolerance(out_type)) << rows << " x " << inputs << " x " << outputs;
        }
      }
    }
  }
}

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
        const auto pool = device_->create_pool(2, kv_heads, batch.page_indptr.back(), layout);
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
    const auto pool = device_->create_pool(1, 3, batch.page_indptr.back(), page_layout({64, 1, 8, kv}, {}));
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

struct AttentionCase {
  int dim, page, kv_heads, group;
  std::vector<int> rows, tokens;
  DataType kv = kBF16;
};

TEST_F(CudaDeviceTest, AttendsRaggedBatchesOfDecodeStepsAndPrefill) {
  // One after the other on one device, so that what a call leaves in memory meets calls of other shapes.
  const std::vector<AttentionCase> cases = {{64, 16, 2, 4, {1, 1, 30, 1, 7}, {33, 1, 30, 700, 50}},
                                            {128, 8, 3, 1, {5}, {5}},
                                            {64, 16, 1, 4, {700, 1}, {720, 90}},
                                            {256, 64, 1, 16, {1, 1, 1}, {64, 65, 1000}},
                                            {128, 128, 2, 7, {3, 1}, {300, 129}},
                                            {64, 16, 2, 4, {1, 1, 30, 1, 7}, {33, 1, 30, 700, 50}, DataType::kE4M3},
                                            {128, 8, 3, 4, {1, 300, 1, 20}, {500, 310, 77, 20}, DataType::kE5M2},
                                            {256, 64, 1, 16, {1, 5, 1}, {64, 65, 1000}, DataType::kE4M3},
                                            {64, 16, 2, 4, {1, 1, 30, 1, 7}, {33, 1, 30, 700, 50}}};
  for (const AttentionCase& shape : cases) {
    const int dim = shape.dim;
    const int heads = shape.kv_heads * shape.group;
    const PageLayout layout = page_layout({dim, shape.group, shape.page, shape.kv}, {});
    const Batch batch(shape.rows, shape.tokens, shape.page, 3);
    const auto pool = device_->create_pool(2, shape.kv_heads, batch.page_indptr.back(), layout);
    std::vector<std::pair<std::vector<float>, std::vector<float>>> kv;
    for (int s = 0; s < batch.sequences(); ++s) kv.push_back(fill(*pool, batch.pages(s), batch.lengths[s]));
    for (const DataType type : kTypes) {
      const Held qkv = hold(batch.rows(), (heads + 2 * shape.kv_heads) * dim, type);
      const Held out = empty(batch.rows(), heads * dim, type, type == kF32 ? 0 : 8);
      const int capacity = 200;
      std::vector<int32_t> counts(batch.sequences() * shape.kv_heads, -7), selected(counts.size() * capacity, -7);
      std::vector<float> mass(counts.size(), -7);
      AttentionProbe probe;
      probe.counts = counts.data();
      probe.selected = selected.data();
      probe.selected_capacity = capacity;
      probe.mass = mass.data();
      Device::Attention call;
      call.layer = 1;
      call.query_heads = heads;
      call.scale = 1 / std::sqrt(static_cast<float>(dim));
      call.probe = &probe;
      {
        const OpenPass pass(*device_, batch.view(), *pool);
        device_->attention(call, qkv.matrix.slice_columns(0, heads * dim), out.matrix);
      }
      std::vector<double> wanted;
      for (int s = 0; s < batch.sequences(); ++s) {
        const size_t layer = static_cast<size_t>(batch.lengths[s]) * shape.kv_heads * dim;
        for (int row = batch.query_indptr[s]; row < batch.query_indptr[s + 1]; ++row) {
          for (int head = 0; head < heads; ++head) {
            const auto at = [&](int token) {
              return layer + (static_cast<size_t>(token) * shape.kv_heads + head / shape.group) * dim;
            };
            std::vector<double> weights, sums(dim);
            double total = 0;
            for (int token = 0; token <= batch.position(s, row); ++token) {
              double score = 0;
              for (int i = 0; i < dim; ++i)
                score +=
                    rounded(static_cast<float>(qkv.at(row, head * dim + i))) * static_cast<double>(kv[s].first[at(token) + i]);
              const double weight = std::exp(score * call.scale);
              total += weight;
              for (int i = 0; i < dim; ++i) sums[i] += weight * kv[s].second[at(token) + i];
            }
            for (const double sum : sums) wanted.push_back(sum / total);
          }
        }
        for (int slot = s * shape.kv_heads; slot < (s + 1) * shape.kv_heads; ++slot) {
          const auto pages = static_cast<int>(batch.pages(s).size());
          EXPECT_EQ(counts[slot], batch.decoding[s] != 0 ? pages : -7);
          EXPECT_EQ(mass[slot], batch.decoding[s] != 0 ? 1 : -7);
          EXPECT_EQ(selected[slot * capacity], batch.decoding[s] != 0 ? 0 : -7);
          if (batch.decoding[s] != 0) {
            EXPECT_EQ(selected[slot * capacity + pages - 1], pages - 1);
            EXPECT_EQ(selected[slot * capacity + pages], -1);
          }
        }
      }
      EXPECT_LT(error_of(fetch(out.matrix), wanted), 5e-3)
          << "dim " << dim << ", page " << shape.page << ", group " << shape.group;
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
    const auto pool = device_->create_pool(1, 1, batch.page_indptr.back(), page_layout({64, 1, 16, kv}, {}));
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

TEST_F(CudaDeviceTest, RefusesWhatItCannotRun) {
  EXPECT_THROW(device_->create_pool(1, 1, 1, page_layout({64, 1, 16, kF32}, {})), InputError);
  EXPECT_THROW(device_->create_pool(1, 1, 1, page_layout({80, 1, 16, kBF16}, {})), InputError);
  EXPECT_THROW(device_->create_pool(1, 0, 1, page_layout({64, 1, 16, kBF16}, {})), InputError);
  Plan wide;
  wide.graph.geometry.group = 17;
  EXPECT_THROW(device_->compile(wide, 1, 1), InputError);
  Device::Limits limits{.rows = 8, .sequences = 1, .pages_per_sequence = 4, .query_heads = 17, .kv_heads = 1, .head_dim = 64};
  EXPECT_THROW(device_->reserve(limits), InputError);
  limits.query_heads = 16;
  device_->reserve(limits);
  const auto cpu = create_cpu_device({.threads = 1});
  const auto weight = cpu->create_weight(draw(64).data(), kF32, 1, 64);
  const Held x = hold(2, 64, kBF16);
  EXPECT_THROW(device_->rms_norm(x.matrix, *weight, 0, x.matrix), InternalError);
  EXPECT_THROW(device_->silu_multiply(x.matrix, x.matrix), InternalError);
}

TEST_F(CudaDeviceTest, GivesTheTokensOfTheCpuWithTheMiniModel) {
  const nlohmann::json cases = nlohmann::json::parse(read_text_file(testing::source_path("tests/goldens/mini.json")))["prompts"];
  const auto run = [&](Device& device, int max_batch) {
    const auto model = load_model(testing::source_path("host/models/mini"), device);
    EngineOptions options;
    options.max_batch = max_batch;
    options.max_pass_tokens = 64;  // several chunks of prefill, beside decode steps of others
    Engine engine(device, *model, nullptr, options);
    for (const nlohmann::json& one : cases) {
      Request request;
      request.prompt = one["ids"].get<std::vector<int32_t>>();
      request.max_tokens = 32;
      request.ignore_eos = true;
      request.want_logits = true;
      engine.submit(request);
    }
    std::vector<RequestResult> results = engine.run_all();
    std::sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    return results;
  };
  const auto cpu = create_cpu_device();
  const std::vector<RequestResult> wanted = run(*cpu, 4);
  for (const int max_batch : {1, 4}) {
    const std::vector<RequestResult> got = run(*device_, max_batch);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].tokens.size(), wanted[i].tokens.size());
      ASSERT_EQ(got[i].logits.size(), wanted[i].logits.size());
      // Activations are bf16 here, and float32 on the CPU. Where the CPU hardly prefers a token, another may be chosen; what
      // follows then is another text.
      const auto same = static_cast<size_t>(
          std::mismatch(got[i].tokens.begin(), got[i].tokens.end(), wanted[i].tokens.begin()).first - got[i].tokens.begin());
      const size_t prompt = cases[i]["ids"].size();
      const size_t vocabulary = wanted[i].logits.size() / (prompt + wanted[i].tokens.size());
      if (same < wanted[i].tokens.size()) {
        const float* choice = wanted[i].logits.data() + (prompt + same - 1) * vocabulary;
        EXPECT_LT(choice[wanted[i].tokens[same]] - choice[got[i].tokens[same]], 0.2F) << "prompt " << i << ", token " << same;
      }
      const auto rows = static_cast<int64_t>((prompt + same) * vocabulary);
      const double error = error_of({got[i].logits.begin(), got[i].logits.begin() + rows},
                                    {wanted[i].logits.begin(), wanted[i].logits.begin() + rows});
      EXPECT_LT(error, 2e-2) << "prompt " << i;
      RecordProperty("logit_error_" + std::to_string(max_batch) + "_" + std::to_string(i), std::to_string(error));
    }
  }
}

}  // namespace
}  // namespace sluice
