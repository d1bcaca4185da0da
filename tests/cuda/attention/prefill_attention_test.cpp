#include "kernels/cuda/attention/prefill_attention.h"

#include <gtest/gtest.h>

#include "agents/bench/cuda/prefill_case.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"
#include "tests/cuda/gpu.h"

namespace sluice {
namespace {

class CudaPrefill : public testing::GpuTest {
 protected:
  static double worst(const PrefillCaseShape& shape, int step = 1, int head_step = 1) {
    PrefillCase attention(shape);
    attention.poison();
    attention.run(nullptr);
    EXPECT_TRUE(attention.gaps_untouched());
    return attention.error(step, head_step);
  }
  // Weights are rounded to bf16 before they multiply V, and the output is bf16.
  static constexpr double kTolerance = 6e-3;
};

TEST_F(CudaPrefill, AgreesWithFloat64ForEveryGroupPageAndHeadDimension) {
  for (const int dim : {64, 128, 256}) {
    for (const int page : {8, 16, 24, 32, 64, 128}) {
      for (const int group : {1, 2, 3, 4, 5, 8, 16}) {
        EXPECT_LT(worst({.chunks = {{200, 200}, {333, 61}, {1, 1}}, .kv_heads = 2, .group = group, .dim = dim, .page = page}, 3),
                  kTolerance)
            << "dim " << dim << ", page " << page << ", group " << group;
      }
    }
  }
}

TEST_F(CudaPrefill, AgreesWithFloat64OnEightBitKeysAndValues) {
  for (const DataType kv : {DataType::kE4M3, DataType::kE5M2}) {
    for (const int dim : {64, 128, 256}) {
      for (const int page : {8, 16, 24, 128}) {
        EXPECT_LT(
            worst({.chunks = {{200, 200}, {333, 61}, {1, 1}}, .kv_heads = 2, .group = 4, .dim = dim, .page = page, .kv = kv}, 3),
            kTolerance)
            << name_of(kv) << ", dim " << dim << ", page " << page;
      }
    }
  }
}

TEST_F(CudaPrefill, EveryRowSeesItsOwnTokensOnly) {
  for (const int tokens : {1, 7, 8, 63, 64, 65, 127, 128, 129, 255, 256, 257, 385}) {
    EXPECT_LT(worst({.chunks = {{tokens, tokens}}, .seed = 5}), kTolerance) << tokens << " tokens";
    EXPECT_LT(worst({.chunks = {{tokens, tokens}}, .group = 5, .dim = 64, .seed = 6}), kTolerance) << tokens << " tokens";
  }
}

TEST_F(CudaPrefill, ChunksFollowWhatTheCacheHolds) {
  for (const int rows : {1, 2, 17, 64, 100, 128, 300}) {
    EXPECT_LT(worst({.chunks = {{1000, rows}}, .kv_heads = 3, .group = 4, .seed = 7}), kTolerance) << rows << " rows";
  }
}

TEST_F(CudaPrefill, TakesManySequencesSomeWithoutRows) {
  PrefillCaseShape shape{.kv_heads = 2, .group = 2, .gap = 40, .spare_rows = 500, .seed = 8};
  for (int s = 0; s < 70; ++s)
    shape.chunks.push_back({s % 7 == 6 ? 50 : 1 + s * 37 % 400, s % 7 == 6 ? 0 : 1 + s * 37 % 400 / 2});
  EXPECT_LT(worst(shape, 5), kTolerance);
}

TEST_F(CudaPrefill, TakesLongPromptsOfManyHeads) {
  EXPECT_LT(worst({.chunks = {{20000, 3000}, {9000, 9000}}, .kv_heads = 8, .group = 4}, 1009, 9), kTolerance);
}

TEST_F(CudaPrefill, GivesTheSameBitsEveryTime) {
  PrefillCase attention({.chunks = {{3000, 3000}, {5000, 700}}, .kv_heads = 8, .group = 4});
  attention.run(nullptr);
  const auto outputs = attention.outputs();
  for (int repeat = 0; repeat < 20; ++repeat) {
    attention.poison();
    attention.run(nullptr);
    ASSERT_EQ(attention.outputs(), outputs);
  }
}

TEST_F(CudaPrefill, RefusesLayoutsThatItDoesNotTake) {
  EXPECT_THROW(PrefillCase({.chunks = {{10, 10}}, .dim = 96}), InputError);
  EXPECT_THROW(PrefillCase({.chunks = {{10, 10}}, .page = 4}), InputError);
  EXPECT_THROW(PrefillCase({.chunks = {{10, 10}}, .page = 256}), InputError);
  EXPECT_THROW(PrefillCase({.chunks = {{10, 10}}, .kv = DataType::kF32}), InputError);
}

}  // namespace
}  // namespace sluice
