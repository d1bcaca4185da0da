#pragma once

#include <optional>
#include <string>

#include "kernels/cuda/codegen/kernels.h"
#include "scripting/graph/plan.h"

namespace sluice::cuda::codegen {

/// Why a GPU does not take something, and what to do instead.
struct Refusal {
  std::string what;
  std::string hint;
};

/// Of what a flow attends to; nothing if it runs that.
std::optional<Refusal> refusal_of_attention(const Plan& plan);
/// Of pages; nothing if it keeps them.
std::optional<Refusal> refusal_of(const PageLayout& layout);
/// Of the text of a flow; nothing if it compiles that.
std::optional<Refusal> refusal_of(const GeneratedSource& source);
/// Of any of these.
std::optional<Refusal> refusal_of(const Plan& plan);

}  // namespace sluice::cuda::codegen
