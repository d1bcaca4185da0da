#pragma once

#include "agents/bench/bench.h"
#include "agents/bench/serve_side.h"

namespace sluice {

/// Tokens that each sequence generates in `compare_decoding`.
int steps_to_compare(const BenchOptions& options);
/// Where their number is free: as few as make a ratio.
int least_steps_to_compare();

/// Decodes the same prompts with the flow and with another one in turn (null: with dense attention), and checks both: rows for
/// the prefill and for each side, and if it is wanted a profile of a step of each.
void compare_decoding(const BenchOptions& options, const ServeSetup& setup, const Plan& plan, const Plan* other,
                      BenchReport& report);

}  // namespace sluice
