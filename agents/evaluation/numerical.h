#pragma once

#include <optional>
#include <string>

#include "kernels/device.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// Runs `plan` on the device for a few decode steps of one layer and one KV head, beside others (single_head.h), on random and
/// adversarial keys (ties, infinities and NaN, a single token, a ragged last page), and compares scores, selections and outputs
/// with a float64 evaluation of `traced`, the graph before any pass. Returns what disagrees, or nothing.
///
/// Scores must lie within the error that float32 can make; selections must be what the device's own scores call for, and
/// may differ from the reference only by pages that float32 cannot tell apart; outputs must agree to 1e-3 of the largest
/// value, and are not looked at where keys are infinite or NaN. An approximate top-k, in which chance has a say, must take as
/// many pages as its budget, all but the share that it tolerates from the best by the device's own scores. There are more pages
/// than a budget of up to 16,000 tokens takes. Deterministic. Takes tens of milliseconds; a large budget, a second or two.
std::optional<std::string> check_against_reference(Device& device, const FlowGraph& traced, const Plan& plan);

}  // namespace sluice
