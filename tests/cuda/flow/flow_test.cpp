#include "kernels/cuda/flow/flow.h"

#include <gtest/gtest.h>

#include "kernels/cuda/flow/state.h"
#include "scripting/graph/text.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/gpu.h"
#include "tests/support/flow_judge.h"
#include "tests/support/graph_builder.h"
#include "tests/support/head_cache.h"
#include "tests/support/random_flow.h"

namespace sluice::testing {
namespace {

using cuda::CudaFlow;
using cuda::CudaFlowState;
using cuda::DeviceMemory;
using cuda::FlowResult;

/// How a step is taken. Flows that cannot run as one kernel run as several in any case.
enum class Way : uint8_t {
  kRefreshBefore,  // fields are recomputed by a kernel of their own
  kRefreshWithin,  // the newest page's fields are left to the selection
  kSeveralKernels,
};

/// Two sequences, of which the second is judged, with two KV heads each, all of the same content: so rows, heads and sequences
/// that are mixed up show.
class GpuJudgedFlow final : public JudgedFlow {
 public:
  GpuJudgedFlow(const Plan& plan, int max_pages, uint64_t seed, Way way)
      : plan_(plan),
        way_(way),
        flow_(plan, 3, kHeads),
        cache_(plan, max_pages, seed),
        seed_(seed),
        memory_((cache_.memory().size() + cache_.stride()) * kHeads),
        fields_((cache_.field_memory().size() + cache_.field_stride()) * kHeads) {
    if (way == Way::kSeveralKernels) flow_.use_several_kernels();
    const std::vector<std::byte> nothing(memory_.bytes(), std::byte{0xff});
    memory_.upload(nothing.data(), nothing.size());
    if (fields_.bytes() > 0) SLUICE_CHECK_CUDA(cudaMemset(fields_.data(), 0xff, fields_.bytes()));
    for (auto& state : states_) state = flow_.create_state(max_pages);
  }

  void end_step(std::span<float>) override { throw InternalError("a GPU refuses flows with an after stage"); }

  void append(std::span<const float> keys, std::span<const float> values) override {
    const int first = cache_.append(keys, values);
    std::vector<int32_t> pages;
    std::vector<int32_t> fields;
    std::vector<int32_t> tokens;
    for (int p = first; p < cache_.pages(); ++p) {
      pages.push_back(cache_.pool_page(p));
      fields.push_back(field_page(p));
      tokens.push_back(cache_.tokens_in(p));
      // Head 1; head 0 keeps what nobody has written.
      SLUICE_CHECK_CUDA(cudaMemcpy(memory_.as<std::byte>() + (pages.back() * kHeads + 1) * cache_.stride(), cache_.page(p),
                                   plan_.layout.bytes, cudaMemcpyHostToDevice));
    }
    if (way_ == Way::kRefreshWithin) {  // but for pages that are not the newest
      pages.pop_back();
      fields.pop_back();
      tokens.pop_back();
    }
    const DeviceMemory page_list = to_device(pages);
    const DeviceMemory field_list = to_device(fields);
    const DeviceMemory token_list = to_device(tokens);
    flow_.refresh(blocks(),
                  {.count = static_cast<int>(pages.size()),
                   .pages = page_list.as<int32_t>(),
                   .fields = field_list.as<int32_t>(),
                   .tokens = token_list.as<int32_t>()},
                  nullptr);
    SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
  }

  std::vector<int32_t> select(std::span<const float> query, std::span<float> scores) override {
    const int pages = cache_.pages();
    const auto other = static_cast<int32_t>(cache_.memory().size() / cache_.stride());  // the first sequence's page
    std::vector<int32_t> indices{other};
    std::vector<int32_t> field_indices{other};
    for (int p = 0; p < pages; ++p) {
      indices.push_back(cache_.pool_page(p));
      field_indices.push_back(field_page(p));
    }
    std::vector<float> queries(2 * kHeads * query.size());
    std::copy(query.begin(), query.end(), queries.begin() + 3 * query.size());
    std::vector<StateBlock> blocks_of_states;
    std::vector<cuda::HintBlock> hints;
    for (const auto& state : states_) {
      if (state == nullptr) continue;
      blocks_of_states.push_back(dynamic_cast<const CudaFlowState&>(*state).block());
      hints.push_back(dynamic_cast<const CudaFlowState&>(*state).hints());
    }
    const DeviceMemory lengths = to_device<int32_t>({1, cache_.tokens()});
    const DeviceMemory indptr = to_device<int32_t>({0, 1, pages + 1});
    const DeviceMemory page_list = to_device(indices);
    const DeviceMemory field_list = to_device(field_indices);
    const DeviceMemory stale_fields = to_device<int32_t>({other, field_page(pages - 1)});
    const DeviceMemory stale_pages = to_device<int32_t>({other, cache_.pool_page(pages - 1)});
    const DeviceMemory stale_tokens = to_device<int32_t>({1, cache_.tokens_in(pages - 1)});
    const DeviceMemory seeds = to_device<uint64_t>({seed_ + 1, seed_});
    const DeviceMemory state_list = to_device(blocks_of_states);
    const DeviceMemory hint_list = to_device(hints);
    const DeviceMemory query_memory = to_device(queries);
    DeviceMemory counters(2 * sizeof(unsigned long long));
    counters.clear();
    const FlowResult result = flow_.select(
        blocks(),
        {.count = 2,
         .most_pages = pages,
         .lengths = lengths.as<int32_t>(),
         .page_indptr = indptr.as<int32_t>(),
         .page_indices = page_list.as<int32_t>(),
         .field_indptr = indptr.as<int32_t>(),
         .field_indices = field_list.as<int32_t>(),
         .seeds = seeds.as<uint64_t>(),
         .states = blocks_of_states.empty() ? nullptr : state_list.as<StateBlock>(),
         .hints = hints.empty() ? nullptr : hint_list.as<cuda::HintBlock>(),
         .query = query_memory.data(),
         .query_stride = static_cast<int64_t>(kHeads * query.size()),
         .query_type = DataType::kF32,
         .stale = {.count = way_ == Way::kRefreshWithin ? 2 : 0,
                   .pages = stale_pages.as<int32_t>(),
                   .fields = stale_fields.as<int32_t>(),
                   .tokens = stale_tokens.as<int32_t>()},
         .wants_scores = true},
        {.attended = counters.as<unsigned long long>(), .available = counters.as<unsigned long long>() + 1}, nullptr);
    SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
    const int row = 1 * kHeads + 1;
    for (size_t i = 0; i < result.scores.size(); ++i) {
      copy(scores.data() + i * pages, result.scores[i] + row * result.score_stride, pages);
    }
    int32_t count = 0;
    copy(&count, result.counts + row, 1);
    std::vector<int32_t> selected(count);
    copy(selected.data(), result.positions + row * result.stride, selected.size());
    std::vector<int32_t> listed(count);
    copy(listed.data(), result.pages + row * result.stride, listed.size());
    int tokens = 0;
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(listed[i], cache_.pool_page(selected[i]));
      tokens += cache_.tokens_in(selected[i]);
    }
    int32_t told = 0;
    copy(&told, result.tokens + row, 1);
    EXPECT_EQ(told, tokens);
    return selected;
  }

 private:
  static constexpr int kHeads = 2;
  using StateBlock = cuda::StateBlock;

  template <class T>
  static DeviceMemory to_device(const std::vector<T>& values) {
    DeviceMemory memory(std::max<size_t>(1, values.size()) * sizeof(T));
    if (!values.empty()) memory.upload(values.data(), values.size() * sizeof(T));
    return memory;
  }
  template <class T>
  static void copy(T* to, const T* from, size_t count) {
    SLUICE_CHECK_CUDA(cudaMemcpy(to, from, count * sizeof(T), cudaMemcpyDeviceToHost));
  }

  cuda::FlowBlocks blocks() const {
    return {.base = memory_.as<std::byte>(),
            .page_stride = kHeads * cache_.stride(),
            .block_bytes = cache_.stride(),
            .kv_heads = kHeads,
            .layer = 1,
            .fields = fields_.as<std::byte>(),
            .field_page_stride = kHeads * cache_.field_stride(),
            .field_block_bytes = cache_.field_stride()};
  }
  /// -1 where fields lie with K and V: nobody asks.
  int32_t field_page(int position) const { return plan_.has_field_pages() ? cache_.field_page(position) : -1; }

  Plan plan_;
  Way way_;
  CudaFlow flow_;
  HeadCache cache_;
  uint64_t seed_;
  DeviceMemory memory_;
  DeviceMemory fields_;  // where they have pages of their own
  std::array<std::unique_ptr<RequestState>, 2> states_;
};

std::unique_ptr<JudgedFlow> judged_on_gpu(const Plan& plan, int max_pages, uint64_t seed) {
  return std::make_unique<GpuJudgedFlow>(plan, max_pages, seed, static_cast<Way>(seed % 3));
}

using CudaFlows = GpuTest;
constexpr uint64_t kFlowsTogether = 20;

/// Some cross a page boundary, some repeat keys so that scores tie, some hold infinities and NaN.
JudgeOptions options_of(uint64_t seed, const FlowGraph& graph) {
  return {.tokens = static_cast<int>(1 + seed * 37 % (9 * static_cast<uint64_t>(graph.geometry.page))),
          .steps = 3,
          .seed = seed,
          .levels = seed % 3 == 0 ? 2 : 0,
          .specials = seed % 5 == 0};
}

class CudaRandomFlows : public GpuTest, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(CudaRandomFlows, AgreeWithTheOracle) {
  int scores = 0;
  int known = 0;
  for (uint64_t seed = GetParam(); seed < GetParam() + kFlowsTogether; ++seed) {
    FlowGraph graph = random_flow(seed);
    graph.sources.front().beside.reset();  // which devices join with what is selected (CudaFlowAttention)
    for (Node& node : graph.nodes) {
      if (node.op == Op::kTopK) node.attributes.method = static_cast<TopKMethod>(seed / 3 % 3);
    }
    const Verdict verdict = judge(graph, options_of(seed, graph), judged_on_gpu);
    EXPECT_EQ(verdict.fault, "") << "seed " << seed << "\n" << to_text(graph);
    scores += verdict.scores;
    known += verdict.known;
  }
  EXPECT_GT(known, scores / 4);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CudaRandomFlows, ::testing::Range<uint64_t>(0, 200, kFlowsTogether));

TEST_F(CudaFlows, LongRowsAgreeWithTheOracle) {
  for (const int tokens : {1, 15, 16, 17, 1000, 40'000}) {
    for (const int group : {1, 3, 4, 5, 6, 7, 16}) {
      const Geometry geometry{.head_dim = 64, .group = group, .page = 8, .kv = DataType::kBF16};
      const FlowGraph graph = quest_graph(geometry, GraphBuilder::budget(37, 1, 2));
      for (const uint64_t way : {0, 1, 2}) {
        const Verdict verdict = judge(graph, {.tokens = tokens, .steps = 2, .seed = 3 + way}, judged_on_gpu);
        ASSERT_EQ(verdict.fault, "") << tokens << " tokens, group " << group << ", way " << way;
      }
    }
  }
}

TEST_F(CudaFlows, FieldsThatNothingIsMultipliedWithAreWaitedFor) {
  // No ring of copies, whose barriers wait for the newest page's fields, and enough pages for it to be another warp's.
  const FlowGraph graph = trace(R"(
local flow = sluice.flow { name = "norms", page = 8 }
function flow.cache(c) c.norm = c.k:l2norm("dim"):max("token") end
function flow.index(q, c) return sluice.topk(c.norm, { k = 8 }) end
return flow)",
                                "norms.lua");
  for (const int tokens : {1, 9, 801, 1605}) {
    for (const uint64_t way : {0, 1, 2}) {
      const Verdict verdict = judge(graph, {.tokens = tokens, .steps = 6, .seed = 3 + way}, judged_on_gpu);
      ASSERT_EQ(verdict.fault, "") << tokens << " tokens, way " << way;
    }
  }
}

TEST_F(CudaFlows, WhatIsKeptInPlaceOfBeingRepeatedAgreesWithTheOracle) {
  const std::string index[] = {
      "local v, t = q:max('head'), 1 for i = 1, 20 do t = (v + t):mean('dim') * 0.5 end local s = t "
      "for i = 1, 3 do s = (c.m * s + t):mean('dim'):mean('page') + t end return sluice.topk((c.m * s):mean('dim'), {k = 4})",
      "local k, s = {}, c.m:mean('dim') for i = 1, 129 do k[i] = i / 8192 end for i = 1, 3 do s = s:conv1d(k) end "
      "return sluice.topk(s:conv1d{0.5, 1, 0.5}, {k = 4, last = 1})"};
  for (const std::string& text : index) {
    const FlowGraph graph = trace(
        "local flow = sluice.flow { name = 'again', page = 8 }\n"
        "function flow.cache(c) c.m = c.k:mean('token') end\nfunction flow.index(q, c) " +
            text + " end\nreturn flow",
        "again.lua");
    for (const int tokens : {7, 900}) {
      for (const uint64_t way : {0, 1, 2}) {
        const Verdict verdict = judge(graph, {.tokens = tokens, .steps = 3, .seed = 3 + way}, judged_on_gpu);
        ASSERT_EQ(verdict.fault, "") << tokens << " tokens, way " << way << ": " << text;
        EXPECT_GT(verdict.known, verdict.scores / 2) << text;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
