// Dense attention of ragged batches, against the same in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "kernels/device/open_pass.h"
#include "tests/cuda/device/device_fixture.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::CudaDeviceTest;
using testing::error_of;
using testing::Held;
using testing::rounded;

struct AttentionCase {
  int dim, page, kv_heads, group;
  std::vector<int> rows, tokens;
  DataType kv = DataType::kBF16;
};

TEST_F(CudaDeviceTest, AttendsRaggedBatchesOfDecodeStepsAndPrefill) {
  // One after the other on one device, so that what a call leaves in memory meets calls of other shapes.
  const std::vector<AttentionCase> cases = {{64, 16, 2, 4, {1, 1, 30, 1, 7}, {33, 1, 30, 700, 50}},
                                            {128, 8, 3, 1, {5}, {5}},
                                            {64, 16, 1, 4, {700, 1}, {720, 90}},
                                            {256, 64, 1, 16, {1, 1, 1}, {64, 65, 1000}},
                                            {128, 128, 2, 7, {3, 1}, {300, 129}},
                                            {64, 16, 2, 4, {1, 1, 30, 1, 7}, {33, 1, 30, 700, 50}, DataType::kE4M3},
                                            {128, 8, 3, 4, {1, 300, 1, 20}, {500, 310, 77, 20}, DataType::kE5M2},
                                            {256, 64, 1, 16, {1, 5, 1}, {64, 65, 1000}, DataType::kE4M3},
                                            {64, 16, 2, 4, {1, 1, 30, 1, 7}, {33, 1, 30, 700, 50}}};
  for (const AttentionCase& shape : cases) {
    const int dim = shape.dim;
    const int heads = shape.kv_heads * shape.group;
    const PageLayout layout = page_layout({dim, shape.group, shape.page, shape.kv}, {});
    const Batch batch(shape.rows, shape.tokens, shape.page, 3);
    const auto pool = device_->create_pool(2, shape.kv_heads, batch.all_pages(), layout);
    std::vector<std::pair<std::vector<float>, std::vector<float>>> kv;
    for (int s = 0; s < batch.sequences(); ++s) kv.push_back(fill(*pool, batch.pages(s), batch.lengths[s]));
    for (const DataType type : kTypes) {
      const Held qkv = hold(batch.rows(), (heads + 2 * shape.kv_heads) * dim, type);
      const Held out = empty(batch.rows(), heads * dim, type, type == kF32 ? 0 : 8);
      const int capacity = 200;
      std::vector<int32_t> counts(batch.sequences() * shape.kv_heads, -7), selected(counts.size() * capacity, -7);
      std::vector<float> mass(counts.size(), -7);
      AttentionProbe probe;
      probe.counts = counts.data();
      probe.selected = selected.data();
      probe.selected_capacity = capacity;
      probe.mass = mass.data();
      Device::Attention call;
      call.layer = 1;
      call.query_heads = heads;
      call.scale = 1 / std::sqrt(static_cast<float>(dim));
      call.probe = &probe;
      {
        const OpenPass pass(*device_, batch.view(), *pool);
        device_->attention(call, qkv.matrix.slice_columns(0, heads * dim), out.matrix);
      }
      std::vector<double> wanted;
      for (int s = 0; s < batch.sequences(); ++s) {
        const size_t layer = static_cast<size_t>(batch.lengths[s]) * shape.kv_heads * dim;
        for (int row = batch.query_indptr[s]; row < batch.query_indptr[s + 1]; ++row) {
          for (int head = 0; head < heads; ++head) {
            const auto at = [&](int token) {
              return layer + (static_cast<size_t>(token) * shape.kv_heads + head / shape.group) * dim;
            };
            std::vector<double> weights, sums(dim);
            double total = 0;
            for (int token = 0; token <= batch.position(s, row); ++token) {
              double score = 0;
              for (int i = 0; i < dim; ++i)
                score +=
                    rounded(static_cast<float>(qkv.at(row, head * dim + i))) * static_cast<double>(kv[s].first[at(token) + i]);
              const double weight = std::exp(score * call.scale);
              total += weight;
              for (int i = 0; i < dim; ++i) sums[i] += weight * kv[s].second[at(token) + i];
            }
            for (const double sum : sums) wanted.push_back(sum / total);
          }
        }
        for (int slot = s * shape.kv_heads; slot < (s + 1) * shape.kv_heads; ++slot) {
          const auto pages = static_cast<int>(batch.pages(s).size());
          EXPECT_EQ(counts[slot], batch.builder.decoding()[s] != 0 ? pages : -7);
          EXPECT_EQ(mass[slot], batch.builder.decoding()[s] != 0 ? 1 : -7);
          EXPECT_EQ(selected[slot * capacity], batch.builder.decoding()[s] != 0 ? 0 : -7);
          if (batch.builder.decoding()[s] != 0) {
            EXPECT_EQ(selected[slot * capacity + pages - 1], pages - 1);
            EXPECT_EQ(selected[slot * capacity + pages], -1);
          }
        }
      }
      EXPECT_LT(error_of(fetch(out.matrix), wanted), 5e-3)
          << "dim " << dim << ", page " << shape.page << ", group " << shape.group;
    }
  }
}

}  // namespace
}  // namespace sluice
