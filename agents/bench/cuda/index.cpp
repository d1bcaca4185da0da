#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "agents/bench/bench.h"
#include "agents/bench/budget.h"
#include "agents/bench/cuda/stored_numbers.h"
#include "agents/bench/cuda/timing.h"
#include "agents/bench/flow_sources.h"
#include "agents/evaluation/flow_script.h"
#include "kernels/cuda/codegen/selection_plan.h"
#include "kernels/cuda/flow/flow.h"
#include "kernels/device/device_refusal.h"
#include "kernels/reference/judge.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using cuda::DeviceMemory;

struct IndexShape {
  int sequences;
  int tokens;  // of each
  int kv_heads;
  int group;
  int dim;
  int budget;  // pages that the flows of this benchmark select, the first and the last two counted in
};
constexpr IndexShape kShapes[] = {{16, 32768, 8, 4, 128, 128},
                                  {64, 8192, 8, 2, 128, 64},
                                  {4, 8192, 8, 2, 128, 64},
                                  {1, 131072, 8, 4, 128, 128},
                                  {1, 1048576, 8, 4, 128, 2048}};
constexpr size_t kRotation = size_t{200} << 20;  // bytes of fields that calls rotate through: more than the caches hold
constexpr int kMostLayers = 6;
constexpr int kQuerySets = 5;
constexpr int kJudgedTokens = 131072;  // of a row at most; longer ones take the judge minutes

TraceOptions geometry_of(const IndexShape& shape) { return {.head_dim = shape.dim, .group = shape.group}; }

/// The index stage of one flow over random pages of several layers.
class IndexCase {
 public:
  IndexCase(const FlowGraph& graph, const IndexShape& shape)
      : graph_(graph),
        shape_(shape),
        flow_(compile(graph).plan, kMostLayers, shape.kv_heads),
        layout_(flow_.plan().layout),
        pages_(shape.tokens / layout_.page),
        layers_(std::clamp(static_cast<int>(kRotation / bytes()) + 1, 2, kMostLayers)),
        pool_(layers_ * layer_bytes()) {
    draw_pool();
    draw_tables();
    std::vector<std::byte> queries = draw_stored(DataType::kBF16, kQuerySets * query_numbers(), 3);
    queries_ = on_device(queries);
    host_queries_ = std::move(queries);
    flow_.reserve(shape.sequences, pages_);
    for (int layer = 0; layer < layers_; ++layer) {
      flow_.refresh(blocks(layer),
                    {.count = shape.sequences * pages_, .pages = page_indices_.as<int32_t>(), .last_tokens = layout_.page},
                    nullptr);
    }
  }

  std::string path() const { return flow_.describe_path(shape_.sequences, pages_); }

  /// Of fields, in one call.
  double bytes() const {
    double page = 0;
    for (const Field& field : graph_.fields) page += static_cast<double>(elements_per_page(field.shape) * size_of(field.type));
    return page * rows() * pages_;
  }

  cuda::FlowResult run(int64_t call, cuda::Stream stream, bool wants_scores = false) {
    const cuda::FlowSequences sequences{
        .count = shape_.sequences,
        .most_pages = pages_,
        .lengths = lengths_.as<int32_t>(),
        .page_indptr = page_indptr_.as<int32_t>(),
        .page_indices = page_indices_.as<int32_t>(),
        .query = queries_.as<uint16_t>() + call % kQuerySets * query_numbers(),
        .query_stride = int64_t{shape_.kv_heads} * shape_.group * shape_.dim,
        .wants_scores = wants_scores,
    };
    return flow_.select(blocks(static_cast<int>(call % layers_)), sequences, {}, stream);
  }

  /// Every row selects what its scores ask for, without scores as with them; those of one row, if it is not too long, are judged
  /// in float64.
  bool is_correct() {
    const std::vector<std::vector<int32_t>> unseen = selected(run(0, nullptr));
    const cuda::FlowResult result = run(0, nullptr, true);
    if (selected(result) != unseen) return false;
    for (int row = 0; row < rows(); ++row) {
      std::vector<float> scores;
      for (const float* of : result.scores) {
        const std::vector<float> own = from_device(of + row * result.score_stride, pages_);
        scores.insert(scores.end(), own.begin(), own.end());
      }
      const oracle::Observed seen{scores, static_cast<size_t>(pages_), unseen[static_cast<size_t>(row)]};
      if (!oracle::fault_of_selection(flow_.plan().graph, seen, pages_ * flow_.plan().graph.geometry.page).empty()) return false;
      if (row == rows() / 2 && shape_.tokens <= kJudgedTokens && !agrees(row, seen)) return false;
    }
    return true;
  }

 private:
  int rows() const { return shape_.sequences * shape_.kv_heads; }
  size_t layer_bytes() const { return static_cast<size_t>(rows()) * pages_ * layout_.bytes; }
  size_t query_numbers() const { return static_cast<size_t>(rows()) * shape_.group * shape_.dim; }

  cuda::FlowBlocks blocks(int layer) const {
    return {.base = pool_.as<std::byte>() + layer * layer_bytes(),
            .page_stride = layout_.bytes * shape_.kv_heads,
            .block_bytes = layout_.bytes,
            .kv_heads = shape_.kv_heads,
            .layer = layer};
  }

  template <class T>
  static DeviceMemory on_device(const std::vector<T>& values) {
    DeviceMemory memory(values.size() * sizeof(T));
    memory.upload(values.data(), memory.bytes());
    return memory;
  }
  template <class T>
  static std::vector<T> from_device(const T* from, size_t count) {
    std::vector<T> values(count);
    SLUICE_CHECK_CUDA(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

  /// Random numbers that repeat, but not from page to page: their number is no multiple of a page's.
  void draw_pool() {
    constexpr size_t kPeriod = (size_t{1} << 24) - 1;
    const std::vector<std::byte> numbers = draw_stored(layout_.kv, kPeriod, 1);
    for (size_t at = 0; at < pool_.bytes(); at += numbers.size()) {
      const size_t bytes = std::min(numbers.size(), pool_.bytes() - at);
      SLUICE_CHECK_CUDA(cudaMemcpy(pool_.as<std::byte>() + at, numbers.data(), bytes, cudaMemcpyHostToDevice));
    }
  }

  void draw_tables() {
    host_pages_.resize(static_cast<size_t>(shape_.sequences) * pages_);
    std::iota(host_pages_.begin(), host_pages_.end(), 0);
    std::shuffle(host_pages_.begin(), host_pages_.end(), std::mt19937(2));
    page_indices_ = on_device(host_pages_);
    std::vector<int32_t> indptr;
    for (int s = 0; s <= shape_.sequences; ++s) indptr.push_back(s * pages_);
    page_indptr_ = on_device(indptr);
    lengths_ = on_device(std::vector<int32_t>(static_cast<size_t>(shape_.sequences), shape_.tokens));
  }

  std::vector<std::vector<int32_t>> selected(const cuda::FlowResult& result) const {
    SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
    const std::vector<int32_t> counts = from_device(result.counts, static_cast<size_t>(rows()));
    std::vector<std::vector<int32_t>> lists;
    for (int row = 0; row < rows(); ++row) lists.push_back(from_device(result.positions + row * result.stride, counts[row]));
    return lists;
  }

  /// K (or V, by `offset`) of a row in layer 0: [tokens, dim].
  std::vector<float> numbers_of(int row, size_t offset) const {
    std::vector<float> numbers;
    const size_t count = static_cast<size_t>(layout_.page) * shape_.dim;
    std::vector<std::byte> bytes(count * size_of(layout_.kv));
    for (int i = 0; i < pages_; ++i) {
      const int32_t page = host_pages_[static_cast<size_t>(row / shape_.kv_heads) * pages_ + i];
      const std::byte* from = blocks(0).base + page * blocks(0).page_stride + row % shape_.kv_heads * layout_.bytes + offset;
      SLUICE_CHECK_CUDA(cudaMemcpy(bytes.data(), from, bytes.size(), cudaMemcpyDeviceToHost));
      for (size_t n = 0; n < count; ++n) numbers.push_back(stored_number(layout_.kv, bytes.data(), n));
    }
    return numbers;
  }

  bool agrees(int row, const oracle::Observed& seen) const {
    const size_t numbers = static_cast<size_t>(shape_.group) * shape_.dim;
    std::vector<float> query;
    for (size_t i = 0; i < numbers; ++i) query.push_back(stored_number(DataType::kBF16, host_queries_.data(), row * numbers + i));
    const std::vector<float> keys = numbers_of(row, layout_.key_offset);
    const std::vector<float> values = numbers_of(row, layout_.value_offset);
    oracle::States none;
    const oracle::Result wanted = oracle::run(
        graph_, {.query = query, .keys = keys, .values = values, .tokens = shape_.tokens, .kv_head = row % shape_.kv_heads},
        none);
    return oracle::fault_of(graph_, flow_.plan().graph, seen, wanted).empty();
  }

  FlowGraph graph_;
  IndexShape shape_;
  cuda::CudaFlow flow_;
  PageLayout layout_;
  int pages_;  // of a sequence
  int layers_;
  DeviceMemory pool_;  // [layers, pages, kv_heads]
  std::vector<int32_t> host_pages_;
  std::vector<std::byte> host_queries_;
  DeviceMemory page_indices_, page_indptr_, lengths_, queries_;
};

std::vector<FlowGraph> graphs_for(const BenchOptions& options, const IndexShape& shape) {
  std::vector<FlowGraph> graphs;
  if (options.flow.empty()) {
    for (const char* source : kBenchedFlows) {
      FlowGraph graph = trace(source, "bench index", geometry_of(shape));
      const Attributes& selection = graph.nodes[static_cast<size_t>(graph.selection())].attributes;
      set_budget(graph, {.k = shape.budget - selection.first - selection.last, .first = {}, .last = {}});
      graphs.push_back(std::move(graph));
    }
    return graphs;
  }
  FlowGraph graph = read_flow(options.flow).trace(geometry_of(shape));
  require_index_stage(graph);
  if (!graph.states.empty())
    throw InputError(fmt::format("{} keeps state, which bench index has none of", graph.name), "use bench layer");
  if (graph.selects_under_masks())
    throw InputError(fmt::format("{} sees parts of pages, which bench index does not make", graph.name), "use bench layer");
  if (std::any_of(graph.nodes.begin(), graph.nodes.end(), cuda::codegen::insists_on_hints)) {
    throw InputError(
        fmt::format("{} begins with what its last step took (method \"gvr\"), which bench index does not keep", graph.name),
        "use bench layer");
  }
  graph.layers = LayerChoice{};
  require_device_takes(compile(graph).plan, options.device);
  return {graph};
}

}  // namespace

BenchReport run_cuda_index_bench(const BenchOptions& options) {
  cuda::require_device();
  BenchReport report{.name = "index", .copy_tb_per_s = measure_device_copy()};
  for (const IndexShape& shape : kShapes) {
    for (const FlowGraph& graph : graphs_for(options, shape)) {
      IndexCase measured(graph, shape);
      BenchRow row;
      row.name = graph.name;
      row.shape = fmt::format("batch {}, tokens {}, kv_heads {}, group {}, dim {}, page {}", shape.sequences, shape.tokens,
                              shape.kv_heads, shape.group, shape.dim, graph.geometry.page);
      row.correct = measured.is_correct();
      row.time_us = time_device_call(options.seconds, [&](int64_t call, cuda::Stream stream) { measured.run(call, stream); });
      row.bytes = measured.bytes();
      row.note = measured.path();
      report.rows.push_back(std::move(row));
    }
  }
  set_limits(report);
  return report;
}

}  // namespace sluice
