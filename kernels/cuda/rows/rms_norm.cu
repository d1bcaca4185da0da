#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/primitives/warp.cuh"
#include "kernels/cuda/rows/row_view.cuh"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using namespace row_view;

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

}  // namespace sluice::cuda
