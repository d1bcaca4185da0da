#include "agents/bench/budget.h"

#include <fmt/format.h>

#include "scripting/base/error.h"
#include "scripting/graph/ops.h"

namespace sluice {

void set_budget(FlowGraph& graph, const Budget& budget) {
  if (!budget.given()) return;
  if (graph.selection() == kNoNode) {
    throw InputError(fmt::format("flow \"{}\" selects no pages: there is no budget to set", graph.name));
  }
  if (graph.sources.size() > 1) {
    throw InputError(fmt::format("flow \"{}\" attends to a cover: its budget cannot be set from outside", graph.name),
                     "change refine in the script");
  }
  Node& selection = graph.nodes[static_cast<size_t>(graph.selection())];
  if (graph.eviction && selection.op == Op::kWindow) {
    throw InputError(fmt::format("flow \"{}\" attends to all that it keeps: its budget is that of evict", graph.name),
                     "change it in the script");
  }
  if (selection.op != Op::kTopK && selection.op != Op::kApproxTopK) {
    throw InputError(
        fmt::format("flow \"{}\" selects by {}: its budget cannot be set from outside", graph.name, spoken_name_of(selection.op)),
        "topk and approx_topk have one; change the script");
  }
  Attributes& attributes = selection.attributes;
  if (budget.k) {
    attributes.k = *budget.k;
    attributes.ratio = 0;
  }
  if (budget.first) attributes.first = *budget.first;
  if (budget.last) attributes.last = *budget.last;
}

}  // namespace sluice
