#pragma once

#include <string>

#include "kernels/cuda/codegen/layout.h"
#include "kernels/cuda/selection/topk_plan.h"

/// How a GPU finds what a selection by score takes, where rows are not held on chip.
namespace sluice::cuda::codegen {

/// Most that a selection takes of a row of so many scores (pages, or tokens), between those that are kept anyway.
int most_budget(const Node& selection, int scores);
/// Those of such a row that it takes them from.
int ranked_scores(const Node& selection, int scores);

/// Whether a selection says that it is to begin with what the last step took (method "gvr").
bool insists_on_hints(const Node& selection);

/// Rows of at most `pages` pages (or tokens), of each of which a selection takes at most `budget`, on a GPU of so many
/// multiprocessors.
struct SelectedRows {
  int rows = 0;
  int pages = 0;
  int budget = 0;
  int multiprocessors = 0;
};

/// Whether a selection from such rows begins with what was taken last, where that is kept.
bool takes_hints(const Node& selection, const SelectedRows& rows);
/// How an exact one goes on; `hinted`: what was taken last is kept.
TopKPlan plan_selection(const Node& selection, const SelectedRows& rows, bool hinted);
/// The method of an exact top-k in words, and who chose it or why.
std::string describe_method(const Node& selection, const SelectedRows& rows, bool hinted);
/// The same where rows are held on chip.
std::string describe_held_method(const Node& selection);

}  // namespace sluice::cuda::codegen
