#include "kernels/reference/judge.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <sstream>
#include <vector>

#include "kernels/reference/oracle_operators.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"

namespace sluice::oracle {

namespace {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  out << std::setprecision(9);
  (out << ... << parts);
  return out.str();
}

/// What all selections together may select: pages, or tokens.
struct Allowed {
  explicit Allowed(size_t count) : must(count, kNoNode), may(count, false) {}

  void require(const std::vector<int32_t>& pages, NodeId by) {
    for (const int32_t page : pages) {
      must[size_t(page)] = by;
      may[size_t(page)] = true;
    }
  }
  void allow(const std::vector<int32_t>& pages) {
    for (const int32_t page : pages) may[size_t(page)] = true;
  }

  std::vector<NodeId> must;  // a selection that asks for the page; kNoNode: none does
  std::vector<bool> may;
  size_t by_chance = 0;  // pages that approximate selections may take beside those
};

class Judgement {
 public:
  /// `expected`: null where scores are taken as they are.
  Judgement(const FlowGraph& traced, const FlowGraph& compiled, const Observed& seen, int tokens, const Result* expected)
      : traced_(traced),
        compiled_(compiled),
        seen_(seen),
        expected_(expected),
        scored_(scored_selections(compiled)),
        tokens_(tokens),
        pages_(size_t(pages_of(traced, tokens))),
        of_tokens_(traced.selection() != kNoNode && is_of_tokens(traced, traced.selection())) {
    if (expected_ == nullptr) return;
    std::map<NodeId, const Scores*> by_selection;
    for (const Scores& scores : expected_->scores) by_selection[scores.selection] = &scores;
    for (size_t i = 0; i < scored_.size(); ++i) {
      const auto found = by_selection.find(compiled_.nodes[size_t(scored_[i])].traced);
      const bool in_order = expected_->scores.size() == scored_.size();
      expected_of_.push_back(found != by_selection.end() ? found->second : in_order ? &expected_->scores[i] : nullptr);
    }
  }

  std::string run() const {
    std::string fault = fault_of_list();
    if (expected_ != nullptr) {
      for (size_t i = 0; i < scored_.size() && fault.empty(); ++i) fault = fault_of_scores(i);
      for (size_t i = 0; i < expected_->scores.size() && fault.empty(); ++i) fault = fault_of_merging(expected_->scores[i]);
    }
    return fault.empty() ? fault_of_pages() : fault;
  }

 private:
  std::string fault_of_list() const {
    const auto& selected = seen_.selected;
    const bool sound = !selected.empty() && selected.front() >= 0 && size_t(selected.back()) < selectable() &&
                       std::adjacent_find(selected.begin(), selected.end(), std::greater_equal<>()) == selected.end();
    return sound ? "" : text("the selected ", unit(), "s are not a list of different ones in ascending order");
  }

  /// Pages, or tokens.
  size_t selectable() const { return of_tokens_ ? size_t(tokens_) : pages_; }
  const char* unit() const { return of_tokens_ ? "token" : "page"; }
  /// What a selection takes, in what all of them together do.
  std::vector<int32_t> raised(NodeId selection, std::vector<int32_t> taken) const {
    const bool is_raised = of_tokens_ && traced_.nodes[size_t(selection)].op != Op::kTopKTokens;
    return is_raised ? tokens_of_pages(traced_, taken, tokens_) : std::move(taken);
  }

  std::span<const float> row(size_t i) const {
    const bool of_tokens = compiled_.nodes[size_t(scored_[i])].op == Op::kTopKTokens;
    return seen_.scores.subspan(i * seen_.score_stride, of_tokens ? size_t(tokens_) : pages_);
  }

  /// The i-th scored selection as the script has it, since passes may have spoiled what was compiled.
  NodeId asked(size_t i) const { return expected_ == nullptr ? scored_[i] : expected_of_[i]->selection; }

  static std::string name_of(const FlowGraph& graph, NodeId id) {
    const Node& node = graph.nodes[size_t(id)];
    return node.where.line > 0 ? text("the ", spoken_name_of(node.op), " of line ", node.where.line)
                               : text("%", id, " ", spoken_name_of(node.op));
  }

  std::string fault_of_scores(size_t i) const {
    const Scores* wanted = expected_of_[i];
    if (wanted == nullptr) return text("pages are ranked by a score that the flow does not have");
    const std::span<const float> scores = row(i);
    if (scores.size() != wanted->values.size()) return text("a score of each page, and of each token");
    for (size_t at = 0; at < scores.size(); ++at) {
      if (agrees(scores[at], wanted->values[at])) continue;
      const std::string of = scored_.size() > 1 ? " for " + name_of(traced_, asked(i)) : "";
      const char* const what = traced_.nodes[size_t(asked(i))].op == Op::kTopKTokens ? "token " : "page ";
      return text("the score of ", what, at, of, " is ", scores[at], ", not ", wanted->values[at].value);
    }
    return {};
  }

  static bool may_be_equal(const Bounded& a, const Bounded& b) {
    if (is_unknown(a) || is_unknown(b) || a.value == b.value) return true;
    if (std::isnan(a.value) || std::isnan(b.value)) return std::isnan(a.value) && std::isnan(b.value);
    return std::fabs(a.value - b.value) <= a.error + b.error;
  }

  /// A selection that passes have merged with another must be like it.
  std::string fault_of_merging(const Scores& wanted) const {
    const Node& node = traced_.nodes[size_t(wanted.selection)];
    for (size_t i = 0; i < scored_.size(); ++i) {
      const Node& candidate = compiled_.nodes[size_t(scored_[i])];
      if (asked(i) == wanted.selection) return {};
      if (candidate.op != node.op || !(candidate.attributes == node.attributes)) continue;
      if (wanted.bound && !may_be_equal(*wanted.bound, expected_of_[i]->bound.value())) continue;
      const std::span<const float> scores = row(i);
      const bool same = std::equal(scores.begin(), scores.end(), wanted.values.begin(), agrees);
      if (same) return {};
    }
    return name_of(traced_, wanted.selection) + " is missing";
  }

  std::string fault_of_pages() const {
    if (traced_.selection() == kNoNode) return seen_.selected.size() == pages_ ? "" : "not every page is selected";
    Allowed allowed(selectable());
    const std::vector<NodeId> leaves = leaf_selections(traced_);
    for (const NodeId id : leaves) {
      if (traced_.nodes[size_t(id)].op == Op::kWindow)
        allowed.require(raised(id, window(int(pages_), traced_.nodes[size_t(id)].attributes)), id);
    }
    for (size_t i = 0; i < scored_.size(); ++i) {
      if (std::find(leaves.begin(), leaves.end(), asked(i)) == leaves.end()) continue;  // of another source
      std::string fault = add_scored(i, allowed);
      if (!fault.empty()) return fault;
    }
    std::vector<bool> is_selected(selectable(), false);
    for (const int32_t each : seen_.selected) is_selected[size_t(each)] = true;
    size_t surplus = 0;
    for (size_t each = 0; each < selectable(); ++each) {
      if (allowed.must[each] != kNoNode && !is_selected[each]) {
        return text(unit(), " ", each, " is not selected, which ", name_of(traced_, allowed.must[each]), " asks for");
      }
      if (!is_selected[each] || allowed.may[each]) continue;
      if (++surplus > allowed.by_chance) return text(unit(), " ", each, " is selected, which no selection asks for");
    }
    return {};
  }

  std::string add_scored(size_t i, Allowed& allowed) const {
    const Node& node = traced_.nodes[size_t(asked(i))];
    const std::span<const float> own = row(i);
    const std::vector<double> scores(own.begin(), own.end());
    if (node.op == Op::kThreshold) return add_threshold(i, scores, allowed);
    if (node.op == Op::kTopP) return add_top_p(i, scores, allowed);
    const std::vector<int32_t> best = top_k(scores, node.attributes);
    if (node.op != Op::kApproxTopK || node.attributes.tolerate == 0) {
      allowed.require(raised(asked(i), best), asked(i));
      return {};
    }
    const std::vector<int32_t> kept = window(int(pages_), node.attributes);
    allowed.require(raised(asked(i), kept), asked(i));
    const size_t by_chance = best.size() - std::min(best.size(), kept.size());
    allowed.by_chance += of_tokens_ ? by_chance * size_t(traced_.geometry.page) : by_chance;
    return of_tokens_ ? std::string() : fault_of_approximation(node, scores, best);
  }

  /// As many pages as the budget, and of the best (pages of equal scores stand for each other) all but the share that it
  /// tolerates.
  std::string fault_of_approximation(const Node& node, const std::vector<double>& scores,
                                     const std::vector<int32_t>& best) const {
    const bool alone = traced_.nodes[size_t(traced_.selection())].op != Op::kUnion;
    if (alone && seen_.selected.size() != best.size()) {
      return text(seen_.selected.size(), " pages are selected, not ", best.size());
    }
    // NaN, which has no place in the order, counts as what lies below all numbers.
    const auto key = [&](int32_t page) { return std::isnan(scores[size_t(page)]) ? -INFINITY : scores[size_t(page)]; };
    std::map<double, int> wanted;
    for (const int32_t page : best) ++wanted[key(page)];
    int found = 0;
    for (const int32_t page : seen_.selected) found += wanted[key(page)]-- > 0 ? 1 : 0;
    if (found >= (1 - node.attributes.tolerate) * double(best.size()) - 1e-9) return {};
    return text(found, " of the ", best.size(), " best pages are selected, where ", 100 * node.attributes.tolerate,
                "% may be missed");
  }

  /// The best pages down to a share of all weights, which float32 may sum in any order.
  std::string add_top_p(size_t i, const std::vector<double>& weights, Allowed& allowed) const {
    constexpr double kRounding = 1e-5;
    const Node& node = traced_.nodes[size_t(asked(i))];
    allowed.require(raised(asked(i), top_p(weights, node.attributes.value * (1 - kRounding), node.attributes)), asked(i));
    allowed.allow(raised(asked(i), top_p(weights, node.attributes.value * (1 + kRounding), node.attributes)));
    return {};
  }

  /// A threshold takes the best pages down to its bound, which the reference knows up to an error.
  std::string add_threshold(size_t i, const std::vector<double>& scores, Allowed& allowed) const {
    const Node& node = traced_.nodes[size_t(asked(i))];
    const Bounded bound = expected_ == nullptr ? Bounded{0, kUnknown} : expected_of_[i]->bound.value();
    const bool known = !is_unknown(bound);
    const std::vector<int32_t> sure =
        known ? threshold(scores, bound.value + bound.error, node.attributes) : window(int(pages_), node.attributes);
    const std::vector<int32_t> possible = threshold(scores, known ? bound.value - bound.error : -INFINITY, node.attributes);
    allowed.require(raised(asked(i), sure), asked(i));
    allowed.allow(raised(asked(i), possible));
    const bool alone = traced_.nodes[size_t(traced_.selection())].op == Op::kThreshold;
    return alone ? fault_of_doubtful(scores, sure, possible) : "";
  }

  /// Wherever the bound lies, pages above it go before pages below.
  std::string fault_of_doubtful(const std::vector<double>& scores, const std::vector<int32_t>& sure,
                                const std::vector<int32_t>& possible) const {
    bool some_in = false;  // besides those that are sure; else nothing goes before anything, whatever is out
    double lowest_in = INFINITY;
    double highest_out = -INFINITY;
    for (const int32_t page : possible) {
      if (std::binary_search(sure.begin(), sure.end(), page)) continue;
      if (std::binary_search(seen_.selected.begin(), seen_.selected.end(), page)) {
        some_in = true;
        lowest_in = std::min(lowest_in, scores[size_t(page)]);
      } else {
        highest_out = std::max(highest_out, scores[size_t(page)]);
      }
    }
    return !some_in || lowest_in > highest_out ? "" : "a page is selected, and another whose score is no lower is not";
  }

  const FlowGraph& traced_;
  const FlowGraph& compiled_;
  const Observed& seen_;
  const Result* expected_;
  std::vector<NodeId> scored_;  // of the compiled graph
  /// What the reference says of each of those; null if that comes from nowhere. A plan that was made of another script names no
  /// selection of this one; the same number of them is taken in the same order.
  std::vector<const Scores*> expected_of_;
  int tokens_;  // of the row
  size_t pages_;
  bool of_tokens_;  // they are what is selected
};

/// Whether the errors of two values reach each other. What is exact has an order.
bool reach(const Bounded& a, const Bounded& b) {
  if (is_unknown(a) || is_unknown(b)) return true;
  return a.error + b.error > 0 && std::fabs(a.value - b.value) <= a.error + b.error;
}

/// Whether some page that is selected and some that is not reach each other.
bool any_reach(const std::vector<Bounded>& scores, const std::vector<bool>& is_selected) {
  struct Interval {
    double low, high;
    bool is_wide;  // no exact value
    bool is_selected;
  };
  std::vector<Interval> intervals;
  bool any[2] = {false, false};
  bool any_unknown = false;
  for (size_t page = 0; page < scores.size(); ++page) {
    const Bounded& score = scores[page];
    any[is_selected[page] ? 1 : 0] = true;
    any_unknown = any_unknown || is_unknown(score);
    if (!is_special(score)) {
      intervals.push_back({score.value - score.error, score.value + score.error, score.error > 0, is_selected[page]});
    }
  }
  if (any_unknown) return any[0] && any[1];
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.low < b.low; });
  double highest[2] = {-INFINITY, -INFINITY};       // end of those that began so far, not selected and selected
  double highest_wide[2] = {-INFINITY, -INFINITY};  // of those that are not exact: two exact values do not reach each other
  for (const Interval& each : intervals) {
    if ((each.is_wide ? highest : highest_wide)[each.is_selected ? 0 : 1] >= each.low) return true;
    double& end = highest[each.is_selected ? 1 : 0];
    end = std::max(end, each.high);
    double& wide_end = highest_wide[each.is_selected ? 1 : 0];
    if (each.is_wide) wide_end = std::max(wide_end, each.high);
  }
  return false;
}

/// Whether errors of the scores reach from a page that is selected to one that is not, or to the bound.
bool leaves_open(const Node& selection, const Scores& scores) {
  if (selection.op == Op::kApproxTopK && selection.attributes.tolerate > 0) return true;
  if (scores.bound) {
    return std::any_of(scores.values.begin(), scores.values.end(),
                       [&](const Bounded& score) { return reach(score, *scores.bound); });
  }
  std::vector<double> values;
  for (const Bounded& score : scores.values) values.push_back(score.value);
  std::vector<bool> is_selected(values.size(), false);
  if (selection.op == Op::kTopP) {
    constexpr double kRounding = 1e-4;  // and the errors of all weights
    const double p = selection.attributes.value;
    const std::vector<int32_t> fewer = top_p(values, p * (1 - kRounding), selection.attributes);
    if (fewer != top_p(values, p * (1 + kRounding), selection.attributes)) return true;
    for (const int32_t page : fewer) is_selected[size_t(page)] = true;
    return any_reach(scores.values, is_selected);
  }
  for (const int32_t page : top_k(values, selection.attributes)) is_selected[size_t(page)] = true;
  return any_reach(scores.values, is_selected);
}

}  // namespace

std::string fault_of(const FlowGraph& traced, const FlowGraph& compiled, const Observed& seen, const Result& expected) {
  return Judgement(traced, compiled, seen, expected.tokens, &expected).run();
}

std::string fault_of_selection(const FlowGraph& compiled, const Observed& seen, int tokens) {
  return Judgement(compiled, compiled, seen, tokens, nullptr).run();
}

bool leaves_open(const FlowGraph& traced, const Result& expected) {
  return std::any_of(expected.scores.begin(), expected.scores.end(),
                     [&](const Scores& scores) { return leaves_open(traced.nodes[size_t(scores.selection)], scores); });
}

bool leaves_groups_open(const FlowGraph& traced, const Result& expected) {
  return std::any_of(traced.sources.begin(), traced.sources.end(), [&](const AttentionSource& source) {
    const std::vector<NodeId> leaves = leaf_selections(traced, source.opened);
    return std::any_of(expected.scores.begin(), expected.scores.end(), [&](const Scores& scores) {
      const bool opens = std::find(leaves.begin(), leaves.end(), scores.selection) != leaves.end();
      return opens && leaves_open(traced.nodes[size_t(scores.selection)], scores);
    });
  });
}

bool agrees(float score, const Bounded& expected) {
  if (is_unknown(expected)) return true;
  if (std::isnan(expected.value)) return std::isnan(score);
  if (std::isinf(expected.value)) return double(score) == expected.value;
  return std::fabs(score - expected.value) <= expected.error;
}

std::string fault_of_output(std::span<const float> output, std::span<const double> expected, double tolerance) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) return text("output ", i, " is NaN in exact arithmetic: the flow makes NaN of numbers");
    // Written so that NaN fails.
    if (!(std::fabs(output[i] - expected[i]) <= tolerance * largest)) {
      return text("output ", i, " is ", output[i], ", not ", expected[i]);
    }
  }
  return {};
}

}  // namespace sluice::oracle
