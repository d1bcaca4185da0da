#pragma once

#include <cstdint>
#include <string>

#include "scripting/graph/plan.h"

namespace sluice::cuda::codegen {

/// A decode step: its requests, tokens of each, KV heads of the model.
struct DescribedStep {
  int64_t tokens = 0;
  int64_t batch = 1;
  int kv_heads = 1;
};

/// How a GPU runs a sparse layer of a plan, for people: the launches in order, the operators that each computes and where it
/// keeps them, its memory, which scores leave the chip, and whether a step of so many requests, of so many tokens each and of a
/// model with so many KV heads, does with one kernel. Needs no GPU: it speaks of an H200. Not for plans that a GPU refuses
/// (refusal.h).
std::string describe(const Plan& plan, const DescribedStep& step);

}  // namespace sluice::cuda::codegen
