#pragma once

#include <string>
#include <string_view>

#include "scripting/graph/graph.h"

namespace sluice {

/// `graph` as bytes. A graph has one encoding only. File names are left out: whoever reads it knows which file it asked for.
std::string encode_graph(const FlowGraph& graph);

/// The graph that `bytes` encode, with `file` as the file of every location. Trusts nothing: counts, indices, enumerations,
/// lengths and numbers are checked against `GraphLimits`, and what is not the one encoding of a graph is refused. What the graph
/// means is left to `verify`. Throws InputError that names the part at fault.
FlowGraph decode_graph(std::string_view bytes, const std::string& file);

}  // namespace sluice
