// What the reference says that attention gives tokens, against sums written out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include "kernels/reference/oracle.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

constexpr int kTokens = 167;  // of pages of 16, the last of which has 7
constexpr int kPage = 16;
constexpr int kPages = 11;
constexpr size_t kDim = 64;
constexpr size_t kGroup = 4;
const double kScale = 1 / std::sqrt(double(kDim));

struct Numbers {
  std::vector<float> queries, keys, values;  // [tokens, ...]

  explicit Numbers(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto [numbers, count] :
         {std::pair(&queries, kTokens * kGroup * kDim), {&keys, kTokens * kDim}, {&values, kTokens * kDim}}) {
      for (size_t i = 0; i < count; ++i) numbers->push_back(normal(random));
    }
  }
  oracle::Row row() const { return {std::span(queries).last(kGroup * kDim), keys, values, kTokens}; }
  double logit(size_t row, size_t head, size_t token) const {
    double product = 0;
    for (size_t d = 0; d < kDim; ++d) product += double(queries[(row * kGroup + head) * kDim + d]) * keys[token * kDim + d];
    return product * kScale;
  }
  /// Of the mean of a page's keys, for the last row.
  double summary_logit(size_t head, int page) const {
    const int end = std::min(kTokens, (page + 1) * kPage);
    double sum = 0;
    for (int token = page * kPage; token < end; ++token) sum += logit(kTokens - 1, head, size_t(token));
    return sum / (end - page * kPage);
  }
};

FlowGraph flow(const std::string& selection, const std::string& options = "") {
  return trace("local p = sluice.pattern local flow = sluice.flow{name = 'x', kv = 'f32'" + options + R"(}
    function flow.cache(c) c.a = c.k:mean('token') c.b = c.v:mean('token') end
    function flow.index(q, c)
      local s = q:dot(c.a):max('head') + 0 * sluice.load('m', {axes = {'page'}})
      return )" + selection +
                   R"(
    end
    function flow.after(q, c, mass) sluice.save('m', mass:sum('token', 'head')) end
    return flow)",
               "x.lua");
}

double mass_of(const oracle::Tensor& masses, size_t head, size_t token) { return masses.values[token * kGroup + head].value; }

TEST(MassReference, TokensThatAreAttendedToHaveTheirWeights) {
  const Numbers numbers(1);
  for (const auto& [selection, beside] : {std::pair{"sluice.window{first = 99}", 0},
                                          {"sluice.topk(s, {k = 3})", 0},
                                          {"sluice.topk(s, {k = 2, last = 1})", 0},
                                          {"sluice.union(sluice.topk(s, {k = 2}), sluice.window{first = 1, last = 2})", 0},
                                          {"sluice.union(sluice.topk(s, {k = 2}), p.window(21))", 21}}) {
    SCOPED_TRACE(selection);
    const FlowGraph graph = flow(selection);
    oracle::States states;
    const oracle::Result result = oracle::run(graph, numbers.row(), states);
    const oracle::Tensor masses = oracle::masses(graph, numbers.row(), result, kScale);
    ASSERT_EQ(masses.values.size(), kPages * kPage * kGroup);
    const std::set<int32_t> pages(result.selected.begin(), result.selected.end());
    for (size_t head = 0; head < kGroup; ++head) {
      const auto is_attended = [&](int token) { return pages.count(token / kPage) > 0 || kTokens - 1 - token < beside; };
      double total = 0;
      for (int token = 0; token < kTokens; ++token) {
        if (is_attended(token)) total += std::exp(numbers.logit(kTokens - 1, head, size_t(token)));
      }
      double sum = 0;
      for (int token = 0; token < kPages * kPage; ++token) {
        const bool counts = token < kTokens && is_attended(token);
        const double wanted = counts ? std::exp(numbers.logit(kTokens - 1, head, size_t(token))) / total : 0;
        EXPECT_NEAR(mass_of(masses, head, size_t(token)), wanted, 1e-12);
        sum += mass_of(masses, head, size_t(token));
      }
      EXPECT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST(MassReference, UnderACoverOpenedTokensHaveWhatTheyWeighInTheOutput) {
  const Numbers numbers(2);
  constexpr int kTail = 2 + 1;  // pages of a tail of 20
  for (const bool preserves : {true, false}) {
    const FlowGraph graph =
        flow(std::string("sluice.cover{k = c.a, v = c.b, refine = sluice.topk(s, {k = 3}), tail = 20, mass = '") +
                 (preserves ? "preserve" : "renormalise") + "'}",
             ", fields = {a = 'f32'}");
    oracle::States states;
    const oracle::Result result = oracle::run(graph, numbers.row(), states);
    const oracle::Tensor masses = oracle::masses(graph, numbers.row(), result, kScale);
    const std::set<int32_t> opened(result.selected.begin(), result.selected.end());  // with the tail
    for (size_t head = 0; head < kGroup; ++head) {
      std::vector<double> of_page(kPages);  // the sum of its tokens' powers
      for (int token = 0; token < kTokens; ++token)
        of_page[size_t(token / kPage)] += std::exp(numbers.logit(kTokens - 1, head, size_t(token)));
      std::vector<double> weight(kPages);
      double total = 0;
      for (int page = 0; page < kPages; ++page) {
        const bool is_summed = page < kPages - kTail && (preserves || opened.count(page) == 0);
        weight[size_t(page)] = is_summed ? kPage * std::exp(numbers.summary_logit(head, page)) : of_page[size_t(page)];
        total += weight[size_t(page)];
      }
      for (int token = 0; token < kTokens; ++token) {
        const auto page = size_t(token / kPage);
        const double share = std::exp(numbers.logit(kTokens - 1, head, size_t(token))) / of_page[page];
        const double wanted = opened.count(int32_t(page)) > 0 ? weight[page] / total * share : 0;
        EXPECT_NEAR(mass_of(masses, head, size_t(token)), wanted, 1e-6) << token;
      }
    }
  }
}

TEST(MassReference, OfAPromptSumsOverTheRowsThatCount) {
  const Numbers numbers(3);
  for (const int rows : {kToEnd, 30, 1}) {
    FlowGraph graph = flow("sluice.topk(s, {k = 3})");
    graph.mass_rows = rows;
    for (const bool windowed : {false, true}) {
      const Pattern window = Pattern::window(25);
      const oracle::Prompt prompt{
          .queries = numbers.queries, .keys = numbers.keys, .values = numbers.values, .pattern = windowed ? &window : nullptr};
      const oracle::Tensor masses = oracle::masses(graph, prompt, kScale);
      std::vector<double> wanted(kTokens * kGroup);
      for (size_t row = kTokens - std::min<size_t>(kTokens, size_t(rows)); row < kTokens; ++row) {
        for (size_t head = 0; head < kGroup; ++head) {
          const size_t first = windowed && row >= 25 ? row - 24 : 0;
          double total = 0;
          for (size_t token = first; token <= row; ++token) total += std::exp(numbers.logit(row, head, token));
          for (size_t token = first; token <= row; ++token)
            wanted[token * kGroup + head] += std::exp(numbers.logit(row, head, token)) / total;
        }
      }
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(masses.values[i].value, wanted[i], 1e-10);
    }
  }
}

// What a step saves in either stage both load in the next step, and not before.
TEST(MassReference, BothStagesLoadWhatTheLastStepLeft) {
  const FlowGraph graph = trace(R"(
    local flow = sluice.flow{name = "x", page = 16, kv = "f32"}
    function flow.cache(c) c.index = sluice.cfill(1) c.after = sluice.cfill(10) c.seen = sluice.cfill(0) end
    function flow.index(q, c)
      c.index:save(c.index + 1)
      return sluice.topk(c.index + c.after + c.seen, {k = 99})
    end
    function flow.after(q, c, mass)
      c.after:save(c.after + c.index * 10)
      c.seen:save(c.index + 100 * c.after)
    end
    return flow)",
                                "x.lua");
  const Numbers numbers(4);
  oracle::States states;
  const double index[] = {2, 3, 4};
  const double after[] = {20, 40, 70};
  const double seen[] = {1001, 2002, 4003};
  for (int step = 0; step < 3; ++step) {
    const oracle::Result result = oracle::run(graph, numbers.row(), states);
    oracle::end_step(graph, numbers.row(), result, kScale, states);
    EXPECT_EQ(states["index"].values[3].value, index[step]);
    EXPECT_EQ(states["after"].values[3].value, after[step]);
    EXPECT_EQ(states["seen"].values[3].value, seen[step]);
  }
}

}  // namespace
}  // namespace sluice
