#include <gtest/gtest.h>

#include <tuple>

#include "agents/bench/cuda/paged_case.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"
#include "tests/cuda/gpu.h"

namespace sluice {
namespace {

class CudaDecode : public testing::GpuTest {
 protected:
  /// Largest error of any row of one call.
  static double worst(PagedCase& attention) {
    attention.poison();
    attention.run(0, nullptr);
    double error = 0;
    for (int row = 0; row < attention.rows(); ++row) error = std::max(error, attention.error(row));
    return error;
  }
  // Weights are rounded to bf16 before they multiply V, and the output is bf16.
  static constexpr double kTolerance = 5e-3;
};

TEST_F(CudaDecode, AgreesWithFloat64ForEveryGroupPageAndHeadDimension) {
  for (const int dim : {64, 128, 256}) {
    for (const int page : {8, 16, 32, 64, 128}) {
      for (const int group : {1, 2, 3, 4, 5, 7, 8, 9, 12, 16}) {
        PagedCase attention(
            {.sequences = 3, .kv_heads = 2, .group = group, .dim = dim, .page = page, .tokens = 700, .ragged = true});
        EXPECT_LT(worst(attention), kTolerance) << "dim " << dim << ", page " << page << ", group " << group;
      }
    }
  }
}

TEST_F(CudaDecode, AgreesWithFloat64OnSelectionsOfEveryHead) {
  for (const int page : {8, 16, 64}) {
    PagedCase attention(
        {.sequences = 7, .kv_heads = 3, .group = 4, .page = page, .tokens = 4000, .selected = 9, .ragged = true, .seed = 3});
    EXPECT_LT(worst(attention), kTolerance) << "page " << page;
  }
}

TEST_F(CudaDecode, AgreesWithFloat64OnEightBitKeysAndValues) {
  for (const DataType kv : {DataType::kE4M3, DataType::kE5M2}) {
    for (const int dim : {64, 128, 256}) {
      for (const int page : {8, 16, 64, 128}) {
        for (const int group : {1, 2, 4, 5, 8, 9, 16}) {
          PagedCase attention(
              {.sequences = 3, .kv_heads = 2, .group = group, .dim = dim, .page = page, .tokens = 700, .ragged = true, .kv = kv});
          EXPECT_LT(worst(attention), kTolerance) << name_of(kv) << ", dim " << dim << ", page " << page << ", group " << group;
        }
      }
    }
    PagedCase lists(
        {.sequences = 7, .kv_heads = 3, .group = 4, .tokens = 4000, .selected = 9, .ragged = true, .seed = 3, .kv = kv});
    EXPECT_LT(worst(lists), kTolerance) << name_of(kv);
    PagedCase split({.sequences = 1, .kv_heads = 1, .group = 4, .tokens = 70000, .kv = kv});
    EXPECT_LT(worst(split), kTolerance) << name_of(kv);
  }
}

TEST_F(CudaDecode, TakesQueriesOfAnySizeBesideEightBitKeys) {
  const auto outputs_of = [](int exponent) {
    PagedCase attention(
        {.sequences = 2, .kv_heads = 2, .group = 3, .tokens = 900, .kv = DataType::kE4M3, .query_exponent = exponent});
    attention.run(0, nullptr);
    return attention.outputs();
  };
  const auto outputs = outputs_of(0);
  for (const int exponent : {-90, -20, 20, 90}) EXPECT_EQ(outputs_of(exponent), outputs) << exponent;
}

TEST_F(CudaDecode, KeepsManyTokensOfHardlyAnyWeight) {
  for (const DataType kv : {DataType::kBF16, DataType::kE4M3, DataType::kE5M2}) {
    PagedCase attention({.sequences = 2, .kv_heads = 2, .tokens = 3000, .kv = kv, .sink = true});
    EXPECT_LT(worst(attention), kTolerance) << name_of(kv);
  }
}

TEST_F(CudaDecode, SplitsOneLongRowOverAllMultiprocessors) {
  PagedCase attention({.sequences = 1, .kv_heads = 1, .group = 4, .tokens = 70000});
  EXPECT_LT(worst(attention), kTolerance);
}

TEST_F(CudaDecode, TakesMoreRowsThanMultiprocessors) {
  PagedCase attention({.sequences = 700, .kv_heads = 2, .group = 2, .dim = 64, .tokens = 200, .selected = 3, .ragged = true});
  EXPECT_LT(worst(attention), kTolerance);
}

TEST_F(CudaDecode, AgreesWhereBlocksHaveWholeRowsAndWhereTheyDoNot) {
  // Of 132 blocks 128 have four rows of 64 tiles, or 125 five of 20, or 40 one of at most 9. Three rows each would leave 25
  // without any, so the rows of 40 sequences are cut, as those of ragged sequences mostly are.
  for (const auto& [sequences, selected, ragged] :
       {std::tuple{64, 64, false}, {78, 20, false}, {5, 9, true}, {40, 64, false}, {64, 64, true}}) {
    PagedCase attention(
        {.sequences = sequences, .kv_heads = 8, .group = 2, .tokens = 1100, .selected = selected, .ragged = ragged, .seed = 5});
    EXPECT_LT(worst(attention), kTolerance) << sequences << " sequences, " << selected << " pages";
  }
}

TEST_F(CudaDecode, AgreesWhereRowsHaveBlocksOfTheirOwn) {
  // Of 132 blocks each row gets 132 / rows, of lists that its heads share or do not: 1, 8, 40 and 66 rows, of few tiles and of
  // many.
  for (const auto& [sequences, kv_heads, selected] :
       {std::tuple{1, 1, 3}, {1, 8, 128}, {5, 8, 17}, {1, 64, 18}, {1, 66, 24}, {33, 2, 66}, {1, 64, 1}, {2, 20, 200}}) {
    for (const bool shared : {false, true}) {
      PagedCase attention({.sequences = sequences,
                           .kv_heads = kv_heads,
                           .group = 2,
                           .tokens = 16 * 256,
                           .selected = selected,
                           .shared = shared,
                           .seed = 6});
      EXPECT_LT(worst(attention), kTolerance)
          << sequences << " sequences of " << kv_heads << " heads, " << selected << " pages, " << (shared ? "shared" : "apart");
    }
  }
}

TEST_F(CudaDecode, GivesTheSameBitsEveryTime) {
  for (const DataType kv : {DataType::kBF16, DataType::kE4M3, DataType::kE5M2}) {
    PagedCase attention({.sequences = 5, .kv_heads = 8, .group = 4, .tokens = 9000, .ragged = true, .kv = kv});
    attention.run(0, nullptr);
    const auto outputs = attention.outputs();
    const auto log_sums = attention.log_sums();
    for (int repeat = 0; repeat < 20; ++repeat) {
      attention.poison();
      attention.run(0, nullptr);
      ASSERT_EQ(attention.outputs(), outputs);
      ASSERT_EQ(attention.log_sums(), log_sums);
    }
  }
}

TEST_F(CudaDecode, RefusesLayoutsThatItDoesNotTake) {
  EXPECT_THROW(PagedCase({.dim = 96}), InputError);
  EXPECT_THROW(PagedCase({.page = 4}), InputError);
  EXPECT_THROW(PagedCase({.page = 256}), InputError);
  EXPECT_THROW(PagedCase({.kv = DataType::kF32}), InputError);
}

}  // namespace
}  // namespace sluice
