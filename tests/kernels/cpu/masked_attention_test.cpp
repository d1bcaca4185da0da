// Rows with positions, and slots that are not seen, against float64 on the CPU.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/masked_cases.h"

namespace sluice {
namespace {

TEST(MaskedAttention, GivesWhatFloat64GivesOnTheCpu) {
  unsigned seed = 0;
  for (const bool tiles : {true, false}) {
    const auto device = create_cpu_device({.threads = 2, .tiles = tiles});
    for (const DataType kv : {DataType::kBF16, DataType::kF32}) {
      for (const auto& [dim, group, page] : {std::tuple(64, 4, 16), {128, 2, 8}, {40, 3, 32}, {64, 1, 128}, {96, 16, 64}}) {
        testing::MaskedAttention attention{
            .kv_heads = 3, .group = group, .head_dim = dim, .page = page, .kv = kv, .sequences = testing::masked_sequences()};
        attention.seed = ++seed;
        attention.mask_heads = 1 + static_cast<int>(seed % 3);  // each beside each shape, for some type of K and V
        EXPECT_LT(attention.error_on(*device), 2e-5)
            << "dim " << dim << ", page " << page << ", tiles " << tiles << ", masks " << attention.mask_heads;
      }
    }
  }
}

// Tokens that stand alone are told one by one, beside tiles or without any.
TEST(MaskedAttention, TakesTokensOneByOneOnTheCpu) {
  unsigned seed = 700;
  for (const bool tiles : {true, false}) {
    const auto device = create_cpu_device({.threads = 2, .tiles = tiles});
    for (const auto& [dim, group, page] : {std::tuple(64, 4, 16), {128, 1, 8}, {40, 3, 32}, {64, 16, 128}}) {
      for (const int stride : {1, 13, 32, 64, 200, 512}) {
        testing::MaskedAttention attention{.kv_heads = 3, .group = group, .head_dim = dim, .page = page};
        attention.kv = stride == 64 ? DataType::kF32 : DataType::kBF16;
        attention.mask_heads = 1 + stride % 3;
        attention.row_stride = stride;
        attention.sequences = {{.slots = testing::slots_from(0, 603), .length = 603, .stride = stride},
                               {.slots = testing::slots_from(290, 7), .length = 297, .stride = stride},
                               {.slots = testing::slots_from(40, 70), .length = 110, .masked = false},
                               {.slots = {17, 1900, 2046}, .length = 2047, .stride = stride},
                               {.slots = {77}, .length = 78, .decoding = true}};
        attention.seed = ++seed;
        EXPECT_LT(attention.error_on(*device), 2e-5)
            << "dim " << dim << ", group " << group << ", stride " << stride << ", tiles " << tiles;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
