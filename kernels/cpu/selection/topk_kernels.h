#pragma once

#include <cstdint>

namespace sluice::cpu {

// SIMD loops of the selections, dispatched at run time. Arrays end where they say.

/// keys[i] = order_key(bits of scores[i]).
void order_keys(const float* scores, int count, uint32_t* keys);
/// Copies the keys with (key & mask) == prefix, in order; returns their number. `kept` has room for `count` and may be `keys`.
int keep_matching(const uint32_t* keys, int count, uint32_t mask, uint32_t prefix, uint32_t* kept);
/// Writes first + i for every keys[i] > cut, and for the first `ties` of those equal to it, in order; returns their number.
/// `selected` has room for `count`.
int emit_above(const uint32_t* keys, int count, uint32_t cut, int ties, int32_t first, int32_t* selected);
/// Writes every i with keys[i] == key, in order; returns their number. `places` has room for `count`.
int find_equal(const uint32_t* keys, int count, uint32_t key, int32_t* places);
/// Writes scores[i] and i for every score that is at least `floor`, in order; returns their number. `kept` and `places` have room
/// for `count`.
int keep_at_least(const float* scores, int count, float floor, float* kept, int32_t* places);
/// bins[i] = 0 for NaN, else 1 + scale * (scores[i] - low) clamped to [0, most] and cut to a whole number. Monotonic in the
/// scores.
void map_to_bins(const float* scores, int count, float low, float scale, int most, uint32_t* bins);

}  // namespace sluice::cpu
