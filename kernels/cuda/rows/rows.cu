#include "kernels/cuda/rows/rows.h"

#include "kernels/cuda/primitives/eight_bits.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/primitives/warp.cuh"
#include "kernels/cuda/rows/row_view.cuh"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice::cuda {
namespace {

using namespace row_view;

/// These kernels are short: most of their time is that of a launch, which overlaps with the kernel before.
__device__ __forceinline__ void begin_row_kernel() {
  let_next_kernel_start();
  wait_for_earlier_kernels();
}

template <int N>
__global__ void gather_kernel(View x, const int32_t* rows, const int32_t* picked, int64_t columns, View out) {
  begin_row_kernel();
  const int64_t row = blockIdx.x;
  int64_t from = rows == nullptr ? row : rows[row];
  if (from < 0) from = picked[-1 - from];
  for (int64_t column = int64_t{threadIdx.x} * N; column < columns; column += int64_t{blockDim.x} * N) {
    float values[N];
    load(x, from, column, values);
    store(out, row, column, values);
  }
}

/// A warp for each row and part.
__global__ void distance_kernel(View a, View b, int64_t count, int parts, int64_t columns, float* sums) {
  begin_row_kernel();
  const int64_t index = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (index >= count) return;
  const int64_t first = index % parts * columns;
  float sum = 0;
  for (int64_t column = first + threadIdx.x % 32; column < first + columns; column += 32) {
    float x[1], y[1];
    load(a, index / parts, column, x);
    load(b, index / parts, column, y);
    sum += (x[0] - y[0]) * (x[0] - y[0]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[index] = sum;
}

template <int N>
__global__ void silu_multiply_kernel(View gate_up, int64_t columns, View out) {
  begin_row_kernel();
  const int64_t row = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= columns) return;
  float gate[N];
  float up[N];
  load(gate_up, row, column, gate);
  load(gate_up, row, columns + column, up);
#pragma unroll
  for (int i = 0; i < N; ++i) up[i] *= gate[i] / (1.0f + expf(-gate[i]));
  store(out, row, column, up);
}

/// K (or V, by `offset`) of a token in its page, from a channel on.
struct TokenPart {
  std::byte* at;
  DataType type;

  __device__ __forceinline__ TokenPart(const LayerPages& layer, int page, int position, int head, size_t offset, int channel)
      : type(layer.kv) {
    std::byte* block = layer.base + (static_cast<size_t>(page) * layer.kv_heads + head) * layer.block_bytes;
    at = block + offset + (static_cast<size_t>(position % layer.page) * layer.head_dim + channel) * element_bytes();
  }

  template <int N>
  __device__ __forceinline__ void store(int channel, const float (&values)[N]) const {
    if (type == DataType::kBF16) {
      store_narrow(reinterpret_cast<__nv_bfloat16*>(at) + channel, values);
      return;
    }
    Pack<uint8_t, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = narrow_to_byte(type, values[i]);
    *reinterpret_cast<Pack<uint8_t, N>*>(at + channel) = pack;
  }
  __device__ __forceinline__ void store(float value) const {
    const float values[1] = {value};
    store(0, values);
  }
  __device__ __forceinline__ float load() const {
    if (type == DataType::kBF16) return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(at));
    return widen_byte(type, *reinterpret_cast<const uint8_t*>(at));
  }

 private:
  __device__ __forceinline__ size_t element_bytes() const { return type == DataType::kBF16 ? 2 : 1; }
};

template <int Dim>
__global__ void rope_append_kernel(View qkv, int64_t rows, RopeArguments rope, LayerPages layer, RowPlaces places) {
  let_next_kernel_start();
  constexpr int kHalf = Dim / 2;
  constexpr int kMine = kHalf / 32;  // pairs (i, i + half) of a lane
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int heads = rope.query_heads + 2 * layer.kv_heads;
  const int64_t index = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (index >= rows * heads) return;
  const int64_t row = index / heads;
  const int head = static_cast<int>(index % heads);
  const int first = lane * kMine;
  const int64_t column = int64_t{head} * Dim + first;
  // What no kernel writes is read, and angles are found, while the kernel before this one ends.
  const int position = places.positions[row];
  const int kv_head = head < rope.query_heads ? 0 : (head - rope.query_heads) % layer.kv_heads;
  const int64_t place = row * places.heads + (places.heads == 1 ? 0 : kv_head % places.heads);
  const int slot = places.slots[place];
  const int page = places.pages[place];
  const bool is_value = head >= rope.query_heads + layer.kv_heads;
  float sine[kMine];
  float cosine[kMine];
  if (!is_value) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      // The angle is rounded to float32, as the models' reference implementations do.
      const float angle = static_cast<float>(position) * rope.frequencies[first + i];
      sincosf(angle, &sine[i], &cosine[i]);
      sine[i] *= rope.attention_scale;
      cosine[i] *= rope.attention_scale;
    }
  }
  const float* const gain = is_value ? nullptr : head < rope.query_heads ? rope.query_gain : rope.key_gain;
  float gains[2][kMine];
  if (gain != nullptr) {
    load_gain(gain, first, gains[0]);
    load_gain(gain, kHalf + first, gains[1]);
  }
  wait_for_earlier_kernels();
  float low[kMine];
  float high[kMine];
  load(qkv, row, column, low);
  load(qkv, row, column + kHalf, high);
  if (!is_value) {
    if (gain != nullptr) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kMine; ++i) squares += low[i] * low[i] + high[i] * high[i];
      const float factor = 1.0f / sqrtf(warp_sum(squares) / Dim + rope.epsilon);
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        low[i] *= factor * gains[0][i];
        high[i] *= factor * gains[1][i];
      }
    }
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const float a = low[i];
      const float b = high[i];
      low[i] = a * cosine[i] - b * sine[i];
      high[i] = b * cosine[i] + a * sine[i];
    }
  }
  if (head < rope.query_heads) {
    store(qkv, row, column, low);
    store(qkv, row, column + kHalf, high);
    return;
  }
  const TokenPart to(layer, page, slot, kv_head, is_value ? layer.value_offset : layer.key_offset, first);
  to.store(0, low);
  to.store(kHalf, high);
}

/// A block for each row and KV head, a thread for each channel. All it reads is under way at once.
__global__ void append_kernel(View keys, View values, LayerPages layer, RowPlaces places) {
  let_next_kernel_start();
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const int channel = static_cast<int>(threadIdx.x);
  const int64_t place = row * places.heads + (places.heads == 1 ? 0 : head % places.heads);
  const int page = places.pages[place];  // of the pass: no kernel writes these
  const int slot = places.slots[place];
  wait_for_earlier_kernels();
  const int64_t column = int64_t{head} * layer.head_dim + channel;
  float key[1];
  float value[1];
  load(keys, row, column, key);
  load(values, row, column, value);
  TokenPart(layer, page, slot, head, layer.key_offset, channel).store(0, key);
  TokenPart(layer, page, slot, head, layer.value_offset, channel).store(0, value);
}

__global__ void read_tokens_kernel(LayerPages layer, const int32_t* pages, float* keys, float* values) {
  const int token = static_cast<int>(blockIdx.x);
  const int numbers = layer.kv_heads * layer.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < numbers; i += static_cast<int>(blockDim.x)) {
    const int head = i / layer.head_dim;
    const int channel = i % layer.head_dim;
    const int page = pages[token / layer.page];
    const int64_t at = int64_t{token} * numbers + i;
    keys[at] = TokenPart(layer, page, token, head, layer.key_offset, channel).load();
    values[at] = TokenPart(layer, page, token, head, layer.value_offset, channel).load();
  }
}

__global__ void write_tokens_kernel(LayerPages layer, const int32_t* pages, const int32_t* slots, int heads, const float* keys,
                                    const float* values) {
  const int token = static_cast<int>(blockIdx.x);
  const int numbers = layer.kv_heads * layer.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < numbers; i += static_cast<int>(blockDim.x)) {
    const int head = i / layer.head_dim;
    const int channel = i % layer.head_dim;
    const int slot = slots == nullptr ? token : slots[token * heads + head % heads];
    if (slot < 0) continue;
    const int page = pages[slot / layer.page];
    const int64_t at = int64_t{token} * numbers + i;
    TokenPart(layer, page, slot, head, layer.key_offset, channel).store(keys[at]);
    TokenPart(layer, page, slot, head, layer.value_offset, channel).store(values[at]);
  }
}

__global__ void add_rows_kernel(const float* x, int64_t rows, int64_t columns, int64_t stride, int64_t known, float* sums) {
  begin_row_kernel();
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = column < known ? sums[column] : 0;
  for (int64_t row = 0; row < rows; ++row) sum += x[row * stride + column];
  sums[column] = sum;
}

}  // namespace

void gather_rows(const Matrix& x, const int32_t* rows, const Matrix& out, Stream stream) {
  embed_rows(x, rows, nullptr, out, stream);
}

void square_distances(const Matrix& a, const Matrix& b, int parts, float* sums, Stream stream) {
  constexpr int kWarps = 8;
  const int64_t count = a.rows * parts;
  if (count == 0) return;
  launch_overlapping(distance_kernel, {blocks_for((count + kWarps - 1) / kWarps), dim3(32 * kWarps)}, stream, view_of(a),
                     view_of(b), count, parts, a.columns / parts, sums);
}

void add_rows(const Matrix& x, int64_t known, float* sums, Stream stream) {
  constexpr int kThreads = 128;
  if (x.columns == 0) return;
  launch_overlapping(add_rows_kernel, {blocks_for((x.columns + kThreads - 1) / kThreads), dim3(kThreads)}, stream,
                     static_cast<const float*>(x.data), x.rows, x.columns, x.stride, known, sums);
}

void embed_rows(const Matrix& table, const int32_t* tokens, const int32_t* picked, const Matrix& out, Stream stream) {
  if (out.rows == 0) return;
  if (by_fours(out.columns, {&table, &out})) {
    launch_overlapping(gather_kernel<4>, {blocks_for(out.rows), threads_for(out.columns / 4)}, stream, view_of(table), tokens,
                       picked, out.columns, view_of(out));
  } else {
    launch_overlapping(gather_kernel<1>, {blocks_for(out.rows), threads_for(out.columns)}, stream, view_of(table), tokens, picked,
                       out.columns, view_of(out));
  }
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

void silu_multiply_rows(const Matrix& gate_up, const Matrix& out, Stream stream) {
  if (out.rows == 0) return;
  constexpr int kThreads = 256;
  const auto grid = [&](int64_t packs) { return dim3(blocks_for(out.rows), blocks_for((packs + kThreads - 1) / kThreads)); };
  if (by_fours(out.columns, {&gate_up, &out})) {
    launch_overlapping(silu_multiply_kernel<4>, {grid(out.columns / 4), kThreads}, stream, view_of(gate_up), out.columns,
                       view_of(out));
  } else {
    launch_overlapping(silu_multiply_kernel<1>, {grid(out.columns), kThreads}, stream, view_of(gate_up), out.columns,
                       view_of(out));
  }
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

void rope_append_rows(const Matrix& qkv, const RopeArguments& rope, const LayerPages& layer, const RowPlaces& places,
                      Stream stream) {
  if (qkv.rows == 0) return;
  constexpr int kThreads = 128;
  const int64_t warps = qkv.rows * (rope.query_heads + 2 * layer.kv_heads);
  const unsigned blocks = blocks_for((warps * 32 + kThreads - 1) / kThreads);
  switch (layer.head_dim) {
    case 64:
      launch_overlapping(rope_append_kernel<64>, {blocks, kThreads}, stream, view_of(qkv), qkv.rows, rope, layer, places);
      break;
    case 128:
      launch_overlapping(rope_append_kernel<128>, {blocks, kThreads}, stream, view_of(qkv), qkv.rows, rope, layer, places);
      break;
    default:
      launch_overlapping(rope_append_kernel<256>, {blocks, kThreads}, stream, view_of(qkv), qkv.rows, rope, layer, places);
  }
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

void append_rows(const Matrix& keys, const Matrix& values, const LayerPages& layer, const RowPlaces& places, Stream stream) {
  if (keys.rows == 0) return;
  const dim3 grid(blocks_for(keys.rows), static_cast<unsigned>(layer.kv_heads));
  launch_overlapping(append_kernel, {grid, dim3(layer.head_dim)}, stream, view_of(keys), view_of(values), layer, places);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

void read_tokens(const LayerPages& layer, const int32_t* pages, int tokens, float* keys, float* values, Stream stream) {
  if (tokens == 0) return;
  const int threads = threads_for(int64_t{layer.kv_heads} * layer.head_dim);
  read_tokens_kernel<<<blocks_for(tokens), threads, 0, stream>>>(layer, pages, keys, values);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

void write_tokens(const LayerPages& layer, const int32_t* pages, int tokens, const int32_t* slots, int heads, const float* keys,
                  const float* values, Stream stream) {
  if (tokens == 0) return;
  const int threads = threads_for(int64_t{layer.kv_heads} * layer.head_dim);
  write_tokens_kernel<<<blocks_for(tokens), threads, 0, stream>>>(layer, pages, slots, heads, keys, values);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace sluice::cuda
