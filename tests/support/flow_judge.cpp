#include "tests/support/flow_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "kernels/cpu/flow.h"
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

/// False if chance has a say in what is selected.
bool is_exact(const FlowGraph& graph) {
  return std::none_of(graph.nodes.begin(), graph.nodes.end(),
                      [](const Node& node) { return node.op == Op::kApproxTopK && node.attributes.tolerate > 0; });
}

/// True if float32 may put `a` on the other side of `b`.
bool is_doubtful(const oracle::Bounded& a, const oracle::Bounded& b) {
  return oracle::is_unknown(a) || oracle::is_unknown(b) ||
         (a.error + b.error > 0 && std::fabs(a.value - b.value) <= a.error + b.error);
}

/// The selection that the device's own scores call for; only for flows whose result is one topk.
std::string compare_with_own_scores(const FlowGraph& graph, const std::vector<float>& scores,
                                    const std::vector<int32_t>& selected) {
  if (graph.selection == kNoNode) return {};
  const Node& selection = graph.nodes[static_cast<size_t>(graph.selection)];
  if (selection.op != Op::kTopK) return {};
  const std::vector<double> own(scores.begin(), scores.end());
  return oracle::top_k(own, selection.attributes) == selected ? "" : "the selection is not the best of the device's own scores";
}

}  // namespace

std::string compare_number(float score, const oracle::Bounded& expected) {
  if (oracle::is_unknown(expected)) return {};
  const double value = expected.value;
  const bool same = std::isnan(value)   ? std::isnan(score)
                    : std::isinf(value) ? static_cast<double>(score) == value
                                        : std::fabs(score - value) <= expected.error;
  if (same) return {};
  return fmt::format("{} is not {} +- {}", score, value, expected.error);
}

std::string compare_selection(const std::vector<int32_t>& selected, const oracle::Result& expected) {
  if (selected == expected.selected) return {};
  std::vector<int32_t> extra;
  std::vector<int32_t> missing;
  std::set_difference(selected.begin(), selected.end(), expected.selected.begin(), expected.selected.end(),
                      std::back_inserter(extra));
  std::set_difference(expected.selected.begin(), expected.selected.end(), selected.begin(), selected.end(),
                      std::back_inserter(missing));
  if (expected.bound) {
    const auto sure = [&](int32_t page) { return !is_doubtful(expected.scores[page], *expected.bound); };
    std::erase_if(extra, [&](int32_t page) { return !sure(page); });
    std::erase_if(missing, [&](int32_t page) { return !sure(page); });
  } else if (extra.size() != missing.size()) {
    return fmt::format("{} pages selected, not {}", selected.size(), expected.selected.size());
  }
  if (expected.scores.empty()) return "pages are selected that need no score";
  for (const int32_t out : missing) {
    for (const int32_t in : extra) {
      const oracle::Bounded& better = expected.scores[out];
      const oracle::Bounded& worse = expected.scores[in];
      if (!is_doubtful(better, worse)) {
        return fmt::format("page {} ({}) is selected, page {} ({}) is not", in, worse.value, out, better.value);
      }
    }
  }
  if (extra.size() != missing.size())
    return fmt::format("{} pages are selected without a reason, {} are left out", extra.size(), missing.size());
  return {};
}

namespace {

class CpuJudgedFlow final : public JudgedFlow {
 public:
  CpuJudgedFlow(const Plan& plan, int max_pages, uint64_t seed)
      : flow_(cpu::compile_flow(plan, 3, 2)),
        scratch_(flow_->create_scratch(max_pages)),
        state_(flow_->create_state(max_pages)),
        cache_(plan.layout, max_pages, seed),
        seed_(seed) {}

  void append(std::span<const float> keys, std::span<const float> values) override {
    cache_.append(*flow_, *scratch_, keys, values);
  }

  std::vector<int32_t> select(std::span<const float> query, std::span<float> scores) override {
    cpu::FlowRow row = cache_.row(query.data());
    row.seed = seed_;
    row.layer = 1;
    row.kv_head = 1;
    row.state = state_.get();
    row.scores = scores.data();
    std::vector<int32_t> selected(row.pages.size());
    selected.resize(flow_->select(row, *scratch_, selected.data()));
    return selected;
  }

 private:
  std::unique_ptr<cpu::Flow> flow_;
  std::unique_ptr<cpu::FlowScratch> scratch_;
  std::unique_ptr<RequestState> state_;
  HeadCache cache_;
  uint64_t seed_;
};

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
  const auto flow = make(plan, max_pages, options.seed);
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

    std::vector<float> scores(oracle::pages_of(graph, tokens), NAN);
    const std::vector<int32_t> selected = flow->select(query, scores);

    const oracle::Row expected_row{query, keys, values, tokens, options.seed, 1, 1};
    const oracle::Result expected = oracle::run(graph, expected_row, states);
    for (size_t page = 0; page < expected.scores.size(); ++page) {
      ++verdict.scores;
      verdict.known += oracle::is_unknown(expected.scores[page]) ? 0 : 1;
      const std::string fault = compare_number(scores[page], expected.scores[page]);
      if (!fault.empty()) {
        verdict.fault = fmt::format("{} tokens, score of page {}: {}", tokens, page, fault);
        return verdict;
      }
    }
    std::string fault = compare_with_own_scores(graph, scores, selected);
    if (fault.empty() && is_exact(graph)) fault = compare_selection(selected, expected);
    if (!fault.empty()) {
      verdict.fault = fmt::format("{} tokens: {}", tokens, fault);
      return verdict;
    }
  }
  return verdict;
}

}  // namespace sluice::testing
