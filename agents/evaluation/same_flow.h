#pragma once

#include <optional>
#include <string>

#include "scripting/graph/graph.h"

namespace sluice {

/// What tells two graphs apart that one script gave for models of two shapes, in words: "it names other layers"; nothing if
/// they are the same flow. A script sees the shape that it is traced for, and what it is judged by must not be another flow than
/// the one that is asked and timed. Extents, constants, elementwise operators, budgets (a budget a head) and how often anything
/// occurs may follow the shape; page size, type of K and V, layers, fields, states, sources of attention and the other operators
/// in use may not. How many pages are read is for who compares to see (score_of). What a script traces and does not use counts
/// for nothing.
std::optional<std::string> difference_between(const FlowGraph& first_traced, const FlowGraph& second_traced);

}  // namespace sluice
