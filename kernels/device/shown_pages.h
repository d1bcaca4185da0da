#pragma once

#include <cstdint>

#include "kernels/device/pass_batch.h"

namespace sluice {

/// The pages, `page` slots each, of which the last row of a sequence with masks sees any slot in any head, and the one that has
/// its own: what the after stage of a prompt is shown under a pattern. Writes their places among the sequence's pages, ascending,
/// to `places`, which has room for all, and returns how many there are.
int find_shown_pages(const PassBatch& batch, const GroupPages& kept, int sequence, int page, int32_t* places);

}  // namespace sluice
