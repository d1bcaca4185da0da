#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/pass_batch.h"

namespace sluice::cpu {

/// Adds to the `count` pages that a flow selected, places of a row's list in ascending order, those that have tokens beside them,
/// and sets a bit of `mask` for each token that is seen: all of a page that was selected, or those that have a bit in `tokens`,
/// one selected page behind the other, where that is not empty; and those beside. Of either, where `visible` is not empty, those
/// of which it has the bit, counted from the list's first page on. `positions` has room for every page of the row, `mask` for
/// their tokens. Returns the number of pages.
int join_beside(const BesideTokens& beside, int sequence, int page, std::span<const uint32_t> visible,
                std::span<const uint32_t> tokens, std::span<int32_t> positions, int count, std::span<uint32_t> mask);

}  // namespace sluice::cpu
