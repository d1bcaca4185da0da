#pragma once

#include <cstdint>

#include "scripting/graph/graph.h"

namespace sluice::testing {

/// A valid flow drawn at random: any operators, axes, fields, states and selections. The same seed gives the same flow.
FlowGraph random_flow(uint64_t seed);
/// The same, with summaries of pages beside what is selected.
FlowGraph random_cover(uint64_t seed);
/// Covers whose summaries are states that the after stage saves, some of them as pages leave a tail.
FlowGraph random_kept_cover(uint64_t seed);
/// A flow whose after stage saves states that its selection depends on, as a rule; some are covers.
FlowGraph random_after(uint64_t seed);
/// A flow that selects tokens, or pages by what they weigh.
FlowGraph random_tokens(uint64_t seed);
/// A flow whose after stage says who leaves a cache of 30 to 90 tokens.
FlowGraph random_eviction(uint64_t seed);

}  // namespace sluice::testing
