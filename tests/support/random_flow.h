#pragma once

#include <cstdint>

#include "scripting/graph/graph.h"

namespace sluice::testing {

/// A valid flow drawn at random: any operators, axes, fields, states and selections. The same seed gives the same flow.
FlowGraph random_flow(uint64_t seed);
/// The same, with summaries of pages beside what is selected.
FlowGraph random_cover(uint64_t seed);

}  // namespace sluice::testing
