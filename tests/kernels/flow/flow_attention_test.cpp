#include <gtest/gtest.h>

#include "tests/kernels/paged_batch.h"
#include "tests/support/graph_builder.h"

namespace sluice {
namespace {

using test::PagedBatch;

struct Probed {
  std::vector<float> out, mass;
  std::vector<int32_t> selected, counts;
};

Probed run(Device& device, PagedBatch& batch, const CompiledFlow& flow, std::vector<float> q, int query_heads, int kv_heads,
           int pages) {
  const int columns = static_cast<int>(q.size()) / batch.rows();
  const int slots = batch.batch().sequences() * kv_heads;
  Probed result{std::vector<float>(q.size(), NAN), std::vector<float>(slots, NAN),
                std::vector<int32_t>(static_cast<size_t>(slots) * pages), std::vector<int32_t>(slots)};
  AttentionProbe probe{
      .selected = result.selected.data(), .counts = result.counts.data(), .mass = result.mass.data(), .selected_capacity = pages};
  device.begin_pass(batch.batch(), batch.pool());
  device.refresh_fields(0, flow);
  device.end_pass();
  for (int s = 0; s < batch.batch().sequences(); ++s) {
    const int length = batch.length(s);
    device.refresh_pages(batch.pool(), 0, {.pages = batch.pages(s), .last_tokens = (length - 1) % batch.pool().layout().page + 1},
                         flow);
  }
  device.begin_pass(batch.batch(), batch.pool());
  device.attention({.query_heads = query_heads, .scale = 0.125f, .flow = &flow, .probe = &probe}, test::matrix_of(q, columns),
                   test::matrix_of(result.out, columns));
  device.end_pass();
  return result;
}

TEST(FlowAttention, RefusesAProbeWithoutRoomForTheScores) {
  const Geometry geometry{.head_dim = 64, .group = 2, .page = 16, .kv = DataType::kBF16};
  const auto device = create_cpu_device({.threads = 1});
  const Plan plan = compile(testing::quest_graph(geometry, testing::GraphBuilder::budget(2, 1, 1))).plan;
  const auto flow = device->compile(plan, 1, 1);
  PagedBatch batch(*device, {{160}}, 1, geometry, plan.layout);
  std::vector<float> q = batch.random_floats(2 * 64);
  std::vector<float> out(q.size());
  for (const int room : {9, 10}) {
    std::vector<float> scores(11, -7);
    AttentionProbe probe{.scores = scores.data(), .score_capacity = room};
    const auto attend = [&] {
      device->attention({.query_heads = 2, .scale = 0.125f, .flow = flow.get(), .probe = &probe}, test::matrix_of(q, 128),
                        test::matrix_of(out, 128));
    };
    device->begin_pass(batch.batch(), batch.pool());
    if (room < 10) {
      EXPECT_THROW(attend(), InternalError);
    } else {
      EXPECT_NO_THROW(attend());
    }
    device->end_pass();
    for (size_t i = room < 10 ? 0 : 10; i < scores.size(); ++i) EXPECT_EQ(scores[i], -7) << i;
  }
}

TEST(FlowAttention, AttendsToTheSelectedPagesAndReportsTheirMass) {
  constexpr int kKvHeads = 2;
  constexpr int kGroup = 3;
  constexpr int kDim = 64;
  constexpr int kPages = 160;
  const Geometry geometry{.head_dim = kDim, .group = kGroup, .page = 16, .kv = DataType::kBF16};
  const auto device = create_cpu_device({.threads = 2});
  // 80 pages are more than one piece of decode attention.
  for (int budget : {5, 80}) {
    const Plan plan = compile(testing::quest_graph(geometry, testing::GraphBuilder::budget(budget, 1, 1))).plan;
    const auto flow = device->compile(plan, 1, kKvHeads);
    PagedBatch batch(*device, {{2500}, {333}, {16}, {50, 10, false}}, kKvHeads, geometry, plan.layout);
    const std::vector<float> q = batch.random_floats(static_cast<size_t>(batch.rows()) * kKvHeads * kGroup * kDim);
    const Probed got = run(*device, batch, *flow, q, kKvHeads * kGroup, kKvHeads, kPages);
    const std::vector<double> dense = batch.judge(q, kGroup, 0.125);

    for (int s = 0; s < 3; ++s) {
      const int length = batch.length(s);
      const auto pages = static_cast<int>(batch.pages(s).size());
      for (int head = 0; head < kKvHeads; ++head) {
        const int slot = s * kKvHeads + head;
        const int count = got.counts[slot];
        EXPECT_EQ(count, std::min(pages, budget + 2));
        const int32_t* selected = got.selected.data() + slot * kPages;
        EXPECT_TRUE(std::is_sorted(selected, selected + count));
        EXPECT_EQ(selected[0], 0);
        EXPECT_EQ(selected[count - 1], pages - 1);
        for (int i = count; i < kPages; ++i) EXPECT_EQ(selected[i], -1);

        double mass = 0;
        for (int g = 0; g < kGroup; ++g) {
          const size_t base = (static_cast<size_t>(s) * kKvHeads * kGroup + head * kGroup + g) * kDim;
          std::vector<double> wanted(kDim);
          double all = 0;
          double chosen = 0;
          for (int token = 0; token < length; ++token) {
            double score = 0;
            for (int d = 0; d < kDim; ++d) score += static_cast<double>(q[base + d]) * batch.key(s, 0, token, head, d);
            const double weight = std::exp(score * 0.125);
            all += weight;
            if (!std::binary_search(selected, selected + count, token / 16)) continue;
            chosen += weight;
            for (int d = 0; d < kDim; ++d) wanted[d] += weight * batch.value(s, 0, token, head, d);
          }
          for (int d = 0; d < kDim; ++d) EXPECT_NEAR(got.out[base + d], wanted[d] / chosen, 2e-5);
          mass += chosen / all / kGroup;
        }
        EXPECT_NEAR(got.mass[slot], mass, 1e-5);
      }
    }
    // Rows of a prefill stay dense.
    const size_t prefill = 3 * kKvHeads * kGroup * kDim;
    EXPECT_LT(test::largest_error({got.out.begin() + prefill, got.out.end()}, {dense.begin() + prefill, dense.end()}), 2e-5);
  }
}

TEST(FlowAttention, CountsThePagesItAttends) {
  const Geometry geometry{.head_dim = 64, .group = 1, .page = 16, .kv = DataType::kBF16};
  const auto device = create_cpu_device({.threads = 2});
  const Plan plan = compile(testing::quest_graph(geometry, testing::GraphBuilder::budget(3, 1, 1))).plan;
  const auto flow = device->compile(plan, 1, 2);
  PagedBatch batch(*device, {{320}, {33}}, 2, geometry, plan.layout);
  run(*device, batch, *flow, batch.random_floats(2 * 2 * 64), 2, 2, 20);
  EXPECT_EQ(flow->counters().pages_attended, 2 * (5 + 3));
  EXPECT_EQ(flow->counters().pages_available, 2 * (20 + 3));
}

TEST(FlowAttention, GivesTheSameBitsForAnyNumberOfThreads) {
  const Geometry geometry{.head_dim = 64, .group = 2, .page = 16, .kv = DataType::kBF16};
  const Plan plan = compile(testing::quest_graph(geometry, testing::GraphBuilder::budget(70, 1, 1))).plan;
  std::vector<Probed> results;
  for (int threads : {1, 2, 5}) {
    const auto device = create_cpu_device({.threads = threads});
    const auto flow = device->compile(plan, 1, 2);
    PagedBatch batch(*device, {{2500}, {700}}, 2, geometry, plan.layout);
    results.push_back(run(*device, batch, *flow, batch.random_floats(2 * 4 * 64), 4, 2, 160));
  }
  for (const Probed& result : results) {
    EXPECT_EQ(result.out, results[0].out);
    EXPECT_EQ(result.mass, results[0].mass);
    EXPECT_EQ(result.selected, results[0].selected);
  }
}

TEST(FlowAttention, RefusesAPoolWithoutTheFieldsOfTheFlow) {
  const Geometry geometry{.head_dim = 64, .group = 1, .page = 16, .kv = DataType::kBF16};
  const auto device = create_cpu_device({.threads = 1});
  const auto flow = device->compile(compile(testing::quest_graph(geometry, testing::GraphBuilder::budget(3, 1, 1))).plan, 1, 1);
  PagedBatch batch(*device, {{40}}, 1, geometry);
  std::vector<float> q(64);
  device->begin_pass(batch.batch(), batch.pool());
  EXPECT_THROW(device->refresh_fields(0, *flow), InternalError);
  EXPECT_THROW(device->attention({.query_heads = 1, .flow = flow.get()}, test::matrix_of(q, 64), test::matrix_of(q, 64)),
               InternalError);
  device->end_pass();
  EXPECT_THROW(device->refresh_pages(batch.pool(), 0, {.pages = batch.pages(0), .last_tokens = 8}, *flow), InternalError);
}

}  // namespace
}  // namespace sluice
