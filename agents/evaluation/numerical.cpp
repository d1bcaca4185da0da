#include "agents/evaluation/numerical.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "agents/evaluation/single_head.h"
#include "kernels/reference/oracle.h"

namespace sluice {
namespace {

using oracle::Bounded;

enum class Numbers : uint8_t {
  kNormal,
  kFew,       // two different ones: ties
  kEqual,     // one, not zero: what a query makes of it is the same for every page
  kSpecials,  // normal ones, and among them infinities and NaN
};

/// Keys and values of one case.
struct Case {
  const char* name;
  int pages;        // full ones before the first step
  int more_tokens;  // in a page of their own
  Numbers keys;
  bool many = false;  // as many pages more as it takes for the flow to leave out some
};

constexpr int kSteps = 3;
constexpr int kMostTokens = 1 << 15;  // that a case is given beyond its own pages; more would take seconds
constexpr Case kCases[] = {
    {"random keys", 70, 3, Numbers::kNormal, true}, {"a ragged last page of one token", 33, 0, Numbers::kNormal},
    {"one token", 0, 0, Numbers::kNormal},          {"ties", 70, 1, Numbers::kFew, true},
    {"all keys equal", 40, 5, Numbers::kEqual},     {"infinities and NaN", 50, 2, Numbers::kSpecials},
};

/// Numbers that bfloat16 holds exactly, as queries are on some devices. K and V are compared as their type holds them.
float exact_in_bf16(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000U); }

std::vector<float> numbers(size_t count, Numbers wanted, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  const float specials[] = {INFINITY, -INFINITY, NAN};
  std::vector<float> result(count, 0.5F);
  if (wanted == Numbers::kEqual) return result;
  for (float& number : result) {
    number = wanted == Numbers::kFew ? static_cast<float>(random() % 2) * 0.5F : exact_in_bf16(normal(random));
    if (wanted == Numbers::kSpecials && random() % 97 == 0) number = specials[random() % 3];
  }
  return result;
}

/// Pages that a case needs for the largest budget of the graph to leave out about half of them.
int pages_beyond_budget(const FlowGraph& graph) {
  int64_t budget = 0;
  for (const Node& node : graph.nodes) {
    const Attributes& attributes = node.attributes;
    const bool selects =
        node.op == Op::kTopK || node.op == Op::kApproxTopK || node.op == Op::kThreshold || node.op == Op::kWindow;
    if (selects)
      budget = std::max<int64_t>({budget, int64_t{attributes.k} + attributes.first + attributes.last, attributes.max_pages});
  }
  return static_cast<int>(std::min<int64_t>(kMostTokens / graph.geometry.page, 2 * budget + 3));
}

std::vector<float> slice(const std::vector<float>& values, int first, int count, int dim) {
  const auto begin = values.begin() + static_cast<ptrdiff_t>(first) * dim;
  return {begin, begin + static_cast<ptrdiff_t>(count) * dim};
}

/// True if float32 may order the two either way.
bool is_doubtful(const Bounded& a, const Bounded& b) {
  if (oracle::is_unknown(a) || oracle::is_unknown(b)) return true;
  return a.error + b.error > 0 && std::fabs(a.value - b.value) <= a.error + b.error;
}

std::string compare_scores(const std::vector<float>& scores, const oracle::Result& expected) {
  for (size_t page = 0; page < expected.scores.size(); ++page) {
    const auto& [value, error] = expected.scores[page];
    if (error == oracle::kUnknown) continue;
    const double score = scores.at(page);
    const bool same = std::isnan(value)   ? std::isnan(score)
                      : std::isinf(value) ? score == value
                                          : std::fabs(score - value) <= error;
    if (!same) return fmt::format("the score of page {} is {}, not {}", page, score, value);
  }
  return {};
}

/// kApproxTopK: as many pages as the budget, and of the best (pages of equal scores stand for each other) all but the share that
/// it tolerates.
std::string compare_approximate(const std::vector<int32_t>& selected, const std::vector<double>& scores,
                                const Attributes& attributes) {
  const std::vector<int32_t> best = oracle::top_k(scores, attributes);
  if (selected.size() != best.size()) return fmt::format("{} pages are selected, not {}", selected.size(), best.size());
  std::map<double, int> wanted;  // pages by score; NaN, which has no place in the order, as what lies below all numbers
  const auto key = [&](int32_t page) { return std::isnan(scores[page]) ? -INFINITY : scores[page]; };
  for (const int32_t page : best) ++wanted[key(page)];
  int found = 0;
  for (const int32_t page : selected) found += wanted[key(page)]-- > 0 ? 1 : 0;
  const double least = (1 - attributes.tolerate) * static_cast<double>(best.size()) - 1e-9;
  if (found >= least) return {};
  return fmt::format("{} of the {} best pages are selected, where {:.0f}% may be missed", found, best.size(),
                     100 * attributes.tolerate);
}

/// Chance has a say in what an approximate selection takes.
bool is_approximate(const FlowGraph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return node.op == Op::kApproxTopK && node.attributes.tolerate > 0; });
}

std::string compare_selections(const FlowGraph& graph, const HeadStep& step, const oracle::Result& expected) {
  const std::vector<int32_t>& selected = step.selected;
  const bool sound = std::is_sorted(selected.begin(), selected.end(), std::less_equal<>()) && !selected.empty() &&
                     selected.front() >= 0 && selected.back() < static_cast<int32_t>(step.scores.size());
  if (!sound) return "the selected pages are not a list of different pages in ascending order";
  const Node& selection = graph.nodes[graph.selection];
  const std::vector<double> own(step.scores.begin(), step.scores.end());
  if (selection.op == Op::kApproxTopK) return compare_approximate(selected, own, selection.attributes);
  if (selection.op == Op::kTopK && !expected.scores.empty()) {
    if (oracle::top_k(own, selection.attributes) != selected) return "the selected pages are not those of the best scores";
  }
  if (is_approximate(graph) || selected == expected.selected) return {};
  std::vector<int32_t> extra;
  std::vector<int32_t> missing;
  std::set_difference(selected.begin(), selected.end(), expected.selected.begin(), expected.selected.end(),
                      std::back_inserter(extra));
  std::set_difference(expected.selected.begin(), expected.selected.end(), selected.begin(), selected.end(),
                      std::back_inserter(missing));
  if (expected.scores.empty()) return "pages are selected that the flow does not ask for";
  if (expected.bound) {  // a page may be on either side of a bound that it is too near to
    const auto near_bound = [&](int32_t page) { return is_doubtful(expected.scores[page], *expected.bound); };
    std::erase_if(extra, near_bound);
    std::erase_if(missing, near_bound);
  }
  if (extra.size() != missing.size())
    return fmt::format("{} pages are selected, not {}", selected.size(), expected.selected.size());
  for (const int32_t out : missing) {
    for (const int32_t in : extra) {
      if (!is_doubtful(expected.scores[out], expected.scores[in])) {
        return fmt::format("page {} is selected, and page {} with the higher score is not", in, out);
      }
    }
  }
  return {};
}

/// Share of the largest output by which others may differ. Devices may round the weights of the softmax to bfloat16, and some
/// their outputs.
double output_tolerance(const DeviceInfo& device) { return device.activation == DataType::kBF16 ? 2e-2 : 1e-3; }

std::string compare_outputs(const std::vector<float>& output, const std::vector<double>& expected, double tolerance) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    // Written so that NaN fails.
    if (!(std::fabs(output[i] - expected[i]) <= tolerance * largest)) {
      return fmt::format("output {} is {}, not {}", i, output[i], expected[i]);
    }
  }
  return {};
}

std::string run_case(Device& device, const FlowGraph& traced, const Plan& plan, const Case& wanted, uint64_t seed) {
  const Geometry& geometry = plan.graph.geometry;
  const int dim = geometry.head_dim;
  const int pages = wanted.many ? std::max(wanted.pages, pages_beyond_budget(traced)) : wanted.pages;
  const int before = pages * plan.layout.page + wanted.more_tokens;
  const int total = before + kSteps;
  std::mt19937_64 random(seed);
  const std::vector<float> keys = numbers(static_cast<size_t>(total) * dim, wanted.keys, random);
  const std::vector<float> values = numbers(keys.size(), Numbers::kNormal, random);
  const std::vector<float> stored_keys = oracle::round_all_to(plan.layout.kv, keys);
  const std::vector<float> stored_values = oracle::round_all_to(plan.layout.kv, values);
  SingleHead head(device, plan, total, seed);
  if (before > 0) head.prefill(slice(keys, 0, before, dim), slice(values, 0, before, dim));
  oracle::States states;
  for (int at = before; at < total; ++at) {
    const Numbers kind = wanted.keys == Numbers::kFew ? Numbers::kFew : Numbers::kNormal;
    const std::vector<float> query = numbers(static_cast<size_t>(geometry.group) * dim, kind, random);
    const HeadStep step = head.decode(slice(keys, at, 1, dim), slice(values, at, 1, dim), query);
    std::string fault;
    if (traced.selection != kNoNode) {
      const oracle::Result expected = oracle::run(traced, {query, keys, values, at + 1, seed, 0, 0}, states);
      fault = compare_scores(step.scores, expected);
      if (fault.empty()) fault = compare_selections(traced, step, expected);
    }
    if (fault.empty() && wanted.keys != Numbers::kSpecials) {
      fault = compare_outputs(step.output,
                              oracle::attention(query, stored_keys, stored_values, at + 1, dim, plan.layout.page, step.selected,
                                                1 / std::sqrt(static_cast<double>(dim))),
                              output_tolerance(device.info()));
    }
    if (!fault.empty()) return fmt::format("{}, {} tokens: {}", wanted.name, at + 1, fault);
  }
  return {};
}

}  // namespace

std::optional<std::string> check_against_reference(Device& device, const FlowGraph& traced, const Plan& plan) {
  // What the flow does in the layers that it runs in; here is only one.
  FlowGraph graph = traced;
  Plan single = plan;
  if (graph.selection != kNoNode) graph.layers = single.graph.layers = LayerChoice{};
  uint64_t seed = 1;
  for (const Case& wanted : kCases) {
    std::string fault = run_case(device, graph, single, wanted, seed++);
    if (!fault.empty()) return fault;
  }
  return std::nullopt;
}

}  // namespace sluice
