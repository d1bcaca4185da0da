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
        for (const int mask_heads : {1, 2, 3}) {
          attention.mask_heads = mask_heads;
          attention.seed = ++seed;
          EXPECT_LT(attention.error_on(*device), 2e-5)
              << "dim " << dim << ", page " << page << ", tiles " << tiles << ", masks " << mask_heads;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice
