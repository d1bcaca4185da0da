#include "kernels/cuda/codegen/selection_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice::cuda::codegen {
namespace {

constexpr const char* kAsked = "as the flow says";

/// Why the dispatcher takes the plan that it takes of rows whose last selections are kept.
std::string why(const TopKPlan& plan, const SelectedRows& rows, int scores) {
  const std::string these = fmt::format("{} rows of {} scores", rows.rows, scores);
  if (plan.guess == FirstGuess::kNone) return fmt::format("{} are short enough for a block each, which needs no guess", these);
  const std::string most = fmt::format("of {}, of which up to {} are taken,", these, rows.budget);
  return plan.guess == FirstGuess::kHints ? most + " what the last step took is the best guess"
                                          : most + " a sample is as good a guess as what the last step took";
}

}  // namespace

int most_budget(const Node& selection, int scores) {
  const Attributes& a = selection.attributes;
  const int64_t middle = std::max<int64_t>(0, int64_t{scores} - a.first - a.last);
  if (counts_scores(selection)) return static_cast<int>(a.max_pages > 0 ? std::min<int64_t>(middle, a.max_pages) : middle);
  const auto share = static_cast<int64_t>(std::ceil(a.ratio * scores));
  const int64_t wanted = std::max(int64_t{a.k} + a.first + a.last, share) - a.first - a.last;
  return static_cast<int>(std::clamp<int64_t>(wanted, 0, middle));
}

int ranked_scores(const Node& selection, int scores) { return scores - selection.attributes.first - selection.attributes.last; }

bool insists_on_hints(const Node& selection) {
  return selection.op == Op::kTopK && selection.attributes.method == TopKMethod::kGvr;
}

// What a threshold may take says nothing of how many pages it took.
bool takes_hints(const Node& selection, const SelectedRows& rows) {
  if (counts_scores(selection) || selection.op == Op::kTopKTokens || is_drawn(selection) || rows.budget <= 0) return false;
  return plan_selection(selection, rows, true).guess == FirstGuess::kHints;
}

TopKPlan plan_selection(const Node& selection, const SelectedRows& rows, bool hinted) {
  const int scores = ranked_scores(selection, rows.pages);
  switch (selection.attributes.method) {
    case TopKMethod::kRadix:
      return plan_radix(rows.rows, scores, rows.multiprocessors);
    case TopKMethod::kGvr:
      return plan_gvr(rows.rows, scores, rows.multiprocessors);
    default:
      return plan_top_k(rows.rows, scores, rows.budget, hinted, rows.multiprocessors);
  }
}

std::string describe_method(const Node& selection, const SelectedRows& rows, bool hinted) {
  if (selection.attributes.method == TopKMethod::kRadix) return fmt::format("method radix, {}", kAsked);
  if (selection.attributes.method == TopKMethod::kGvr) return fmt::format("method gvr, {}", kAsked);
  const TopKPlan plan = plan_selection(selection, rows, hinted);
  const char* const method = plan.guess == FirstGuess::kHints    ? "gvr"
                             : plan.guess == FirstGuess::kSample ? "radix, after a guess from a sample"
                                                                 : "radix";
  return fmt::format("method {} (auto): {}", method, why(plan, rows, std::max(0, ranked_scores(selection, rows.pages))));
}

std::string describe_held_method(const Node& selection) {
  if (selection.attributes.method == TopKMethod::kRadix) return fmt::format("method radix, {}", kAsked);
  return "method radix (auto): the only one of rows that are held on chip";
}

}  // namespace sluice::cuda::codegen
