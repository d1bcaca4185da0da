#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "hwy/targets.h"
#include "tests/kernels/paged_batch.h"

namespace sluice {
namespace {

/// Lets dispatch see one instruction set only, until this goes away.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

TEST(SimdTargets, AllAgreeWithFloat64) {
  int tried = 0;
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SCALAR}) {
    if ((supported & target) == 0 && target != HWY_SCALAR) continue;
    const OnlyTarget only(target);
    hwy::GetChosenTarget().Update(target);
    ++tried;
    const auto device = create_cpu_device({.threads = 1, .tiles = false});
    for (int dim : {40, 64, 80}) {
      for (DataType type : {DataType::kBF16, DataType::kF32}) {
        const int group = 7;
        test::PagedBatch batch(*device, {{200}, {90, 9, false}}, 1, {.head_dim = dim, .group = group, .page = 8, .kv = type});
        std::vector<float> q = batch.random_floats(static_cast<size_t>(batch.rows()) * group * dim);
        std::vector<float> out(q.size(), NAN);
        device->begin_pass(batch.batch(), batch.pool());
        device->attention({.query_heads = group, .scale = 0.125f}, test::matrix_of(q, group * dim),
                          test::matrix_of(out, group * dim));
        device->end_pass();
        EXPECT_LT(test::largest_error(out, batch.judge(q, group, 0.125)), 2e-5) << hwy::TargetName(target) << " dim " << dim;
      }
    }
    std::vector<float> x(13 * 65);
    std::vector<float> weights(40 * 65);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    std::vector<uint16_t> narrow;
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = test::as_stored(std::cos(static_cast<float>(i) * 0.7f), DataType::kBF16);
      narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(weights[i]) >> 16));
    }
    std::vector<double> product(13 * 40);
    for (int r = 0; r < 13; ++r) {
      for (int o = 0; o < 40; ++o) {
        for (int i = 0; i < 65; ++i) product[r * 40 + o] += static_cast<double>(x[r * 65 + i]) * weights[o * 65 + i];
      }
    }
    std::vector<float> out(product.size());
    for (DataType type : {DataType::kF32, DataType::kBF16}) {
      const void* values = type == DataType::kF32 ? static_cast<const void*>(weights.data()) : narrow.data();
      const auto weight = device->create_weight(values, type, 40, 65);
      device->matmul(test::matrix_of(x, 65), *weight, test::matrix_of(out, 40));
      EXPECT_LT(test::largest_error(out, product), 1e-5) << hwy::TargetName(target) << " " << name_of(type);
    }

    std::vector<double> silu;
    for (int i = 0; i < 20; ++i) silu.push_back(x[i] / (1 + std::exp(-static_cast<double>(x[i]))) * x[20 + i]);
    std::vector<float> gate_up(x.begin(), x.begin() + 40);
    std::vector<float> gated(20);
    device->silu_multiply(test::matrix_of(gate_up, 40), test::matrix_of(gated, 20));
    EXPECT_LT(test::largest_error(gated, silu), 1e-6) << hwy::TargetName(target);
  }
  EXPECT_GE(tried, 2);
}

}  // namespace
}  // namespace sluice
