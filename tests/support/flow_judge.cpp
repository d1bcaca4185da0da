#include "tests/support/flow_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "kernels/cpu/flow/flow.h"
#include "kernels/reference/judge.h"
#include "scripting/base/bits.h"
#include "scripting/base/error.h"
#include "scripting/graph/selections.h"
#include "tests/support/head_cache.h"

namespace sluice::testing {

namespace {

std::vector<float> test_numbers(size_t count, const JudgeOptions& options, std::mt19937_64& random) {
  std::vector<float> numbers = random_numbers(count, random);
  if (options.levels > 0) {
    std::uniform_int_distribution<int> level(0, options.levels - 1);
    for (float& number : numbers) number = static_cast<float>(level(random)) * 0.5F;
  }
  if (options.specials) {
    const float specials[] = {INFINITY, -INFINITY, NAN};
    for (float& number : numbers) {
      if (random() % 97 == 0) number = specials[random() % 3];
    }
  }
  return numbers;
}

class CpuJudgedFlow final : public JudgedFlow {
 public:
  CpuJudgedFlow(const Plan& plan, int max_pages, uint64_t seed)
      : flow_(cpu::compile_flow(plan, 3, 2)),
        scratch_(flow_->create_scratch(max_pages)),
        state_(flow_->create_state(max_pages)),
        cache_(plan, max_pages, seed),
        seed_(seed) {}

  void append(std::span<const float> keys, std::span<const float> values) override {
    cache_.append(*flow_, *scratch_, keys, values);
  }

  std::vector<int32_t> select(std::span<const float> query, std::span<float> scores) override {
    query_.assign(query.begin(), query.end());
    cpu::FlowRow row = row_of_step();
    row.scores = scores.empty() ? nullptr : scores.data();
    row.score_stride = int64_t{row.pages()} * scores_a_page(flow_->plan().graph);
    std::vector<int32_t> selected(static_cast<size_t>(row.pages()));
    selected.resize(flow_->select(row, *scratch_, selected.data()));
    const FlowGraph& graph = flow_->plan().graph;
    if (graph.selection() == kNoNode || !is_of_tokens(graph, graph.selection())) return selected;
    std::vector<int32_t> tokens;
    const std::span<const uint32_t> words = flow_->selected_tokens(*scratch_);
    const int page = graph.geometry.page;
    const int all = (row.pages() - 1) * page + row.last_tokens;
    for (size_t i = 0; i < selected.size(); ++i) {
      for (int token = 0; token < page && selected[i] * page + token < all; ++token) {
        if (has_bit(words, static_cast<int64_t>(i) * page + token)) tokens.push_back(selected[i] * page + token);
      }
    }
    return tokens;
  }

  void end_step(std::span<float> masses) override {
    if (!flow_->plan().after.empty()) flow_->run_after(row_of_step(), cpu::Ending::kStep, masses.data(), *scratch_);
  }

 private:
  cpu::FlowRow row_of_step() const {
    cpu::FlowRow row = cache_.row(query_.data());
    row.seed = seed_;
    row.layer = 1;
    row.kv_head = 1;
    row.state = state_.get();
    return row;
  }

  std::unique_ptr<cpu::Flow> flow_;
  std::unique_ptr<cpu::FlowScratch> scratch_;
  std::unique_ptr<RequestState> state_;
  HeadCache cache_;
  uint64_t seed_;
  std::vector<float> query_;
};

/// The same flow twice: fields with K and V, and fields in pages of their own. Throws unless both give the same bits.
class TwiceJudgedFlow final : public JudgedFlow {
 public:
  TwiceJudgedFlow(std::unique_ptr<JudgedFlow> one, std::unique_ptr<JudgedFlow> other)
      : one_(std::move(one)), other_(std::move(other)) {}

  void append(std::span<const float> keys, std::span<const float> values) override {
    one_->append(keys, values);
    other_->append(keys, values);
  }

  std::vector<int32_t> select(std::span<const float> query, std::span<float> scores) override {
    std::vector<float> others(scores.begin(), scores.end());
    const std::vector<int32_t> selected = one_->select(query, scores);
    if (other_->select(query, others) != selected || std::memcmp(others.data(), scores.data(), scores.size_bytes()) != 0) {
      throw InternalError("a flow with its fields in pages of their own gives other results");
    }
    return selected;
  }

  void end_step(std::span<float> masses) override {
    one_->end_step(masses);
    other_->end_step(masses);
  }

 private:
  std::unique_ptr<JudgedFlow> one_;
  std::unique_ptr<JudgedFlow> other_;
};

/// On the device with the masses that the reference has, which knows them up to an error.
void end_step(const FlowGraph& graph, const oracle::Row& row, const oracle::Result& result, JudgedFlow& flow,
              oracle::States& states) {
  if (!graph.saves_in(Stage::kAfter)) return;
  const double scale = 1 / std::sqrt(static_cast<double>(graph.geometry.head_dim));
  std::vector<float> masses;
  for (const oracle::Bounded& mass : oracle::masses(graph, row, result, scale).values)
    masses.push_back(static_cast<float>(mass.value));
  flow.end_step(masses);
  oracle::end_step(graph, row, result, scale, states);
}

}  // namespace

std::unique_ptr<JudgedFlow> judged_on_cpu(const Plan& plan, int max_pages, uint64_t seed) {
  return std::make_unique<CpuJudgedFlow>(plan, max_pages, seed);
}

Verdict judge(const FlowGraph& graph, const JudgeOptions& options, const MakeJudgedFlow& make) {
  Verdict verdict;
  const Plan plan = compile(graph).plan;
  const Geometry& geometry = graph.geometry;
  const int total = options.tokens + options.steps - 1;
  const int max_pages = oracle::pages_of(graph, total);
  std::unique_ptr<JudgedFlow> flow = make(plan, max_pages, options.seed);
  if (!graph.fields.empty()) {
    flow = std::make_unique<TwiceJudgedFlow>(std::move(flow), make(with_field_pages(plan), max_pages, options.seed));
  }
  std::mt19937_64 random(options.seed);
  const std::vector<float> keys = test_numbers(static_cast<size_t>(total) * geometry.head_dim, options, random);
  const std::vector<float> values = test_numbers(keys.size(), options, random);
  oracle::States states;
  int appended = 0;
  for (int step = 0; step < options.steps; ++step) {
    const int tokens = options.tokens + step;
    const size_t first = static_cast<size_t>(appended) * geometry.head_dim;
    const size_t count = static_cast<size_t>(tokens) * geometry.head_dim - first;
    flow->append({keys.data() + first, count}, {values.data() + first, count});
    appended = tokens;
    const std::vector<float> query =
        test_numbers(static_cast<size_t>(geometry.group) * geometry.head_dim, {.levels = options.levels}, random);

    const auto numbers = static_cast<size_t>(oracle::pages_of(graph, tokens)) * static_cast<size_t>(scores_a_page(plan.graph));
    std::vector<float> scores(scored_selections(plan.graph).size() * numbers, NAN);
    const std::vector<int32_t> selected = flow->select(query, scores);

    const oracle::Row row{query, keys, values, tokens, options.seed, 1, 1};
    const oracle::Result expected = oracle::run(graph, row, states);
    for (const oracle::Scores& of : expected.scores) {
      verdict.scores += static_cast<int>(of.values.size());
      verdict.known += static_cast<int>(
          std::count_if(of.values.begin(), of.values.end(), [](const auto& score) { return !oracle::is_unknown(score); }));
    }
    const std::string fault = oracle::fault_of(graph, plan.graph, {scores, numbers, selected}, expected);
    if (!fault.empty()) {
      verdict.fault = fmt::format("{} tokens: {}", tokens, fault);
      return verdict;
    }
    end_step(graph, row, oracle::with_selected(graph, expected, selected), *flow, states);
  }
  return verdict;
}

}  // namespace sluice::testing
