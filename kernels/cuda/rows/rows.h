#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;

// Operations on rows. Matrices are float32 or bf16 in device memory, each its own; everything is computed in float32.

/// out[i] = x[rows[i]], converted to out's type; `rows` in device memory, null: x as it is.
void gather_rows(const Matrix& x, const int32_t* rows, const Matrix& out, Stream stream);
/// sums[row, part] of (a - b)^2 over a part of the columns.
void square_distances(const Matrix& a, const Matrix& b, int parts, float* sums, Stream stream);
/// sums[column] of the rows of x, a float32 matrix, and of what the first `known` have.
void add_rows(const Matrix& x, int64_t known, float* sums, Stream stream);
/// out[i] = table[tokens[i]] or, where tokens[i] < 0, table[picked[-1 - tokens[i]]]; all in device memory.
void embed_rows(const Matrix& table, const int32_t* tokens, const int32_t* picked, const Matrix& out, Stream stream);
/// x += delta (if not null), then out = x / sqrt(mean(x^2) + epsilon) * gain.
void rms_norm_rows(const Matrix& x, const Matrix* delta, const float* gain, float epsilon, const Matrix& out, Stream stream);
/// Parts of what is to be added to a matrix: [count, rows, columns] in float32.
struct SumParts {
  static constexpr int kMost = 4;
  const float* data = nullptr;
  int count = 0;
};
/// x += parts, in their order, then out as above. Throws InternalError unless there are 1 to kMost.
void rms_norm_rows(const Matrix& x, const SumParts& parts, const float* gain, float epsilon, const Matrix& out, Stream stream);
/// out = gate / (1 + exp(-gate)) * up; gate_up is [rows, 2 * n]: gate, then up.
void silu_multiply_rows(const Matrix& gate_up, const Matrix& out, Stream stream);

/// One layer of a pool, and where in it the token of each row of a pass belongs.
struct LayerPages {
  std::byte* base = nullptr;  // block (page, KV head) at base + (page * kv_heads + head) * block_bytes
  size_t block_bytes = 0;
  size_t key_offset = 0;
  size_t value_offset = 0;
  int page = 16;
  int kv_heads = 1;
  int head_dim = 64;
  DataType kv = DataType::kBF16;  // or e4m3, e5m2; what lies beyond their largest number becomes that
};
struct RowPlaces {
  const int32_t* positions = nullptr;  // [rows] of the token in its sequence
  const int32_t* slots = nullptr;      // [rows][heads] where its key and value go, of its sequence's
  const int32_t* pages = nullptr;      // [rows][heads] the page that has the slot
  int heads = 1;                       // KV heads have these in turn
};

struct RopeArguments {
  int query_heads = 1;
  const float* query_gain = nullptr;   // [dim] or null
  const float* key_gain = nullptr;     // [dim] or null
  const float* frequencies = nullptr;  // [dim / 2]
  float epsilon = 0;
  float attention_scale = 1;
};
/// Normalises, rotates and appends, as Device::rope_append says; one warp a head of a row. Heads of 64, 128 or 256.
void rope_append_rows(const Matrix& qkv, const RopeArguments& rope, const LayerPages& layer, const RowPlaces& places,
                      Stream stream);
/// Appends keys, values [rows, kv_heads * dim].
void append_rows(const Matrix& keys, const Matrix& values, const LayerPages& layer, const RowPlaces& places, Stream stream);

/// K and V of the first `tokens` tokens of `pages` (device memory) to or from float32 [tokens, kv_heads, dim]. Where there are
/// `slots` (device memory, [tokens][heads]), token t goes in KV head h to the slot that stands there at place h modulo `heads`,
/// or nowhere if that is -1.
void read_tokens(const LayerPages& layer, const int32_t* pages, int tokens, float* keys, float* values, Stream stream);
void write_tokens(const LayerPages& layer, const int32_t* pages, int tokens, const int32_t* slots, int heads, const float* keys,
                  const float* values, Stream stream);

}  // namespace sluice::cuda
