#pragma once

#include <optional>

#include "scripting/graph/graph.h"

namespace sluice {

/// Pages that a flow's selection keeps, where they shall be others than its script says.
struct Budget {
  std::optional<int> k;  // beyond the first and the last; takes the place of a ratio, too
  std::optional<int> first;
  std::optional<int> last;

  bool given() const { return k || first || last; }
};

/// Gives the selection of a traced graph this budget. Throws InputError if there is none that has one.
void set_budget(FlowGraph& graph, const Budget& budget);

}  // namespace sluice
