#pragma once

#include <cstdint>
#include <string>

#include "scripting/graph/plan.h"

namespace sluice::cuda::codegen {

/// How a GPU runs a sparse layer of a plan, for people: the launches in order, the operators that each computes and where it
/// keeps them, its memory, which scores leave the chip, and whether requests of so many tokens do with one kernel. Needs no GPU.
/// Not for plans that a GPU refuses (refusal.h).
std::string describe(const Plan& plan, int64_t tokens);

}  // namespace sluice::cuda::codegen
