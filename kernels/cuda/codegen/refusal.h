#pragma once

#include <optional>
#include <string>

#include "scripting/graph/plan.h"

namespace sluice::cuda::codegen {

/// Why a GPU does not take something, and what to do instead.
struct Refusal {
  std::string what;
  std::string hint;
};

/// Of pages; nothing if it keeps them.
std::optional<Refusal> refusal_of(const PageLayout& layout);
/// Of a plan, with its pages; nothing if it runs it.
std::optional<Refusal> refusal_of(const Plan& plan);

}  // namespace sluice::cuda::codegen
