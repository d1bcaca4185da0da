#pragma once

#include "kernels/device.h"

namespace sluice::testing {

/// Expects that `find_best` and `pick_best` of a device pick what they should from products of small integers, which are exact
/// and full of ties; and from rows with NaN and infinities, too, what `matmul` and `sample` do.
void expect_best_tokens(Device& device);

}  // namespace sluice::testing
