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
      attention.seed = ++seed;
      EXPECT_LT(attention.error_on(*device_), 1e-2)
          << "dim " << dim << ", group " << group << ", page " << page << ", " << name_of(kv);
    }
  }
}

}  // namespace
}  // namespace sluice
