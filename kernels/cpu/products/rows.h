#pragma once

#include <cstdint>

namespace sluice::cpu {

// Operations on one row, in float32. `out` may be the same row as an input.

/// out = x / sqrt(mean(x^2) + epsilon) * gain.
void rms_norm_row(const float* x, const float* gain, int64_t columns, float epsilon, float* out);
/// x += delta.
void add_row(float* x, const float* delta, int64_t columns);
/// out = gate / (1 + exp(-gate)) * up.
void silu_multiply_row(const float* gate, const float* up, int64_t columns, float* out);
/// Rotates (x[i], x[i + half]) by the angle whose cosine and sine are cosine[i], sine[i]; half is [dim / 2].
void rotate_row(float* x, const float* cosine, const float* sine, int64_t half);

}  // namespace sluice::cpu
