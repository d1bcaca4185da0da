// Rows with positions, and slots that are not seen, against float64 on a GPU.
#include <gtest/gtest.h>

#include "tests/cuda/device/device_fixture.h"
#include "tests/support/masked_cases.h"

namespace sluice {
namespace {

using CudaMaskedAttention = testing::CudaDeviceTest;

TEST_F(CudaMaskedAttention, GivesWhatFloat64Gives) {
  unsigned seed = 100;
  for (const auto& [dim, group, page] : {std::tuple(64, 4, 16), {128, 2, 8}, {128, 8, 128}, {256, 1, 32}, {128, 16, 64}}) {
    for (const DataType kv : {DataType::kBF16, DataType::kE4M3, DataType::kE5M2}) {
      testing::MaskedAttention attention{
          .kv_heads = 3, .group = group, .head_dim = dim, .page = page, .kv = kv, .sequences = testing::masked_sequences()};
      for (const int mask_heads : {1, 2, 3}) {
        attention.mask_heads = mask_heads;
        attention.seed = ++seed;
        EXPECT_LT(attention.error_on(*device_), 1e-2)
            << "dim " << dim << ", group " << group << ", page " << page << ", " << name_of(kv) << ", masks " << mask_heads;
      }
    }
  }
}

TEST_F(CudaMaskedAttention, ListsMoreTilesThanABlockHasRoomForAtOnce) {
  const int length = 140000;  // 1094 tiles
  testing::MaskedAttention attention{.kv_heads = 1, .group = 1, .head_dim = 64, .page = 64};
  attention.sequences = {{.slots = {5, 131000, 131073, 139999}, .length = length, .in_stretches = true},
                         {.slots = {5, 131000, 131073, 139999}, .length = length},
                         {.slots = {5, 131000, 131073, 139999}, .length = length, .in_patches = true}};
  EXPECT_LT(attention.error_on(*device_), 1e-2);
}

}  // namespace
}  // namespace sluice
