#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/paged_batch.h"

namespace sluice {
namespace {

using test::PagedBatch;

std::vector<float> attend(Device& device, PagedBatch& batch, std::vector<float> q, int query_heads, int dim, float scale,
                          int layer = 0) {
  std::vector<float> out(q.size(), NAN);
  const int columns = query_heads * dim;
  device.begin_pass(batch.batch(), batch.pool());
  device.attention({.layer = layer, .query_heads = query_heads, .scale = scale}, test::matrix_of(q, columns),
                   test::matrix_of(out, columns));
  device.end_pass();
  return out;
}

/// Every test runs on AMX tiles and on vectors alone; where there is no AMX, both are vectors.
class Attention : public ::testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<Device> make_device(int threads) { return create_cpu_device({.threads = threads, .tiles = GetParam()}); }

  /// Compares every row with the judge; gives the first row that is too far off, or nothing.
  static std::string disagreement(Device& device, PagedBatch& batch, int kv_heads, int group, int dim, int layer = 0) {
    // Vectors compute in float32, tiles split operands into two bf16 halves.
    constexpr double kVectorTolerance = 2e-6;
    constexpr double kTileTolerance = 2e-5;
    const double tolerance = GetParam() && batch.pool().layout().kv == DataType::kBF16 ? kTileTolerance : kVectorTolerance;
    const int query_heads = kv_heads * group;
    const int columns = query_heads * dim;
    const float scale = 1 / std::sqrt(static_cast<float>(dim));
    const std::vector<float> q = batch.random_floats(static_cast<size_t>(batch.rows()) * columns);
    const std::vector<float> out = attend(device, batch, q, query_heads, dim, scale, layer);
    const std::vector<double> wanted = batch.judge(q, group, scale, layer);
    const PassBatch pass = batch.batch();
    for (int s = 0; s < pass.sequences(); ++s) {
      for (int64_t row = pass.query_indptr[s]; row < pass.query_indptr[s + 1]; ++row) {
        const double error = test::largest_error({out.begin() + row * columns, out.begin() + (row + 1) * columns},
                                                 {wanted.begin() + row * columns, wanted.begin() + (row + 1) * columns});
        if (!(error < tolerance)) return "row " + std::to_string(row) + " is off by " + std::to_string(error * 1e6) + "e-6";
      }
    }
    return "";
  }
};

INSTANTIATE_TEST_SUITE_P(Cpu, Attention, ::testing::Bool(), [](const auto& unit) { return unit.param ? "Tiles" : "Vectors"; });

TEST_P(Attention, AgreesWithFloat64ForEveryGroup) {
  const auto device = make_device(2);
  for (int group = 1; group <= 16; ++group) {
    PagedBatch batch(*device, {{173}, {90, 21, false}}, 2, {.head_dim = 64, .group = group, .page = 16});
    EXPECT_EQ(disagreement(*device, batch, 2, group, 64), "") << "group " << group;
  }
}

TEST_P(Attention, AgreesWithFloat64ForEveryHeadDimension) {
  const auto device = make_device(2);
  for (int dim : {8, 16, 24, 40, 64, 72, 80, 96, 128, 192, 256}) {
    for (DataType type : {DataType::kBF16, DataType::kF32}) {
      PagedBatch batch(*device, {{133}, {70, 9, false}}, 1, {.head_dim = dim, .group = 3, .page = 16, .kv = type});
      EXPECT_EQ(disagreement(*device, batch, 1, 3, dim), "") << "dim " << dim << " " << name_of(type);
    }
  }
}

TEST_P(Attention, AgreesWithFloat64ForEveryPageSizeAndRaggedEnd) {
  const auto device = make_device(2);
  for (int page : {8, 16, 32, 64, 128}) {
    for (DataType type : {DataType::kBF16, DataType::kF32}) {
      std::vector<PagedBatch::Sequence> sequences;
      for (int length : {1, 2, 3, page - 1, page, page + 1, 2 * page + 5, 300}) {
        sequences.push_back({length});
        sequences.push_back({length, std::min(length, 7), false});
      }
      PagedBatch batch(*device, sequences, 2, {.head_dim = 32, .group = 2, .page = page, .kv = type});
      EXPECT_EQ(disagreement(*device, batch, 2, 2, 32), "") << "page " << page << " " << name_of(type);
    }
  }
}

TEST_P(Attention, MergesThePiecesOfLongSequences) {
  const auto device = make_device(2);
  PagedBatch batch(*device, {{5000}, {1024}, {1025}, {2048}, {3}}, 2, {.head_dim = 64, .group = 4, .page = 16});
  EXPECT_EQ(disagreement(*device, batch, 2, 4, 64), "");
}

TEST_P(Attention, PrefillSeesLongPrefixesAndManyTiles) {
  const auto device = make_device(2);
  PagedBatch batch(*device, {{700, 300, false}, {129, 129, false}, {600}}, 2, {.head_dim = 64, .group = 4, .page = 16});
  EXPECT_EQ(disagreement(*device, batch, 2, 4, 64), "");
}

TEST_P(Attention, ReadsTheLayerThatItIsGiven) {
  const auto device = make_device(1);
  PagedBatch batch(*device, {{40}, {35, 4, false}}, 2, {.head_dim = 64, .group = 2, .page = 16}, 3);
  for (int layer = 0; layer < 3; ++layer) EXPECT_EQ(disagreement(*device, batch, 2, 2, 64, layer), "") << layer;
}

TEST_P(Attention, SurvivesScoresTooLargeForExp) {
  const auto device = make_device(1);
  PagedBatch batch(*device, {{400}, {200, 20, false}}, 1, {.head_dim = 64, .group = 4, .page = 16});
  const std::vector<float> q = batch.random_floats(static_cast<size_t>(batch.rows()) * 4 * 64, 100);
  EXPECT_LT(test::largest_error(attend(*device, batch, q, 4, 64, 1), batch.judge(q, 4, 1)), 1e-3);
}

TEST_P(Attention, GivesTheSameBitsForAnyNumberOfThreads) {
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 3, 7}) {
    const auto device = make_device(threads);
    PagedBatch batch(*device, {{3000}, {90, 50, false}, {1}}, 2, {.head_dim = 64, .group = 4, .page = 16});
    const std::vector<float> q = batch.random_floats(static_cast<size_t>(batch.rows()) * 8 * 64);
    results.push_back(attend(*device, batch, q, 8, 64, 0.125f));
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST_P(Attention, GivesTheSameBitsAloneAndInABatch) {
  const auto device = make_device(2);
  PagedBatch batch(*device, {{3000}, {400, 200, false}, {77}}, 2, {.head_dim = 64, .group = 4, .page = 16});
  const int columns = 8 * 64;
  std::vector<float> q = batch.random_floats(static_cast<size_t>(batch.rows()) * columns);
  const std::vector<float> together = attend(*device, batch, q, 8, 64, 0.125f);
  const PassBatch whole = batch.batch();
  for (int s = 0; s < 3; ++s) {
    const int first = whole.query_indptr[s];
    const int rows = whole.query_indptr[s + 1] - first;
    BatchBuilder alone(16);
    alone.add({.first = batch.length(s) - rows, .rows = rows, .decoding = whole.decoding[s] != 0}, batch.pages(s));
    std::vector<float> out(static_cast<size_t>(rows) * columns);
    device->begin_pass(alone.batch(), batch.pool());
    device->attention({.query_heads = 8, .scale = 0.125f}, test::matrix_of(q, columns).slice_rows(first, rows),
                      test::matrix_of(out, columns));
    device->end_pass();
    EXPECT_TRUE(std::equal(out.begin(), out.end(), together.begin() + static_cast<int64_t>(first) * columns)) << "sequence " << s;
  }
}

TEST_P(Attention, GivesPrefillRowsTheSameBitsInAnyChunk) {
  const auto device = make_device(2);
  PagedBatch whole(*device, {{500, 300, false}}, 1, {.head_dim = 64, .group = 4, .page = 16});
  std::vector<float> q = whole.random_floats(300 * 256);
  const std::vector<float> together = attend(*device, whole, q, 4, 64, 0.125f);
  for (int first : {0, 1, 130, 299}) {
    // The rows [first, 300) as a chunk of their own.
    BatchBuilder chunk(16);
    chunk.add({.first = 200 + first, .rows = 300 - first}, whole.pages(0));
    std::vector<float> out(static_cast<size_t>(300 - first) * 256);
    device->begin_pass(chunk.batch(), whole.pool());
    device->attention({.query_heads = 4, .scale = 0.125f}, test::matrix_of(q, 256).slice_rows(first, 300 - first),
                      test::matrix_of(out, 256));
    device->end_pass();
    EXPECT_TRUE(std::equal(out.begin(), out.end(), together.begin() + first * 256)) << "from row " << first;
  }
}

TEST_P(Attention, GivesPrefillRowsNothingOfTheTokensAfterThem) {
  const auto device = make_device(1);
  PagedBatch batch(*device, {{64, 64, false}}, 1, {.head_dim = 32, .group = 2, .page = 16});
  std::vector<float> values(64 * 32);
  std::fill(values.begin() + 40 * 32, values.end(), 1e30f);
  const std::vector<float> keys = batch.random_floats(values.size());
  batch.pool().write(batch.pages(0), 64, keys.data(), values.data());
  const std::vector<float> out = attend(*device, batch, batch.random_floats(64 * 64), 2, 32, 0.125f);
  EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 40 * 64), std::vector<float>(40 * 64));
}

TEST_P(Attention, ReportsThatDenseRowsSeeEverything) {
  const auto device = make_device(2);
  PagedBatch batch(*device, {{40}, {17}}, 2, {.head_dim = 64, .group = 2, .page = 16});
  std::vector<float> q = batch.random_floats(2 * 4 * 64);
  std::vector<float> out(q.size());
  std::vector<int32_t> selected(2 * 2 * 4, -7);
  std::vector<int32_t> counts(4);
  std::vector<float> mass(4);
  AttentionProbe probe{.selected = selected.data(), .counts = counts.data(), .mass = mass.data(), .selected_capacity = 4};
  device->begin_pass(batch.batch(), batch.pool());
  device->attention({.query_heads = 4, .probe = &probe}, test::matrix_of(q, 256), test::matrix_of(out, 256));
  device->end_pass();
  EXPECT_EQ(counts, (std::vector<int32_t>{3, 3, 2, 2}));
  EXPECT_EQ(selected, (std::vector<int32_t>{0, 1, 2, -1, 0, 1, 2, -1, 0, 1, -1, -1, 0, 1, -1, -1}));
  EXPECT_EQ(mass, (std::vector<float>{1, 1, 1, 1}));
}

TEST_P(Attention, NamesTheDimensionThatDisagrees) {
  const auto device = make_device(1);
  PagedBatch batch(*device, {{40}}, 2, {.head_dim = 64, .group = 2, .page = 16});
  std::vector<float> q(4 * 64);
  std::vector<float> narrow(3 * 64);
  device->begin_pass(batch.batch(), batch.pool());
  try {
    device->attention({.query_heads = 4}, test::matrix_of(q, 256), test::matrix_of(narrow, 192));
    FAIL() << "accepted";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("out.columns is 192, expected 256"), std::string::npos) << error.what();
  }
  EXPECT_THROW(device->attention({.query_heads = 3}, test::matrix_of(narrow, 192), test::matrix_of(narrow, 192)), InternalError);
  EXPECT_THROW(device->attention({.layer = 1, .query_heads = 4}, test::matrix_of(q, 256), test::matrix_of(q, 256)),
               InternalError);
  device->end_pass();
}

}  // namespace
}  // namespace sluice
