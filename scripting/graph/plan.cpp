#include "scripting/graph/plan.h"

#include <algorithm>

namespace sluice {

std::vector<const Plan*> Plan::programs() const {
  std::vector<const Plan*> all = {this};
  for (const Plan& variant : variants) all.push_back(&variant);
  return all;
}

bool Plan::evicts() const {
  const std::vector<const Plan*> all = programs();
  return std::any_of(all.begin(), all.end(), [](const Plan* each) { return each->graph.eviction.has_value(); });
}

bool Plan::bounds_prompts() const {
  const std::vector<const Plan*> all = programs();
  return std::any_of(all.begin(), all.end(),
                     [](const Plan* each) { return !each->graph.patterns.empty() && !each->graph.patterns.dense_prefill; });
}

int Plan::prompt_rows_wanted() const {
  int rows = 0;
  for (const Plan* each : programs()) rows = std::max(rows, each->graph.prompt_rows_wanted());
  return rows;
}

const Plan* Plan::program_of(int layer, int count) const {
  for (const Plan* program : programs()) {
    if (program->graph.layers.is_sparse(layer, count)) return program;
  }
  return nullptr;
}

}  // namespace sluice
