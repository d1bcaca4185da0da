#include "kernels/cuda/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cuda/decode_merge.cuh"
#include "kernels/cuda/decode_stretch.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/runtime.h"
#include "scripting/graph/error.h"

namespace sluice::cuda {
namespace {

using namespace decode;

__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_transposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// c[16 heads, 8] += a[16 heads, 16] * b[16, 8].
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int Dim, int Box, bool Wide>
__global__ void __launch_bounds__(Shape<Dim, Box>::kThreads, 1)
    decode_kernel(const __grid_constant__ CUtensorMap map, const Arguments a) {
  using S = Shape<Dim, Box>;
  constexpr int kSteps = Dim / 16;
  constexpr int kStages = S::kStages;
  extern __shared__ std::byte raw[];
  std::byte* tiles = raw + (1024 - shared_address(raw) % 1024) % 1024;
  float* merge = reinterpret_cast<float*>(tiles + S::kWarps * kStages * S::kTileBytes);
  uint64_t* barriers = reinterpret_cast<uint64_t*>(merge + S::kMergeFloats);
  __shared__ float warp_maximum[S::kWarps][16];
  __shared__ float warp_sum[S::kWarps][16];
  __shared__ bool merges;

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const uint32_t ring_barriers = shared_address(barriers + warp * kStages);
  std::byte* ring = tiles + warp * kStages * S::kTileBytes;
  if (threadIdx.x == 0) asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
  if (lane < kStages) barrier_init(ring_barriers + 8 * lane, 1);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  // All of the above overlaps the end of the kernel before; nothing that it wrote may be read earlier than here.
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int rows = a.sequences * a.kv_heads;
  const Stretch stretch = find_stretch<S::kThreads, Dim>(a, rows);  // its barriers also publish the mbarriers
  if (stretch.first >= stretch.last) return;

  Source<Dim, Box> source(a, stretch, warp);
  int asked = 0;  // tiles of this warp
  const auto copy = [&](int slot) {
    source.copy(&map, a, stretch, asked, shared_address(ring + slot * S::kTileBytes), ring_barriers + 8 * slot);
    ++asked;
  };
  for (int slot = 0; slot < kStages; ++slot) copy(slot);

  int slot = 0;
  uint32_t parity = 0;
  int tile_index = stretch.first + warp;
  for (int row = stretch.row, row_begin = stretch.row_begin; row_begin < stretch.last;) {  // all warps are in the same row
    const int tokens = row_tokens(a, row);
    const int row_end = row_begin + tiles_of(tokens);
    const __nv_bfloat16* q = a.q + row / a.kv_heads * a.query_stride + row % a.kv_heads * a.group * Dim;
    uint32_t query[kSteps][4];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const int column = 16 * k + 2 * (lane % 4);
      const auto load = [&](int head, int at) {
        return head < a.group ? __ldg(reinterpret_cast<const uint32_t*>(q + head * Dim + at)) : 0U;
      };
      query[k][0] = load(lane / 4, column);
      query[k][1] = Wide ? load(lane / 4 + 8, column) : 0U;
      query[k][2] = load(lane / 4, column + 8);
      query[k][3] = Wide ? load(lane / 4 + 8, column + 8) : 0U;
    }
    float output[Dim / 8][4] = {};
    float maximum[2] = {-INFINITY, -INFINITY};
    float sum[2] = {0, 0};

    for (; tile_index < min(row_end, stretch.last); tile_index += S::kWarps) {
      barrier_wait(ring_barriers + 8 * slot, parity);
      const uint32_t tile = shared_address(ring + slot * S::kTileBytes);
      float scores[2][4] = {};
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        uint32_t keys[4];
        load_matrices(tile + S::offset(0, lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2), keys);
        multiply(scores[0], query[k], keys[0], keys[1]);
        multiply(scores[1], query[k], keys[2], keys[3]);
      }
      const int left = tokens - (tile_index - row_begin) * kTileTokens;
      if (left < kTileTokens) {
        // What lies past the last token may be anything, and 0 * NaN would be NaN.
        for (int i = lane; i < (kTileTokens - left) * (Dim / 8); i += 32) {
          *reinterpret_cast<uint4*>(ring + slot * S::kTileBytes + S::offset(1, left + i / (Dim / 8), i % (Dim / 8))) = {0, 0, 0,
                                                                                                                        0};
        }
        __syncwarp();
      }
      float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < (Wide ? 4 : 2); ++i) {
          scores[n][i] = 8 * n + 2 * (lane % 4) + i % 2 < left ? scores[n][i] * a.scale : -INFINITY;
          largest[i / 2] = fmaxf(largest[i / 2], scores[n][i]);
        }
      }
      float shift[2];
#pragma unroll
      for (int half = 0; half < (Wide ? 2 : 1); ++half) {
        const float higher = fmaxf(maximum[half], quad_max(largest[half]));
        // Where every score so far is -inf, its powers are to vanish rather than to be NaN.
        shift[half] = higher == -INFINITY ? 0.0f : higher;
        const float rescale = exp2f(maximum[half] - shift[half]);
        if (__any_sync(0xffffffffU, maximum[half] != higher)) {
#pragma unroll
          for (int n = 0; n < Dim / 8; ++n) {
            output[n][2 * half] *= rescale;
            output[n][2 * half + 1] *= rescale;
          }
          sum[half] *= rescale;
        }
        maximum[half] = higher;
      }
      uint32_t weights[4] = {0, 0, 0, 0};
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int half = 0; half < (Wide ? 2 : 1); ++half) {
          const float p0 = exp2f(scores[n][2 * half] - shift[half]);
          const float p1 = exp2f(scores[n][2 * half + 1] - shift[half]);
          sum[half] += p0 + p1;
          weights[2 * n + half] = pack(p0, p1);
        }
      }
#pragma unroll
      for (int n = 0; n < Dim / 16; ++n) {
        uint32_t values[4];
        load_transposed(tile + S::offset(1, lane % 8 + lane / 8 % 2 * 8, 2 * n + lane / 16), values);
        multiply(output[2 * n], weights, values[0], values[1]);
        multiply(output[2 * n + 1], weights, values[2], values[3]);
      }
      // The copy engine writes here next: after what this warp wrote, and after all its lanes have read.
      if (left < kTileTokens) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      copy(slot);
      if (++slot == kStages) {
        slot = 0;
        parity ^= 1;
      }
    }

    // The warps' parts of this row become one, once all have read those of the row before.
    __syncthreads();
#pragma unroll
    for (int half = 0; half < (Wide ? 2 : 1); ++half) {
      sum[half] = quad_sum(sum[half]);
      if (lane % 4 == 0) {
        warp_maximum[warp][lane / 4 + 8 * half] = maximum[half];
        warp_sum[warp][lane / 4 + 8 * half] = sum[half];
      }
    }
    const bool whole = row_begin >= stretch.first && row_end <= stretch.last;
    float* partial =
        a.partials + (2 * static_cast<size_t>(blockIdx.x) + (row_begin >= stretch.first ? 1 : 0)) * a.group * (Dim + 2);
    for (int base = 0; base < a.group; base += S::kMergeRows) {
      const bool upper = Wide && base >= 8;
      const int heads = min(S::kMergeRows, a.group - base);
      const int mine = lane / 4 + (upper ? 8 : 0) - base;
      __syncthreads();
      if (mine >= 0 && mine < heads) {
#pragma unroll
        for (int n = 0; n < Dim / 8; ++n) {
          const float2 pair = upper ? make_float2(output[n][2], output[n][3]) : make_float2(output[n][0], output[n][1]);
          *reinterpret_cast<float2*>(merge + (warp * S::kMergeRows + mine) * Dim + 8 * n + 2 * (lane % 4)) = pair;
        }
      }
      __syncthreads();
      for (int i = threadIdx.x; i < heads * Dim; i += S::kThreads) {
        const int head = base + i / Dim;
        float highest = -INFINITY;
#pragma unroll
        for (int w = 0; w < S::kWarps; ++w) highest = fmaxf(highest, warp_maximum[w][head]);
        const float shift = highest == -INFINITY ? 0.0f : highest;
        float total = 0;
        float value = 0;
#pragma unroll
        for (int w = 0; w < S::kWarps; ++w) {
          const float weight = exp2f(warp_maximum[w][head] - shift);
          total += weight * warp_sum[w][head];
          value += weight * merge[w * S::kMergeRows * Dim + i];
        }
        if (whole) {
          const int64_t at = (static_cast<int64_t>(row) * a.group + base) * Dim + i;
          a.out[at] = __float2bfloat16(total > 0 ? value / total : 0.0f);
          if (a.log_sums != nullptr && i % Dim == 0)
            a.log_sums[static_cast<int64_t>(row) * a.group + head] = highest + log2f(total);
        } else {
          if (i % Dim == 0) {
            partial[head] = highest;
            partial[a.group + head] = total;
          }
          partial[2 * a.group + base * Dim + i] = value;
        }
      }
    }
    if (!whole) {
      __syncthreads();
      if (threadIdx.x == 0) {
        __threadfence();
        const int parts = (row_end - 1) / stretch.length - row_begin / stretch.length + 1;
        merges = atomicAdd(a.arrived + row, 1) + 1 == parts;
        if (merges) a.arrived[row] = 0;
        __threadfence();
      }
      __syncthreads();
      if (merges) merge_row<Dim, S::kThreads>(a, row, row_begin, row_end, stretch.length, merge);
    }
    ++row;
    row_begin = row_end;
  }
}

template <int Dim, int Box, bool Wide>
void launch(const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  using S = Shape<Dim, Box>;
  static_assert(S::kSharedBytes <= 227 * 1024 - 2048);
  auto* kernel = decode_kernel<Dim, Box, Wide>;
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(S::kSharedBytes)));
  launch_overlapping(kernel, {dim3(blocks), dim3(S::kThreads), S::kSharedBytes}, stream, map, a);
}

template <int Dim, int Box>
void launch_group(const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  if (a.group > 8) {
    launch<Dim, Box, true>(map, a, blocks, stream);
  } else {
    launch<Dim, Box, false>(map, a, blocks, stream);
  }
}

template <int Dim>
void launch_page(const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  if (a.page % kTileTokens == 0) {
    launch_group<Dim, 16>(map, a, blocks, stream);
  } else {
    launch_group<Dim, 8>(map, a, blocks, stream);
  }
}

}  // namespace

DecodeAttention::DecodeAttention(const PagedKv& kv)
    : kv_(kv),
      blocks_(std::min(multiprocessors(), decode::kMostBlocks)),
      map_(map_blocks(kv, kv.layout.page % decode::kTileTokens == 0 ? decode::kTileTokens : 8, true)) {}

size_t DecodeAttention::workspace_bytes(const DecodeShape& shape) const {
  const size_t rows = static_cast<size_t>(shape.sequences) * kv_.kv_heads;
  const size_t arrived = (rows * sizeof(int) + 255) / 256 * 256;
  return arrived + static_cast<size_t>(blocks_) * 2 * shape.group * (kv_.layout.head_dim + 2) * sizeof(float);
}

void DecodeAttention::run(const DecodeShape& shape, const PageLists& lists, const void* q, void* out, float* log_sums,
                          void* workspace, Stream stream) const {
  if (shape.group < 1 || shape.group > 16) throw InternalError("a group of " + std::to_string(shape.group) + " query heads");
  const size_t rows = static_cast<size_t>(shape.sequences) * kv_.kv_heads;
  const Arguments a{
      .pages = lists.pages,
      .starts = lists.starts,
      .tokens = lists.tokens,
      .q = static_cast<const __nv_bfloat16*>(q),
      .query_stride = shape.query_stride > 0 ? shape.query_stride : int64_t{kv_.kv_heads} * shape.group * kv_.layout.head_dim,
      .out = static_cast<__nv_bfloat16*>(out),
      .log_sums = log_sums,
      .partials = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + (rows * sizeof(int) + 255) / 256 * 256),
      .arrived = static_cast<int*>(workspace),
      .sequences = shape.sequences,
      .kv_heads = kv_.kv_heads,
      .group = shape.group,
      .page = kv_.layout.page,
      .per_head = lists.per_head,
      .scale = shape.scale * kLog2E};
  const CUtensorMap map = to_cuda(map_);
  switch (kv_.layout.head_dim) {
    case 64:
      launch_page<64>(map, a, blocks_, stream);
      break;
    case 128:
      launch_page<128>(map, a, blocks_, stream);
      break;
    default:
      launch_page<256>(map, a, blocks_, stream);
  }
}

}  // namespace sluice::cuda
