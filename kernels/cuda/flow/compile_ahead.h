#pragma once

#include <span>

#include "scripting/graph/plan.h"

namespace sluice::cuda {

/// Compiles the kernels of flows by several threads into the cache of kernels, where CudaFlow finds them. What cannot be compiled
/// is left to CudaFlow, which says why. Nothing is done where there is no cache.
void compile_flows_ahead(std::span<const Plan> plans);

}  // namespace sluice::cuda
