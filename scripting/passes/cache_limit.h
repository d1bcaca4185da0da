#pragma once

#include "scripting/graph/plan.h"

namespace sluice {

/// Refuses plans whose cached fields take several times the memory of K and V: the engine that judges such a flow would not fit
/// beside others, and reading less is what a flow is for. Throws FlowError.
void check_cache_size(const Plan& plan);

}  // namespace sluice
