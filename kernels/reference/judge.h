#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/reference/oracle.h"

namespace sluice::oracle {

/// What a device gave for one row (request x KV head) at one decode step.
struct Observed {
  std::span<const float> scores;      // [scored selections of the compiled graph, score_stride] before any are forced
  size_t score_stride = 0;            // at least the pages of the row, or its tokens where these are scored
  std::span<const int32_t> selected;  // pages, or tokens
};

/// What of `seen` cannot be right, in words; empty if nothing. `traced` is the graph before passes, `compiled` what `compile`
/// made of it, `expected` the reference's result for `traced` on the same row.
///
/// Each selection is judged by scores of its own. They must lie within the errors of the reference's scores; what is selected
/// must be what the device's own scores ask for, all selections together. So a selection whose scores float32 cannot tell apart
/// is judged as exactly as any other. A threshold may go either way where the reference does not know the bound well enough, and
/// an approx_topk may miss as much as it tolerates.
std::string fault_of(const FlowGraph& traced, const FlowGraph& compiled, const Observed& seen, const Result& expected);

/// The part of that which needs no reference: what of the selection does not follow from the device's own scores. A threshold's
/// bound is not known here.
std::string fault_of_selection(const FlowGraph& compiled, const Observed& seen, int tokens);

/// Whether float32 may select other pages than the reference does, so that two right kernels may differ.
bool leaves_open(const FlowGraph& traced, const Result& expected);

/// The same of the groups of pages that a source opens by a selection of its own.
bool leaves_groups_open(const FlowGraph& traced, const Result& expected);

/// Whether `score` is what float32 may give for `expected`.
bool agrees(float score, const Bounded& expected);

/// What a device gives as attention output may differ from `expected` by `tolerance` of the largest value. What differs more, or
/// nothing. NaN never agrees.
std::string fault_of_output(std::span<const float> output, std::span<const double> expected, double tolerance);

}  // namespace sluice::oracle
