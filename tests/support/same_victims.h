#pragma once

#include <string>

#include "kernels/device.h"

namespace sluice::testing {

/// 2,000 steps of a flow that evicts heavy hitters, beside a map from each token that is there to its score: the same tokens leave.
void expect_same_victims(Device& device, const std::string& kv, int head_dim);

}  // namespace sluice::testing
