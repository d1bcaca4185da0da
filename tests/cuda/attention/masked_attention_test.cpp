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

// Lists of few rows are split among blocks; those of short texts have fewer tiles than splits.
TEST_F(CudaMaskedAttention, SplitsTheTokensOfFewRows) {
  unsigned seed = 900;
  for (const auto& [dim, group, page, kv] : {std::tuple(64, 4, 16, DataType::kBF16),
                                             {128, 1, 8, DataType::kE4M3},
                                             {128, 3, 64, DataType::kBF16},
                                             {256, 2, 16, DataType::kBF16}}) {
    for (const int length : {4095, 9001, 19999}) {
      testing::MaskedAttention attention{.kv_heads = 2, .group = group, .head_dim = dim, .page = page, .kv = kv};
      std::vector<int32_t> slots;
      for (int slot = 3; slot < length - 1; slot += 1 + slot * 7 % (length / 40)) slots.push_back(slot);
      slots.push_back(length - 1);
      attention.sequences = {{.slots = {50}, .length = 51, .decoding = true, .masked = false},
                             {.slots = {0, 1, 130, 400}, .length = 401, .masked = false},
                             {.slots = slots, .length = length, .masked = false},
                             {.slots = {2000, 3000}, .length = 3001, .masked = false}};
      attention.seed = ++seed;
      EXPECT_LT(attention.error_on(*device_), 1e-2) << "dim " << dim << ", group " << group << ", " << length << " tokens";
    }
  }
}

// Whatever the stride is that rows are put in order by: that of their masks, another, or one of masks without any.
TEST_F(CudaMaskedAttention, GivesTheSameInAnOrderByResidue) {
  unsigned seed = 500;
  for (const auto& [dim, group, page] :
       {std::tuple(64, 1, 16), {64, 4, 8}, {128, 2, 64}, {128, 8, 16}, {256, 1, 32}, {256, 8, 16}, {128, 3, 16}}) {
    for (const auto& [stride, row_stride] :
         {std::pair(16, 16), {17, 17}, {37, 37}, {64, 64}, {100, 100}, {128, 128}, {64, 24}, {64, 1 << 29}, {64, 1 << 30}}) {
      testing::MaskedAttention attention{.kv_heads = 3, .group = group, .head_dim = dim, .page = page};
      attention.kv = seed % 5 == 0 ? DataType::kE4M3 : DataType::kBF16;
      attention.row_stride = row_stride;
      attention.mask_heads = 1 + static_cast<int>(seed % 3);
      // The first rows of a batch are not those of the call.
      attention.sequences = {{.slots = {50}, .length = 51, .decoding = true},
                             {.slots = testing::slots_from(2200, 1303), .length = 3503, .stride = stride},
                             {.slots = testing::slots_from(90, 5), .length = 95, .stride = stride},
                             {.slots = testing::slots_from(40, 300), .length = 340, .masked = false},
                             {.slots = testing::slots_from(517, 531), .length = 1048, .stride = stride},
                             {.slots = {77}, .length = 78, .decoding = true},
                             {.slots = testing::slots_from(10, 500), .length = 513},
                             {.slots = testing::slots_from(0, 300), .length = 300, .in_patches = true}};
      attention.seed = ++seed;
      EXPECT_LT(attention.error_on(*device_), 1e-2) << "dim " << dim << ", group " << group << ", page " << page << ", stride "
                                                    << stride << ", rows by " << row_stride << ", masks " << attention.mask_heads;
    }
  }
}

}  // namespace
}  // namespace sluice
