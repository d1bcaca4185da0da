#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "agents/bench/bench.h"
#include "agents/evaluation/flow_script.h"
#include "kernels/cpu/flow/flow.h"
#include "kernels/cpu/runtime/memory.h"
#include "kernels/cpu/runtime/pool.h"
#include "kernels/cpu/runtime/thread_pool.h"
#include "kernels/device/device_refusal.h"
#include "kernels/reference/judge.h"
#include "scripting/base/error.h"
#include "scripting/graph/selections.h"

namespace sluice {
namespace {

constexpr int kGroup = 4;
constexpr int kDim = 64;
constexpr int kRows = 16;                       // requests x KV heads in one call
constexpr size_t kPoolBytes = size_t{1} << 30;  // calls rotate through its pages

struct Case {
  const char* name;
  const char* source;
};

constexpr Case kCases[] = {
    {"block mean", R"(
local flow = sluice.flow { name = "block_mean", page = 16, kv = "bf16" }
function flow.cache(c) c.centre = c.k:mean("token") end
function flow.index(q, c) return sluice.topk(q:dot(c.centre, "dim"):mean("head"), { k = 29, first = 1, last = 2 }) end
return flow)"},
    {"quest", R"(
local flow = sluice.flow { name = "quest", page = 16, kv = "bf16" }
function flow.cache(c) c.hi = c.k:max("token"); c.lo = c.k:min("token") end
function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(s, { k = 29, first = 1, last = 2 })
end
return flow)"},
};

/// Pages of random bf16 keys whose fields are filled in; the keys of a page follow from its number.
class Pages {
 public:
  Pages(const cpu::Flow& flow, cpu::ThreadPool& threads)
      : layout_(flow.plan().layout), count_(static_cast<int>(kPoolBytes / layout_.bytes)), memory_(count_ * layout_.bytes) {
    std::vector<std::unique_ptr<cpu::FlowScratch>> scratch;
    for (int t = 0; t < threads.threads(); ++t) scratch.push_back(flow.create_scratch(1));
    threads.run(count_, [&](int64_t page, int thread) {
      const std::vector<float> numbers = keys(static_cast<int>(page));
      store(numbers, memory_.at(page * layout_.bytes + layout_.key_offset));
      store(numbers, memory_.at(page * layout_.bytes + layout_.value_offset));
      flow.refresh_page(memory_.at(page * layout_.bytes), memory_.at(page * layout_.bytes), layout_.page, *scratch[thread]);
    });
  }

  int count() const { return count_; }
  const std::byte* base() const { return memory_.at(0); }
  size_t stride() const { return layout_.bytes; }
  /// Multiples of 1/64 in [-1, 1), exact in every KV type: [page, dim].
  std::vector<float> keys(int page) const {
    std::vector<float> numbers(static_cast<size_t>(layout_.page) * layout_.head_dim);
    uint64_t state = static_cast<uint64_t>(page) * 0x9e3779b97f4a7c15ULL + 1;
    for (float& number : numbers) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      number = static_cast<float>(static_cast<int>(state >> 57) - 64) / 64;
    }
    return numbers;
  }

 private:
  void store(const std::vector<float>& numbers, std::byte* target) const {
    if (layout_.kv == DataType::kF32) {
      std::memcpy(target, numbers.data(), numbers.size() * sizeof(float));
      return;
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(numbers[i]) >> 16);
      std::memcpy(target + i * sizeof bits, &bits, sizeof bits);
    }
  }

  PageLayout layout_;
  int count_;
  cpu::MappedMemory memory_;
};

/// The kRows rows of one call, over pages of their own.
class Rows {
 public:
  Rows(const cpu::Flow& flow, const Pages& pages, int row_pages, int threads)
      : flow_(flow), pages_(pages), row_pages_(row_pages) {
    std::mt19937 random(3);
    order_.resize(pages.count());
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random);
    for (int i = 0; i < kRows * kGroup * kDim; ++i)
      query_.push_back(static_cast<float>(static_cast<int>(random() % 129) - 64) / 64);
    for (int t = 0; t < threads; ++t) scratch_.push_back(flow.create_scratch(row_pages));
    for (int r = 0; r < kRows; ++r) {
      states_.push_back(flow.create_state(row_pages));
      selected_.emplace_back(row_pages);
    }
    counts_.resize(kRows);
  }

  cpu::FlowRow row(int64_t call, int r) const {
    const int64_t lists = static_cast<int64_t>(order_.size()) / row_pages_;
    cpu::FlowRow row;
    row.query = query_.data() + static_cast<size_t>(r) * kGroup * kDim;
    row.tokens = {pages_.base(),
                  pages_.stride(),
                  {order_.data() + (call * kRows + r) % lists * row_pages_, static_cast<size_t>(row_pages_)}};
    row.fields = row.tokens;
    row.last_tokens = flow_.plan().layout.page;
    row.step = int64_t{row_pages_} * row.last_tokens;
    row.state = states_[r].get();
    return row;
  }
  void run(int64_t call, cpu::ThreadPool& threads) {
    threads.run(kRows, [&](int64_t r, int thread) {
      counts_[r] = flow_.select(row(call, static_cast<int>(r)), *scratch_[thread], selected_[r].data());
    });
  }
  /// Scores and selection of row `r` are what float64 makes of `graph`, as traced; a flow that keeps states has seen steps that
  /// the reference has not, and is judged by its own scores.
  bool is_correct(int64_t call, int r, const FlowGraph& graph) {
    cpu::FlowRow one = row(call, r);
    const FlowGraph& compiled = flow_.plan().graph;
    std::vector<float> scores(scored_selections(compiled).size() * row_pages_, NAN);
    one.scores = scores.empty() ? nullptr : scores.data();
    one.score_stride = row_pages_;
    std::vector<int32_t> selected(row_pages_);
    selected.resize(flow_.select(one, *scratch_[0], selected.data()));
    const oracle::Observed seen{scores, static_cast<size_t>(row_pages_), selected};
    if (!graph.states.empty()) return oracle::fault_of_selection(compiled, seen, row_pages_ * graph.geometry.page).empty();
    std::vector<float> numbers;
    for (const int32_t page : one.tokens.pages) {
      const std::vector<float> keys = pages_.keys(page);
      numbers.insert(numbers.end(), keys.begin(), keys.end());
    }
    oracle::States none;
    const oracle::Row exact{.query = {one.query, static_cast<size_t>(kGroup) * kDim},
                            .keys = numbers,
                            .values = numbers,
                            .tokens = static_cast<int>(one.step)};
    return oracle::fault_of(graph, compiled, seen, oracle::run(graph, exact, none)).empty();
  }

 private:
  const cpu::Flow& flow_;
  const Pages& pages_;
  int row_pages_;
  std::vector<int32_t> order_;
  std::vector<float> query_;
  std::vector<std::unique_ptr<cpu::FlowScratch>> scratch_;
  std::vector<std::unique_ptr<RequestState>> states_;
  std::vector<std::vector<int32_t>> selected_;
  std::vector<int> counts_;
};

size_t field_bytes(const FlowGraph& graph) {
  size_t bytes = 0;
  for (const Field& field : graph.fields) bytes += static_cast<size_t>(elements_per_page(field.shape)) * size_of(field.type);
  return bytes;
}

void measure(const std::string& name, const FlowGraph& graph, const BenchOptions& options, BenchReport& report) {
  const Plan plan = compile(graph).plan;
  const auto flow = cpu::compile_flow(plan, 1, 1);
  cpu::ThreadPool threads(options.threads);
  const Pages pages(*flow, threads);
  for (const int row_pages : {512, 2048, 8192}) {
    Rows rows(*flow, pages, row_pages, threads.threads());
    BenchRow row;
    row.name = name;
    row.shape = fmt::format("rows {}, pages {}, group {}, dim {}, {}, threads {}", kRows, row_pages, kGroup, kDim,
                            name_of(plan.graph.geometry.kv), threads.threads());
    row.time_us = time_call(options.seconds, [&](int64_t call) { rows.run(call, threads); });
    row.bytes = static_cast<double>(field_bytes(plan.graph)) * kRows * row_pages;
    row.limit_us = row.bytes / report.copy_tb_per_s / 1e6;
    row.correct = rows.is_correct(1, 0, graph) && rows.is_correct(2, kRows - 1, graph);
    row.note = fmt::format("{:.1f} us a row and thread", row.time_us * threads.threads() / kRows);
    report.rows.push_back(std::move(row));
  }
}

}  // namespace

void require_index_stage(const FlowGraph& graph) {
  if (!graph.variants.empty())
    throw InputError(fmt::format("{}: several programs, for different layers", graph.name), "give a flow of one of them");
  if (graph.eviction) {
    throw InputError(fmt::format("{} evicts tokens by what its steps attended to, and bench index has none", graph.name),
                     "use bench serve");
  }
  if (graph.selection() == kNoNode) throw InputError(fmt::format("{} selects no pages: there is no index stage", graph.name));
  if (graph.selects_tokens())
    throw InputError(fmt::format("{} selects tokens, and bench index times selections of pages", graph.name), "use bench layer");
}

BenchReport run_index_bench(const BenchOptions& options) {
#if SLUICE_CUDA
  if (options.device == "cuda") return run_cuda_index_bench(options);
#endif
  if (options.device != "cpu") require_device(options.device);
  const TraceOptions geometry{.head_dim = kDim, .group = kGroup};
  std::optional<FlowGraph> own;
  if (!options.flow.empty()) {
    own = read_flow(options.flow).trace(geometry);
    require_index_stage(*own);
    own->layers = LayerChoice{};
    require_device_takes(compile(*own).plan, options.device);
  }
  BenchReport report{.name = "index", .copy_tb_per_s = measure_copy_bandwidth(options.threads)};
  if (own) {
    measure(own->name, *own, options, report);
    return report;
  }
  for (const Case& one : kCases) measure(one.name, trace(one.source, one.name, geometry), options, report);
  return report;
}

}  // namespace sluice
