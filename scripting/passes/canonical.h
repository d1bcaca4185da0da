#pragma once

#include "scripting/graph/graph.h"

namespace sluice {

/// A verified graph without what says nothing of what it computes: names of the flow, its variants, fields and states, places in
/// the script, the order of statements, what is said twice and what nothing reads. Flows with the same canonical form compute the
/// same, and by the same plan but for numbers of nodes: `compile` goes through the same steps. The converse is not promised: a +
/// b and b + a are two forms.
///
/// `layers`: of the model that runs it; which of them are named, and how, does not count. Without `has_methods` all ways to find
/// an exact top-k are one.
FlowGraph canonical_form(FlowGraph graph, int layers, bool has_methods = true);

}  // namespace sluice
