#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/kernels/paged_batch.h"
#include "tests/kernels/random_floats.h"

namespace sluice {
namespace {

using test::PagedBatch;
using test::random_floats;

std::unique_ptr<Weight> weight_of(Device& device, std::vector<float>& values, int64_t rows) {
  return device.create_weight(values.data(), DataType::kF32, rows, static_cast<int64_t>(values.size()) / rows);
}

std::vector<double> norm_judge(const std::vector<float>& x, const std::vector<float>& gain, double epsilon) {
  std::vector<double> out;
  for (size_t row = 0; row < x.size() / gain.size(); ++row) {
    double squares = 0;
    for (size_t i = 0; i < gain.size(); ++i) squares += static_cast<double>(x[row * gain.size() + i]) * x[row * gain.size() + i];
    const double length = std::sqrt(squares / static_cast<double>(gain.size()) + epsilon);
    for (size_t i = 0; i < gain.size(); ++i) out.push_back(x[row * gain.size() + i] / length * gain[i]);
  }
  return out;
}

TEST(CreateDevice, RefusesWhatIsNotThere) {
  EXPECT_EQ(create_device("cpu", 1)->info().name, "cpu");
  EXPECT_EQ(create_device("cpu", 3)->info().threads, 3);
  EXPECT_EQ(create_cpu_device({.threads = 1, .tiles = false})->info().description.find("AMX"), std::string::npos);
  const bool gpu = std::filesystem::exists("/dev/nvidiactl");
  for (const char* name : {"cuda", "tpu", ""}) {
    if (gpu && name == std::string("cuda")) continue;
    try {
      create_device(name);
      ADD_FAILURE() << name << " was accepted";
    } catch (const InputError& error) {
      EXPECT_FALSE(error.hint().empty());
    }
  }
}

TEST(CpuDevice, RefusesGroupsThatItCannotAttend) {
  const auto device = create_cpu_device({.threads = 1});
  Device::Limits limits{.rows = 8, .sequences = 1, .pages_per_sequence = 1, .query_heads = 16, .kv_heads = 1, .head_dim = 64};
  EXPECT_NO_THROW(device->reserve(limits));
  for (const int heads : {17, 128, 129, 256}) {
    limits.query_heads = heads;
    EXPECT_THROW(device->reserve(limits), InputError) << heads;
  }
}

TEST(CpuDevice, NormalisesRowsOfAnyWidth) {
  const auto device = create_cpu_device({.threads = 2});
  for (int columns : {1, 7, 16, 40, 64, 256, 1000}) {
    std::vector<float> x = random_floats(5 * columns, 1);
    std::vector<float> gain = random_floats(columns, 2);
    std::vector<float> out(x.size());
    const auto weight = weight_of(*device, gain, 1);
    device->rms_norm(test::matrix_of(x, columns), *weight, 1e-5f, test::matrix_of(out, columns));
    EXPECT_LT(test::largest_error(out, norm_judge(x, gain, 1e-5)), 1e-6) << columns;
  }
}

TEST(CpuDevice, AddsTheResidualBeforeItNormalises) {
  const auto device = create_cpu_device({.threads = 2});
  std::vector<float> residual = random_floats(6 * 72, 1);
  std::vector<float> delta = random_floats(6 * 72, 2);
  std::vector<float> gain = random_floats(72, 3);
  std::vector<float> sum(residual.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = residual[i] + delta[i];
  std::vector<float> out(sum.size());
  const auto weight = weight_of(*device, gain, 1);
  device->add_rms_norm(test::matrix_of(residual, 72), test::matrix_of(delta, 72), *weight, 1e-6f, test::matrix_of(out, 72));
  EXPECT_EQ(residual, sum);
  EXPECT_LT(test::largest_error(out, norm_judge(sum, gain, 1e-6)), 1e-6);
}

TEST(CpuDevice, MultipliesByTheSiluOfTheGate) {
  const auto device = create_cpu_device({.threads = 2});
  for (int columns : {1, 15, 16, 50, 768}) {
    std::vector<float> gate_up = random_floats(3 * 2 * columns, 4);
    for (float& value : gate_up) value *= 10;
    gate_up[0] = -200;
    std::vector<float> out(3 * columns);
    device->silu_multiply(test::matrix_of(gate_up, 2 * columns), test::matrix_of(out, columns));
    std::vector<double> wanted;
    for (int r = 0; r < 3; ++r) {
      for (int i = 0; i < columns; ++i) {
        const double gate = gate_up[r * 2 * columns + i];
        wanted.push_back(gate / (1 + std::exp(-gate)) * gate_up[r * 2 * columns + columns + i]);
      }
    }
    EXPECT_LT(test::largest_error(out, wanted), 1e-6) << columns;
  }
}

TEST(CpuDevice, GatesProducts) {
  const auto device = create_cpu_device({.threads = 2});
  constexpr int kColumns = 24;
  constexpr int kInputs = 40;
  std::vector<float> x = random_floats(3 * kInputs, 5);
  std::vector<float> values = random_floats(2 * kColumns * kInputs, 6);
  const auto weight = weight_of(*device, values, 2 * kColumns);
  std::vector<float> gate_up(3 * 2 * kColumns);
  std::vector<float> out(3 * kColumns);
  device->gated_matmul(test::matrix_of(x, kInputs), *weight, test::matrix_of(gate_up, 2 * kColumns),
                       test::matrix_of(out, kColumns));
  std::vector<float> product(gate_up.size());
  std::vector<float> wanted(out.size());
  device->matmul(test::matrix_of(x, kInputs), *weight, test::matrix_of(product, 2 * kColumns));
  device->silu_multiply(test::matrix_of(product, 2 * kColumns), test::matrix_of(wanted, kColumns));
  EXPECT_EQ(out, wanted);
}

TEST(CpuDevice, EmbedsAndGathersRows) {
  const auto device = create_cpu_device({.threads = 2});
  for (DataType type : {DataType::kF32, DataType::kBF16}) {
    std::vector<float> table = random_floats(70 * 33, 5);
    std::vector<uint16_t> narrow;
    for (float& value : table) {
      value = test::as_stored(value, DataType::kBF16);
      narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    }
    const void* values = type == DataType::kF32 ? static_cast<const void*>(table.data()) : narrow.data();
    const auto weight = device->create_weight(values, type, 70, 33);
    const std::vector<int32_t> tokens = {69, 0, 31, 32, 33, 31};
    std::vector<float> out(tokens.size() * 33);
    device->embed(*weight, tokens, nullptr, test::matrix_of(out, 33));
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_TRUE(std::equal(table.begin() + tokens[i] * 33, table.begin() + (tokens[i] + 1) * 33, out.begin() + i * 33)) << i;
    }
    const std::vector<int32_t> outside = {70};
    EXPECT_THROW(device->embed(*weight, outside, nullptr, test::matrix_of(out, 33).slice_rows(0, 1)), InternalError);

    const std::vector<int32_t> rows = {5, 2};
    std::vector<float> gathered(2 * 33);
    device->gather_rows(test::matrix_of(out, 33), rows, test::matrix_of(gathered, 33));
    EXPECT_TRUE(std::equal(gathered.begin(), gathered.begin() + 33, out.begin() + 5 * 33));
    EXPECT_TRUE(std::equal(gathered.begin() + 33, gathered.end(), out.begin() + 2 * 33));
  }
}

TEST(CpuDevice, SumsSquaresOfDifferencesByPart) {
  const auto device = create_cpu_device({.threads = 2});
  std::vector<float> a = random_floats(70 * 24, 5), b = random_floats(70 * 24, 6);
  std::vector<float> sums(70 * 3);
  device->squared_distances(test::matrix_of(a, 24), test::matrix_of(b, 24), 3, sums);
  for (size_t part = 0; part < sums.size(); ++part) {
    double wanted = 0;
    for (size_t i = 8 * part; i < 8 * part + 8; ++i) wanted += std::pow(double(a[i]) - b[i], 2);
    EXPECT_NEAR(sums[part], wanted, 1e-5 * wanted) << part;
  }
  EXPECT_THROW(device->squared_distances(test::matrix_of(a, 24), test::matrix_of(b, 24), 5, sums), InternalError);
  EXPECT_THROW(device->squared_distances(test::matrix_of(a, 24), test::matrix_of(b, 12), 3, sums), InternalError);
  sums.pop_back();
  EXPECT_THROW(device->squared_distances(test::matrix_of(a, 24), test::matrix_of(b, 24), 3, sums), InternalError);
}

struct RopeCase {
  DataType kv;
  bool gains;
};

TEST(CpuDevice, RotatesByPositionAndAppends) {
  const auto device = create_cpu_device({.threads = 2});
  constexpr int kDim = 24;
  constexpr int kQueryHeads = 4;
  constexpr int kKvHeads = 2;
  for (const RopeCase& test_case : {RopeCase{DataType::kF32, true}, {DataType::kF32, false}, {DataType::kBF16, true}}) {
    PagedBatch batch(*device, {{37, 1, true}, {50, 20, false}, {16, 16, false}}, kKvHeads,
                     {.head_dim = kDim, .group = 2, .page = 16, .kv = test_case.kv}, 2);
    const int columns = (kQueryHeads + 2 * kKvHeads) * kDim;
    std::vector<float> qkv = random_floats(static_cast<size_t>(batch.rows()) * columns, 6);
    const std::vector<float> before = qkv;
    std::vector<float> query_gain = random_floats(kDim, 7);
    std::vector<float> key_gain = random_floats(kDim, 8);
    const auto query_weight = weight_of(*device, query_gain, 1);
    const auto key_weight = weight_of(*device, key_gain, 1);
    device->begin_pass(batch.batch(), batch.pool());
    device->rope_append(1, test::matrix_of(qkv, columns), kQueryHeads, test_case.gains ? query_weight.get() : nullptr,
                        test_case.gains ? key_weight.get() : nullptr, 1e-6f, {.theta = 500, .inverse_frequencies = {}});
    device->end_pass();

    const PassBatch pass = batch.batch();
    for (int s = 0; s < pass.sequences(); ++s) {
      const int length = batch.length(s);
      std::vector<float> keys(2 * length * kKvHeads * kDim);
      std::vector<float> values(keys.size());
      batch.pool().read(batch.pages(s), length, keys.data(), values.data());
      for (int row = pass.query_indptr[s]; row < pass.query_indptr[s + 1]; ++row) {
        const int position = length - pass.query_indptr[s + 1] + row;
        for (int head = 0; head < kQueryHeads + 2 * kKvHeads; ++head) {
          std::vector<float> x(before.begin() + row * columns + head * kDim, before.begin() + row * columns + (head + 1) * kDim);
          std::vector<double> wanted(x.begin(), x.end());
          const bool is_query = head < kQueryHeads;
          if (head < kQueryHeads + kKvHeads) {
            if (test_case.gains) wanted = norm_judge(x, is_query ? query_gain : key_gain, 1e-6);
            for (int i = 0; i < kDim / 2; ++i) {
              const double angle = position * std::pow(500.0, -2.0 * i / kDim);
              const double a = wanted[i];
              const double b = wanted[i + kDim / 2];
              wanted[i] = a * std::cos(angle) - b * std::sin(angle);
              wanted[i + kDim / 2] = a * std::sin(angle) + b * std::cos(angle);
            }
          }
          for (int d = 0; d < kDim; ++d) {
            const int kv_head = (head - kQueryHeads) % kKvHeads;
            const size_t at = ((static_cast<size_t>(length) + position) * kKvHeads + kv_head) * kDim + d;  // of layer 1
            const float got = is_query                        ? qkv[row * columns + head * kDim + d]
                              : head < kQueryHeads + kKvHeads ? keys[at]
                                                              : values[at];
            const double tolerance = is_query || test_case.kv == DataType::kF32 ? 1e-5 : 1.0 / 256;
            EXPECT_NEAR(got, wanted[d], tolerance * std::max(1.0, std::abs(wanted[d]))) << "row " << row << " head " << head;
          }
        }
      }
      // Older tokens and the other layer stay as they were.
      const int older = length - batch.batch().query_indptr[s + 1] + batch.batch().query_indptr[s];
      for (int token = 0; token < length; ++token) {
        const size_t at = (static_cast<size_t>(token) * kKvHeads + 1) * kDim + 5;
        EXPECT_EQ(keys[at], batch.key(s, 0, token, 1, 5));
        if (token < older) {
          EXPECT_EQ(values[at + static_cast<size_t>(length) * kKvHeads * kDim], batch.value(s, 1, token, 1, 5));
        }
      }
    }
  }
}

TEST(CpuDevice, UsesTheFrequenciesAndScaleThatAModelGives) {
  const auto device = create_cpu_device({.threads = 1});
  PagedBatch batch(*device, {{3, 1, true}}, 1, {.head_dim = 8, .group = 1, .page = 8, .kv = DataType::kF32});
  std::vector<float> qkv(24, 1.0f);
  device->begin_pass(batch.batch(), batch.pool());
  device->rope_append(0, test::matrix_of(qkv, 24), 1, nullptr, nullptr, 0,
                      {.inverse_frequencies = {0.5f, 0.25f, 0, 1}, .attention_scale = 1.5f});
  device->end_pass();
  const std::vector<double> frequencies = {0.5, 0.25, 0, 1};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(qkv[i], 1.5 * (std::cos(2 * frequencies[i]) - std::sin(2 * frequencies[i])), 1e-6);
    EXPECT_NEAR(qkv[4 + i], 1.5 * (std::cos(2 * frequencies[i]) + std::sin(2 * frequencies[i])), 1e-6);
  }
}

TEST(CpuPool, ReadsWhatWasWritten) {
  const auto device = create_cpu_device({.threads = 1});
  for (DataType type : {DataType::kF32, DataType::kBF16}) {
    const auto pool = device->create_pool(3, 2, 9, page_layout({.head_dim = 16, .group = 1, .page = 8, .kv = type}, {}));
    EXPECT_EQ(pool->bytes(), 3 * 2 * 9 * pool->layout().bytes);
    const std::vector<int32_t> pages = {7, 0, 4};
    for (int tokens : {1, 8, 21, 24}) {
      const std::vector<float> keys = random_floats(static_cast<size_t>(3) * tokens * 2 * 16, 1);
      const std::vector<float> values = random_floats(keys.size(), 2);
      pool->write(pages, tokens, keys.data(), values.data());
      std::vector<float> got_keys(keys.size());
      std::vector<float> got_values(keys.size());
      pool->read(pages, tokens, got_keys.data(), got_values.data());
      for (size_t i = 0; i < keys.size(); ++i) {
        EXPECT_EQ(got_keys[i], test::as_stored(keys[i], type));
        EXPECT_EQ(got_values[i], test::as_stored(values[i], type));
      }
    }
    std::vector<float> buffer(3 * 25 * 2 * 16);
    EXPECT_THROW(pool->read(pages, 25, buffer.data(), buffer.data()), InternalError);
    const std::vector<int32_t> outside = {9};
    EXPECT_THROW(pool->read(outside, 1, buffer.data(), buffer.data()), InternalError);
  }
}

TEST(CpuPool, CopiesAPageInEveryLayerAndHead) {
  const auto device = create_cpu_device({.threads = 1});
  const auto pool = device->create_pool(2, 2, 3, page_layout({.head_dim = 8, .group = 1, .page = 8, .kv = DataType::kF32}, {}));
  const std::vector<float> keys = random_floats(2 * 16 * 2 * 8, 1);
  const std::vector<float> values = random_floats(keys.size(), 2);
  pool->write(std::vector<int32_t>{1, 0}, 16, keys.data(), values.data());
  pool->copy_page(0, 2);
  std::vector<float> got_keys(keys.size());
  std::vector<float> got_values(keys.size());
  pool->read(std::vector<int32_t>{1, 2}, 16, got_keys.data(), got_values.data());
  EXPECT_EQ(got_keys, keys);
  EXPECT_EQ(got_values, values);
  EXPECT_THROW(pool->copy_page(0, 3), InternalError);
}

TEST(CpuPool, RefusesWhatTheCpuCannotKeep) {
  const auto device = create_cpu_device({.threads = 1});
  for (DataType type : {DataType::kE4M3, DataType::kE5M2}) {
    PageLayout layout = page_layout({.head_dim = 16, .group = 1, .page = 8, .kv = DataType::kBF16}, {});
    layout.kv = type;
    EXPECT_THROW(device->create_pool(1, 1, 1, layout), InputError);
  }
  const PageLayout layout = page_layout({.head_dim = 16, .group = 1, .page = 8, .kv = DataType::kBF16}, {});
  EXPECT_THROW(device->create_pool(1, 1, 0, layout), InputError);
  EXPECT_THROW(device->create_pool(1000, 1000, 2'000'000'000, layout), InputError);
  EXPECT_THROW(device->create_pool(1 << 30, 1 << 30, 1 << 30, layout), InputError);  // bytes beyond 64 bits
}

TEST(Pass, NamesTheFieldThatDisagrees) {
  const auto device = create_cpu_device({.threads = 1});
  PagedBatch batch(*device, {{40}, {17, 5, false}}, 1, {.head_dim = 8, .group = 1, .page = 16});
  const auto refused = [&](const PassBatch& pass, const std::string& field) {
    try {
      device->begin_pass(pass, batch.pool());
      ADD_FAILURE() << field << " was accepted";
      device->end_pass();
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    }
  };
  const PassBatch good = batch.batch();
  GroupPages group;
  PassBatch bad;
  const auto begin_anew = [&] {
    group = good.groups[0];
    bad = good;
    bad.groups = {&group, 1};
  };
  begin_anew();
  bad.decoding = good.decoding.subspan(0, 1);
  refused(bad, "query_indptr");
  begin_anew();
  bad.groups = {};
  refused(bad, "number of groups");
  begin_anew();
  bad.positions = good.positions.subspan(1);
  refused(bad, "size of positions");
  begin_anew();
  const std::vector<int32_t> falling = {39, 12, 13, 13, 14, 15};
  bad.positions = falling;
  refused(bad, "position of a row");
  begin_anew();
  const std::vector<int32_t> beyond_the_end = {40, 12, 13, 14, 15, 16};
  group.slots = beyond_the_end;
  refused(bad, "slot of a row");
  begin_anew();
  const std::vector<int32_t> too_long = {40, 33};
  group.lengths = too_long;
  refused(bad, "pages of a sequence");
  begin_anew();
  const std::vector<uint8_t> decoding = {1, 1};
  bad.decoding = decoding;
  refused(bad, "rows of a decode step");
  begin_anew();
  std::vector<int32_t> pages(group.page_indices.begin(), group.page_indices.end());
  for (const int32_t wrong : {batch.pool().pages(), -1, INT32_MIN, INT32_MAX}) {
    for (size_t at = 0; at < pages.size(); ++at) {
      const int32_t right = std::exchange(pages[at], wrong);
      group.page_indices = pages;
      refused(bad, "outside a pool");
      pages[at] = right;
    }
  }
  begin_anew();
  const std::vector<int32_t> beyond = {0, 1'000'000, 4};
  group.page_indptr = beyond;
  refused(bad, "end of a sequence's pages");
  begin_anew();
  const std::vector<uint32_t> masks(7, 1);
  const std::vector<int32_t> mask_indptr = {0, 1, 7};
  group.mask_indptr = mask_indptr;
  group.masks = masks;
  refused(bad, "words of a sequence's masks");
  device->begin_pass(good, batch.pool());
  EXPECT_THROW(device->begin_pass(good, batch.pool()), InternalError);
  device->end_pass();
  EXPECT_THROW(device->attention({.query_heads = 1}, {}, {}), InternalError);
}

TEST(CpuDevice, KnowsWhatMemoryIsFree) { EXPECT_GT(create_cpu_device({.threads = 1})->free_bytes(), 1 << 20); }

}  // namespace
}  // namespace sluice
