// What rows of a prompt give the tokens that a pattern shows them, and what the after stage is shown of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/codegen/layout.h"
#include "kernels/cuda/flow/state.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/lua/trace.h"
#include "scripting/pattern/text.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/mass_run.h"

namespace sluice::testing {
namespace {

constexpr int kRows = 150;

class CudaPromptPatterns : public GpuTest {};

/// A flow whose after stage keeps how much the tokens of each page shown were given, by head: weights tell the pages apart.
FlowGraph flow_under(const Pattern& pattern, int group) {
  FlowGraph graph = trace(R"(
    local flow = sluice.flow{name = "x"}
    function flow.cache(c) c.a = c.k:mean("token") end
    function flow.index(q, c)
      local zero = 0 * sluice.load("given", {axes = {"head"}}):sum("head")
      return sluice.topk(q:dot(c.a):max("head") + zero, {k = 3, last = 1})
    end
    function flow.after(q, c, mass)
      sluice.save("given", (mass:sum("token") * (sluice.position() + 1)):sum("page"))
    end
    return flow)",
                          "x.lua", {.head_dim = 64, .group = group});
  graph.patterns.rest = graph.patterns.add(HeadPatterns(pattern));
  return graph;
}

/// The state of a KV head, [heads], which has no pages.
std::vector<float> kept_of(const MassRun& run, int head) {
  const cuda::codegen::FlowLayout layout(run.plan());
  const cuda::StateBlock block = dynamic_cast<const cuda::CudaFlowState&>(run.state()).block();
  const int64_t paged = layout.state_page_numbers * block.capacity;
  const float* const from = block.values + head * (paged + layout.state_fixed_numbers) + paged + layout.states.front().offset;
  std::vector<float> kept(static_cast<size_t>(run.plan().graph.geometry.group));
  SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
  SLUICE_CHECK_CUDA(cudaMemcpy(kept.data(), from, kept.size() * sizeof(float), cudaMemcpyDeviceToHost));
  return kept;
}

std::vector<int32_t> pages_seen_by_last(const Pattern& pattern) {
  std::vector<int32_t> seen;
  for (int page = 0; page * 16 < kRows; ++page) {
    bool is_seen = page == (kRows - 1) / 16;
    for (int token = page * 16; token < std::min(kRows, (page + 1) * 16); ++token)
      is_seen = is_seen || pattern.sees(kRows - 1, token);
    if (is_seen) seen.push_back(page);
  }
  return seen;
}

TEST_F(CudaPromptPatterns, MassesAreThoseOfThePagesShown) {
  const auto device = create_device("cuda");
  for (const Pattern& pattern :
       {Pattern::window(40), Pattern::sink(3) | Pattern::window(20), Pattern::strided(5, 32), Pattern::window(kRows)}) {
    const std::vector<int32_t> shown = pages_seen_by_last(pattern);
    for (const int group : {1, 4}) {
      const FlowGraph graph = flow_under(pattern, group);
      for (const std::vector<int>& chunks : {std::vector{kRows}, {47, 1}}) {
        MassRun run(*device, graph, kRows + 1);
        run.set_pattern(pattern, shown);
        run.prefill(kRows, chunks);
        for (int head = 0; head < MassRun::kHeads; ++head) {
          const std::vector<float> kept = kept_of(run, head);
          const oracle::Tensor& expected = run.expected("given", head);
          ASSERT_EQ(kept.size(), expected.values.size());
          for (size_t i = 0; i < kept.size(); ++i) {
            // Keys and queries are bf16 here.
            EXPECT_NEAR(kept[i], expected.values[i].value, 2e-3 * expected.values[i].value)
                << to_text(pattern) << ", head " << head << ", " << i << ", chunks of " << chunks.front();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
