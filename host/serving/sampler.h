#pragma once

#include <cstdint>

#include "host/serving/engine.h"
#include "kernels/device.h"

namespace sluice {

/// Checks ranges. Throws InputError naming the option.
void check_sampling(const SamplingOptions& options);

/// How a device picks the token of a step from `row` of the logits. The number drawn depends on (options.seed, step) alone.
SampleRow choose_sample(const SamplingOptions& options, uint64_t step, int row);

}  // namespace sluice
