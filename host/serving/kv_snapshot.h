#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "host/serving/engine.h"
#include "kernels/device.h"

namespace sluice {

/// Throws InputError unless `snapshot` is of the device, has the pool's extents, and its tokens and those of `prompt` agree as
/// far as both go.
void check_snapshot(const KvSnapshot& snapshot, std::span<const int32_t> prompt, const Device& device, const Pool& pool);

/// Pages of each group with K and V of a sequence, in the order of their tokens.
using PagesByGroup = std::vector<std::vector<int32_t>>;

/// K and V of the first tokens.size() tokens in `pages`, of which no group has forgotten any.
std::shared_ptr<const KvSnapshot> read_snapshot(std::span<const int32_t> tokens, const PagesByGroup& pages, Device& device,
                                                const Pool& pool);

/// By group: the slots of each token as Pool::write_layer has them.
using SlotsByGroup = std::vector<std::vector<int32_t>>;

/// Stores the first `tokens` tokens of `snapshot` in `pages`.
void write_snapshot(const KvSnapshot& snapshot, int tokens, const PagesByGroup& pages, const SlotsByGroup& slots, Pool& pool);

}  // namespace sluice
