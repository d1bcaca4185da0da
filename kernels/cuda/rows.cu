#include "kernels/cuda/rows.h"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/warp.cuh"
#include "scripting/graph/error.h"

namespace sluice::cuda {
namespace {

/// N neighbours that one instruction loads or stores.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

/// A matrix as kernels see it. Its type is the same for all threads, so asking for it costs next to nothing beside the memory.
struct View {
  void* data;
  int64_t stride;
  bool narrow;  // bf16
};

View view_of(const Matrix& matrix) { return {matrix.data, matrix.stride, matrix.type == DataType::kBF16}; }

template <int N>
__device__ __forceinline__ void load(const View& view, int64_t row, int64_t column, float (&values)[N]) {
  const int64_t at = row * view.stride + column;
  if (view.narrow) {
    const auto pack = *reinterpret_cast<const Pack<__nv_bfloat16, N>*>(static_cast<const __nv_bfloat16*>(view.data) + at);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = __bfloat162float(pack.at[i]);
  } else {
    const auto pack = *reinterpret_cast<const Pack<float, N>*>(static_cast<const float*>(view.data) + at);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = pack.at[i];
  }
}

template <int N>
__device__ __forceinline__ void store_narrow(__nv_bfloat16* target, const float (&values)[N]) {
  Pack<__nv_bfloat16, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = __float2bfloat16_rn(values[i]);
  *reinterpret_cast<Pack<__nv_bfloat16, N>*>(target) = pack;
}

/// As bf16 holds it.
__device__ __forceinline__ float rounded(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }

template <int N>
__device__ __forceinline__ void store(const View& view, int64_t row, int64_t column, const float (&values)[N]) {
  const int64_t at = row * view.stride + column;
  if (view.narrow) {
    store_narrow(static_cast<__nv_bfloat16*>(view.data) + at, values);
  } else {
    Pack<float, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = values[i];
    *reinterpret_cast<Pack<float, N>*>(static_cast<float*>(view.data) + at) = pack;
  }
}

/// Whether rows of `columns` numbers can be taken four at a time.
bool by_fours(int64_t columns, std::initializer_list<const Matrix*> matrices) {
  return columns % 4 == 0 && std::all_of(matrices.begin(), matrices.end(), [](const Matrix* matrix) {
           return matrix->stride % 4 == 0 && reinterpret_cast<uintptr_t>(matrix->data) % (4 * size_of(matrix->type)) == 0;
         });
}

/// Threads for a row of `packs` loads.
unsigned threads_for(int64_t packs) { return static_cast<unsigned>(std::clamp<int64_t>((packs + 31) / 32 * 32, 32, 512)); }

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

template <int N>
__device__ __forceinline__ void load_gain(const float* gain, int64_t column, float (&values)[N]) {
  const auto pack = *reinterpret_cast<const Pack<float, N>*>(gain + column);
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = pack.at[i];
}

/// A matrix that is added to x, or none.
struct Delta {
  View view;

  __device__ __forceinline__ bool exists() const { return view.data != nullptr; }
  template <int N>
  __device__ __forceinline__ void add_to(float (&values)[N], int64_t row, int64_t column) const {
    float more[N];
    load(view, row, column, more);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] += more[i];
  }
};

/// Parts of it, `step` numbers apart.
struct DeltaParts {
  const float* data;
  int64_t stride;
  int64_t step;
  int count;

  __device__ __forceinline__ bool exists() const { return true; }
  template <int N>
  __device__ __forceinline__ void add_to(float (&values)[N], int64_t row, int64_t column) const {
    const float* const at = data + row * stride + column;
    Pack<float, N> parts[SumParts::kMost];
#pragma unroll
    for (int part = 0; part < SumParts::kMost; ++part) {  // all are asked for at once
      parts[part] = {};
      if (part < count) parts[part] = *reinterpret_cast<const Pack<float, N>*>(at + part * step);
    }
#pragma unroll
    for (int part = 0; part < SumParts::kMost; ++part) {
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] += parts[part].at[i];
    }
  }
};

/// Its registers fit beside those of products, so that its blocks are there when the product before ends.
template <int N, class Added>
__global__ void __maxnreg__(56)
    rms_norm_kernel(View x, Added delta, const float* gain, int64_t columns, float epsilon, View out) {
  constexpr int kHeld = 2;  // loads of a thread that stay in registers
  let_next_kernel_start();
  const int64_t row = blockIdx.x;
  const int64_t first = int64_t{threadIdx.x} * N;
  const int64_t step = int64_t{blockDim.x} * N;
  // No kernel writes the gain. It comes from memory, which the next product's weights keep busy once this may begin.
  float gains[kHeld][N];
#pragma unroll
  for (int turn = 0; turn < kHeld; ++turn) {
    if (first + turn * step < columns) load_gain(gain, first + turn * step, gains[turn]);
  }
  wait_for_earlier_kernels();
  __shared__ float parts[16];
  float squares = 0;
  const auto add_up = [&](int64_t column, float(&values)[N]) {
    load(x, row, column, values);
    if (delta.exists()) {
      delta.add_to(values, row, column);
      store(x, row, column, values);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) squares += values[i] * values[i];
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = delta.exists() && x.narrow ? rounded(values[i]) : values[i];
  };
  float held[kHeld][N];
#pragma unroll
  for (int turn = 0; turn < kHeld; ++turn) {
    if (first + turn * step < columns) add_up(first + turn * step, held[turn]);
  }
  for (int64_t column = first + kHeld * step; column < columns; column += step) {
    float values[N];
    add_up(column, values);
  }
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
  __syncthreads();
  float sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += parts[warp];
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(columns) + epsilon);
  const auto finish = [&](int64_t column, float(&values)[N], const float(&gain_values)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] *= factor * gain_values[i];
    store(out, row, column, values);
  };
#pragma unroll
  for (int turn = 0; turn < kHeld; ++turn) {
    if (first + turn * step < columns) finish(first + turn * step, held[turn], gains[turn]);
  }
  for (int64_t column = first + kHeld * step; column < columns; column += step) {
    float values[N];
    float gain_values[N];
    load(x, row, column, values);  // what this thread has just stored
    load_gain(gain, column, gain_values);
    finish(column, values, gain_values);
  }
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

/// The nearest 8-bit number, ties to even; beyond the largest (infinity too): the largest; NaN keeps its sign.
__device__ __forceinline__ uint8_t narrow_to_byte(DataType type, float value) {
  if (isnan(value)) return static_cast<uint8_t>(__float_as_uint(value) >> 31 << 7 | 0x7f);
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, type == DataType::kE4M3 ? __NV_E4M3 : __NV_E5M2);
}

__device__ __forceinline__ float widen_byte(DataType type, uint8_t value) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(value, type == DataType::kE4M3 ? __NV_E4M3 : __NV_E5M2)));
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
  const int page = places.pages[row];
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
  const int kv_head = (head - rope.query_heads) % layer.kv_heads;
  const TokenPart to(layer, page, position, kv_head, is_value ? layer.value_offset : layer.key_offset, first);
  to.store(0, low);
  to.store(kHalf, high);
}

/// A block for each row and KV head, a thread for each channel. All it reads is under way at once.
__global__ void append_kernel(View keys, View values, LayerPages layer, RowPlaces places) {
  let_next_kernel_start();
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const int channel = static_cast<int>(threadIdx.x);
  const int page = places.pages[row];  // of the pass: no kernel writes these
  const int position = places.positions[row];
  wait_for_earlier_kernels();
  const int64_t column = int64_t{head} * layer.head_dim + channel;
  float key[1];
  float value[1];
  load(keys, row, column, key);
  load(values, row, column, value);
  TokenPart(layer, page, position, head, layer.key_offset, channel).store(0, key);
  TokenPart(layer, page, position, head, layer.value_offset, channel).store(0, value);
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

__global__ void write_tokens_kernel(LayerPages layer, const int32_t* pages, const float* keys, const float* values) {
  const int token = static_cast<int>(blockIdx.x);
  const int numbers = layer.kv_heads * layer.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < numbers; i += static_cast<int>(blockDim.x)) {
    const int head = i / layer.head_dim;
    const int channel = i % layer.head_dim;
    const int page = pages[token / layer.page];
    const int64_t at = int64_t{token} * numbers + i;
    TokenPart(layer, page, token, head, layer.key_offset, channel).store(keys[at]);
    TokenPart(layer, page, token, head, layer.value_offset, channel).store(values[at]);
  }
}

unsigned blocks_for(int64_t count) { return static_cast<unsigned>(count); }

}  // namespace

void gather_rows(const Matrix& x, const int32_t* rows, const Matrix& out, Stream stream) {
  embed_rows(x, rows, nullptr, out, stream);
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

namespace {

template <class Added>
void launch_rms_norm(const Matrix& x, const Added& delta, bool fours, const float* gain, float epsilon, const Matrix& out,
                     Stream stream) {
  if (x.rows == 0) return;
  if (fours) {
    launch_overlapping(rms_norm_kernel<4, Added>, {blocks_for(x.rows), threads_for(x.columns / 4)}, stream, view_of(x), delta,
                       gain, x.columns, epsilon, view_of(out));
  } else {
    launch_overlapping(rms_norm_kernel<1, Added>, {blocks_for(x.rows), threads_for(x.columns)}, stream, view_of(x), delta, gain,
                       x.columns, epsilon, view_of(out));
  }
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace

void rms_norm_rows(const Matrix& x, const Matrix* delta, const float* gain, float epsilon, const Matrix& out, Stream stream) {
  const Delta added{delta == nullptr ? View{nullptr, 0, false} : view_of(*delta)};
  launch_rms_norm(x, added, by_fours(x.columns, {&x, delta == nullptr ? &x : delta, &out}), gain, epsilon, out, stream);
}

void rms_norm_rows(const Matrix& x, const SumParts& parts, const float* gain, float epsilon, const Matrix& out, Stream stream) {
  if (parts.count < 1 || parts.count > SumParts::kMost) throw InternalError("rms_norm_rows: more parts than it adds, or none");
  const DeltaParts added{.data = parts.data, .stride = x.columns, .step = x.rows * x.columns, .count = parts.count};
  launch_rms_norm(x, added, by_fours(x.columns, {&x, &out}), gain, epsilon, out, stream);
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

void write_tokens(const LayerPages& layer, const int32_t* pages, int tokens, const float* keys, const float* values,
                  Stream stream) {
  if (tokens == 0) return;
  const int threads = threads_for(int64_t{layer.kv_heads} * layer.head_dim);
  write_tokens_kernel<<<blocks_for(tokens), threads, 0, stream>>>(layer, pages, keys, values);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace sluice::cuda
