#include <cuda.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/runtime.h"
#include "scripting/graph/error.h"

namespace sluice::cuda {
namespace {

constexpr int kTileTokens = 16;
constexpr uint64_t kEvictFirst = 0x12F0000000000000;  // L2 policy, as CUTLASS and cuda::access_property encode it
constexpr int kMostBlocks = 140;                      // multiprocessors
constexpr float kLog2E = 1.44269504088896341f;

/// What a kernel of one head size is made of. A tile is K and V of 16 tokens, as the tensor copies lay it out: boxes of kBox
/// tokens; in a box K then V; in each, panels of 64 channels; in a panel a row of 128 bytes a token, its 16-byte chunks permuted
/// by the row (the 128-byte swizzle), so that eight rows of one chunk lie in different banks.
template <int Dim, int Box>
struct Shape {
  static constexpr int kWarps = Dim == 256 ? 4 : 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kHalfBytes = kTileTokens * Dim * 2;  // K or V of a tile
  static constexpr int kTileBytes = 2 * kHalfBytes;
  static constexpr int kStages = 192 * 1024 / (kWarps * kTileBytes);
  static constexpr int kMergeRows = 4;                       // heads that are merged at once
  static constexpr int kPartFloats = kMostBlocks * 16 + 16;  // what merging the stretches of a row needs
  static constexpr int kMergeFloats = kWarps * kMergeRows * Dim > kPartFloats ? kWarps* kMergeRows* Dim : kPartFloats;
  static constexpr size_t kSharedBytes =
      1024 + static_cast<size_t>(kWarps) * kStages * kTileBytes + kMergeFloats * sizeof(float) + kWarps * kStages * 8;

  /// Byte of 16-byte chunk `chunk` (8 channels) of `token` in a tile; of V if `value`.
  static __device__ __forceinline__ uint32_t offset(int value, int token, int chunk) {
    constexpr int kPanel = Box * 128;
    const int box = token / Box;
    const int row = token % Box;
    return box * (2 * Box * Dim * 2) + value * (Box * Dim * 2) + chunk / 8 * kPanel + row * 128 +
           (((chunk % 8) ^ (row % 8)) << 4);
  }
};

struct Arguments {
  const int32_t* pages;
  const int32_t* starts;
  const int32_t* tokens;
  const __nv_bfloat16* q;
  __nv_bfloat16* out;
  float* log_sums;
  float* partials;  // [blocks][2][group][dim + 2]
  int* arrived;     // [rows] stretches of a row that have ended
  int sequences;
  int kv_heads;
  int group;
  int page;
  bool per_head;
  float scale;  // of q . k, in base 2
};

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
}

__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Copies a box of tokens [token, token + Box) of one block, K and V, to shared memory.
__device__ __forceinline__ void copy_box(const CUtensorMap* map, uint32_t target, uint64_t* barrier, int token, int block) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %3, %3, "
      "%5}], "
      "[%2], %6;" ::"r"(target),
      "l"(map), "r"(shared_address(barrier)), "r"(0), "r"(token), "r"(block), "l"(kEvictFirst)
      : "memory");
}

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

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

/// Largest of the four threads that hold a row.
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffU, value, 1);
  return value + __shfl_xor_sync(0xffffffffU, value, 2);
}

__device__ __forceinline__ int tiles_of(int tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }

/// The list of a row (sequence, KV head).
__device__ __forceinline__ int list_of(const Arguments& a, int row) { return a.per_head ? row : row / a.kv_heads; }
__device__ __forceinline__ int row_tokens(const Arguments& a, int row) { return __ldg(a.tokens + list_of(a, row)); }

/// What a block does: tiles [first, last) of all rows laid end to end.
struct Stretch {
  int first = 0;
  int last = 0;
  int length = 0;  // of every block's stretch but the last
  int row = 0;     // of `first`
  int row_begin = 0;
};

/// The output of a row without tokens, which has no tile.
__device__ void clear_row(const Arguments& a, int row, int dim) {
  for (int i = 0; i < a.group * dim; ++i) a.out[static_cast<int64_t>(row) * a.group * dim + i] = __float2bfloat16(0.0f);
  for (int i = 0; a.log_sums != nullptr && i < a.group; ++i) a.log_sums[static_cast<int64_t>(row) * a.group + i] = -INFINITY;
}

/// Lays all rows end to end and finds this block's stretch. Rows that are hardly longer than an even share get a block each,
/// which saves merging them.
template <int Threads, int Dim>
__device__ Stretch find_stretch(const Arguments& a, int rows) {
  __shared__ int warp_tiles[Threads / 32];
  __shared__ int warp_longest[Threads / 32];
  __shared__ int found_row;
  __shared__ int found_begin;
  const int per_thread = (rows + Threads - 1) / Threads;
  const int begin = min(rows, static_cast<int>(threadIdx.x) * per_thread);
  const int end = min(rows, begin + per_thread);
  int mine = 0;
  int longest = 0;
  for (int row = begin; row < end; ++row) {
    const int tiles = tiles_of(row_tokens(a, row));
    asm volatile("prefetch.global.L1 [%0];" ::"l"(a.starts + list_of(a, row)));
    if (tiles == 0 && row % gridDim.x == blockIdx.x) clear_row(a, row, Dim);
    mine += tiles;
    longest = max(longest, tiles);
  }
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int sum = mine;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffU, sum, step);
    if (lane >= step) sum += other;
  }
  longest = __reduce_max_sync(0xffffffffU, longest);
  if (lane == 31) {
    warp_tiles[warp] = sum;
    warp_longest[warp] = longest;
  }
  __syncthreads();
  int before = sum - mine;
  int total = 0;
  longest = 0;
  for (int w = 0; w < Threads / 32; ++w) {
    if (w < warp) before += warp_tiles[w];
    total += warp_tiles[w];
    longest = max(longest, warp_longest[w]);
  }
  constexpr int kSpare = 8;
  const int blocks = static_cast<int>(gridDim.x);
  int length = max(1, (total + blocks - 1) / blocks);
  if (longest > length && longest <= length + kSpare && rows <= blocks) length = longest;
  const int first = static_cast<int>(blockIdx.x) * length;
  if (first >= before && first < before + mine) {
    int row = begin;
    int at = before;
    for (;; ++row) {
      const int tiles = tiles_of(row_tokens(a, row));
      if (first < at + tiles) break;
      at += tiles;
    }
    found_row = row;
    found_begin = at;
  }
  __syncthreads();
  return {first, min(total, first + length), length, found_row, found_begin};
}

/// Where the tiles of a warp lie in the pool. Its lanes look 32 tiles up at a time, each its own, and later copy them.
template <int Dim, int Box>
class Source {
 public:
  static constexpr int kBoxes = kTileTokens / Box;

  __device__ Source(const Arguments& a, const Stretch& stretch, int warp)
      : tile_(stretch.first + warp + static_cast<int>(threadIdx.x) % 32 * Shape<Dim, Box>::kWarps),
        row_(stretch.row),
        row_begin_(stretch.row_begin),
        row_end_(stretch.row_begin + tiles_of(row_tokens(a, stretch.row))) {
    look_up(a, stretch);
  }

  /// Copies tile number `index` of this warp to shared memory, if there is one. Called for 0, 1, 2 and so on, by all lanes.
  __device__ __forceinline__ void copy(const CUtensorMap* map, const Arguments& a, const Stretch& stretch, int index,
                                       uint32_t target, uint64_t* barrier) {
    if (static_cast<int>(threadIdx.x) % 32 == index % 32 && tile_ < stretch.last) {
      barrier_expect(barrier, Shape<Dim, Box>::kTileBytes);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        copy_box(map, target + box * (Shape<Dim, Box>::kTileBytes / kBoxes), barrier, token_[box], block_[box]);
      }
    }
    if (index % 32 == 31) {
      tile_ += 32 * Shape<Dim, Box>::kWarps;
      look_up(a, stretch);
    }
  }

 private:
  __device__ void look_up(const Arguments& a, const Stretch& stretch) {
    if (tile_ >= stretch.last) return;
    while (tile_ >= row_end_) {
      ++row_;
      row_begin_ = row_end_;
      row_end_ += tiles_of(row_tokens(a, row_));
    }
    const int list = list_of(a, row_);
    const int boxes_per_page = a.page / Box;
    const int last_page = (__ldg(a.tokens + list) + a.page - 1) / a.page - 1;
    const int32_t* pages = a.pages + __ldg(a.starts + list);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int at = (tile_ - row_begin_) * kBoxes + box;
      // Past the end: any page, since its scores are masked.
      block_[box] = __ldg(pages + min(at / boxes_per_page, last_page)) * a.kv_heads + row_ % a.kv_heads;
      token_[box] = at % boxes_per_page * Box;
    }
  }

  int tile_;
  int row_;
  int row_begin_;
  int row_end_;
  int block_[kBoxes];
  int token_[kBoxes];
};

/// Merges what the stretches of a row found, in their order, once all are there. scratch: [group][parts] floats, and [group].
template <int Dim, int Threads>
__device__ void merge_row(const Arguments& a, int row, int row_begin, int row_end, int length, float* scratch) {
  const int first = row_begin / length;
  const int parts = (row_end - 1) / length - first + 1;
  const size_t step = static_cast<size_t>(a.group) * (Dim + 2);
  // A row that begins in a block is the last one there; where it goes on it is the first.
  const float* begin = a.partials + (2 * static_cast<size_t>(first) + 1) * step;
  const auto partial = [&](int part) { return part == 0 ? begin : begin + (2 * static_cast<size_t>(part) - 1) * step; };
  const int64_t out_row = static_cast<int64_t>(row) * a.group;  // rows are (sequence, KV head), then heads of the group
  float* inverse = scratch + parts * a.group;
  // These are on their way while the weights are found.
  constexpr int kEarly = 8;
  const int early = static_cast<int>(threadIdx.x) < a.group * Dim ? min(kEarly, parts) : 0;
  float values[kEarly];
#pragma unroll
  for (int part = 0; part < kEarly; ++part) values[part] = part < early ? __ldcg(partial(part) + 2 * a.group + threadIdx.x) : 0;

  const int lane = threadIdx.x % 32;
  for (int head = threadIdx.x / 32; head < a.group; head += Threads / 32) {
    constexpr int kRounds = (kMostBlocks + 31) / 32;
    float maxima[kRounds];
    float sums[kRounds];
    float maximum = -INFINITY;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int part = 32 * round + lane;
      maxima[round] = part < parts ? __ldcg(partial(part) + head) : -INFINITY;
      sums[round] = part < parts ? __ldcg(partial(part) + a.group + head) : 0;
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) maximum = fmaxf(maximum, maxima[round]);
    for (int step_lanes = 16; step_lanes > 0; step_lanes /= 2) {
      maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffU, maximum, step_lanes));
    }
    float sum = 0;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int part = 32 * round + lane;
      const float weight = maximum == -INFINITY ? 0.0f : exp2f(maxima[round] - maximum);
      if (part < parts) scratch[head * parts + part] = weight;
      sum += weight * sums[round];
    }
    for (int step_lanes = 16; step_lanes > 0; step_lanes /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step_lanes);
    if (lane == 0) {
      inverse[head] = sum > 0 ? 1 / sum : 0;
      if (a.log_sums != nullptr) a.log_sums[out_row + head] = maximum + log2f(sum);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.group * Dim; i += Threads) {
    const float* weights = scratch + i / Dim * parts;
    float value = 0;
    int part = 0;
    if (i == static_cast<int>(threadIdx.x)) {
#pragma unroll
      for (; part < kEarly; ++part) value += part < parts ? weights[part] * values[part] : 0;
    }
#pragma unroll 8
    for (; part < parts; ++part) value += weights[part] * __ldcg(partial(part) + 2 * a.group + i);
    a.out[out_row * Dim + i] = __float2bfloat16(value * inverse[i / Dim]);
  }
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
  uint64_t* ring_barriers = barriers + warp * kStages;
  std::byte* ring = tiles + warp * kStages * S::kTileBytes;
  if (threadIdx.x == 0) asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
  if (lane < kStages) barrier_init(ring_barriers + lane);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  // All of the above overlaps the end of the kernel before; nothing that it wrote may be read earlier than here.
  asm volatile("griddepcontrol.launch_dependents;\n griddepcontrol.wait;" ::: "memory");
  const int rows = a.sequences * a.kv_heads;
  const Stretch stretch = find_stretch<S::kThreads, Dim>(a, rows);  // its barriers also publish the mbarriers
  if (stretch.first >= stretch.last) return;

  Source<Dim, Box> source(a, stretch, warp);
  int asked = 0;  // tiles of this warp
  const auto copy = [&](int slot) {
    source.copy(&map, a, stretch, asked, shared_address(ring + slot * S::kTileBytes), ring_barriers + slot);
    ++asked;
  };
  for (int slot = 0; slot < kStages; ++slot) copy(slot);

  int slot = 0;
  uint32_t parity = 0;
  int tile_index = stretch.first + warp;
  for (int row = stretch.row, row_begin = stretch.row_begin; row_begin < stretch.last;) {  // all warps are in the same row
    const int tokens = row_tokens(a, row);
    const int row_end = row_begin + tiles_of(tokens);
    const __nv_bfloat16* q = a.q + static_cast<int64_t>(row) * a.group * Dim;
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
      barrier_wait(ring_barriers + slot, parity);
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
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = S::kSharedBytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  SLUICE_CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, map, a));
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

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, without linking the driver: machines that only build have none.
EncodeTiled encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  SLUICE_CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) throw InternalError("the CUDA driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<EncodeTiled>(function);
}

}  // namespace

DecodeAttention::DecodeAttention(const PagedKv& kv) : kv_(kv), blocks_(std::min(multiprocessors(), kMostBlocks)) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  const PageLayout& layout = kv.layout;
  if (layout.kv != DataType::kBF16) throw InputError("CUDA attention takes bf16 KV, not " + std::string(name_of(layout.kv)));
  if (layout.head_dim != 64 && layout.head_dim != 128 && layout.head_dim != 256) {
    throw InputError("CUDA attention takes heads of 64, 128 or 256 channels, not " + std::to_string(layout.head_dim));
  }
  if (layout.page < 8 || layout.page > 128 || layout.page % 8 != 0) {
    throw InputError("CUDA attention takes pages of 8 to 128 tokens, not " + std::to_string(layout.page));
  }
  if (layout.value_offset <= layout.key_offset || layout.bytes % 16 != 0) throw InternalError("V must follow K in a page");
  // Channels in panels of 64, tokens, panels, K and V, blocks.
  const cuuint64_t sizes[5] = {64, static_cast<cuuint64_t>(layout.page), static_cast<cuuint64_t>(layout.head_dim / 64), 2,
                               static_cast<cuuint64_t>(kv.pages) * kv.kv_heads};
  const cuuint64_t strides[4] = {static_cast<cuuint64_t>(layout.head_dim) * 2, 128, layout.value_offset - layout.key_offset,
                                 layout.bytes};
  const cuuint32_t box[5] = {64, static_cast<cuuint32_t>(layout.page % kTileTokens == 0 ? kTileTokens : 8),
                             static_cast<cuuint32_t>(layout.head_dim / 64), 2, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const CUresult result = encode_tiled()(reinterpret_cast<CUtensorMap*>(&map_), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5,
                                         const_cast<std::byte*>(kv.base + layout.key_offset), sizes, strides, box, steps,
                                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw InternalError("cuTensorMapEncodeTiled failed with " + std::to_string(static_cast<int>(result)));
}

size_t DecodeAttention::workspace_bytes(const DecodeShape& shape) const {
  const size_t rows = static_cast<size_t>(shape.sequences) * kv_.kv_heads;
  const size_t arrived = (rows * sizeof(int) + 255) / 256 * 256;
  return arrived + static_cast<size_t>(blocks_) * 2 * shape.group * (kv_.layout.head_dim + 2) * sizeof(float);
}

void DecodeAttention::run(const DecodeShape& shape, const PageLists& lists, const void* q, void* out, float* log_sums,
                          void* workspace, Stream stream) const {
  if (shape.group < 1 || shape.group > 16) throw InternalError("a group of " + std::to_string(shape.group) + " query heads");
  const size_t rows = static_cast<size_t>(shape.sequences) * kv_.kv_heads;
  Arguments a{.pages = lists.pages,
              .starts = lists.starts,
              .tokens = lists.tokens,
              .q = static_cast<const __nv_bfloat16*>(q),
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
  CUtensorMap map;
  std::memcpy(&map, &map_, sizeof(map));
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
