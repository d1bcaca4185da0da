#pragma once

#include <span>

#include "agents/bench/bench.h"
#include "agents/bench/serve_side.h"

namespace sluice {

/// Requests that arrive by a Poisson process, whether the engine keeps up or not (an open loop): for every rate, a row for dense
/// attention and one for the flow, with the same requests at the same times. Engines may use `memory` bytes for pages.
std::vector<BenchRow> measure_rates(const ServeSetup& setup, const Plan& plan, std::span<const double> rates, double seconds,
                                    double memory);

}  // namespace sluice
