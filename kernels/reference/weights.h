#pragma once

#include <span>
#include <vector>

#include "kernels/reference/oracle.h"

namespace sluice::oracle {

/// What the softmax of q [group, dim] over `entries` gives each of them, with what float32 may be off: [entries, group]. Devices
/// may multiply a query that is split in two of bfloat16. By how much logits may be off beyond that `errors` says, [entries] of
/// [group], those that are empty by nothing. What is infinite or NaN in a head's logits leaves its weights unknown.
std::vector<Bounded> weights_of(std::span<const float> query, std::span<const Entry> entries,
                                std::span<const std::vector<double>> errors, double scale);

/// By how much float32 may be off in the scaled product of a query and a key.
double product_error(std::span<const float> query, std::span<const float> key, double scale);

}  // namespace sluice::oracle
