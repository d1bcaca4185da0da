#pragma once

#include <string>

#include "scripting/graph/plan.h"

namespace sluice::cuda::codegen {

/// How a GPU runs a sparse layer of a plan, for people: the launches in order, the operators that each computes and where it
/// keeps them, its memory, and which scores leave the chip. Needs no GPU.
std::string describe(const Plan& plan);

}  // namespace sluice::cuda::codegen
