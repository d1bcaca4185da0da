#include "kernels/cuda/attention/prompt_masses.h"

#include <algorithm>

#include "kernels/cuda/attention/prompt_keys.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

// Of each query head, tiles of rows are multiplied with tiles of tokens twice: once for the logarithms of what rows sum to, once,
// tokens by tokens, for what each token is given. Where tiles of rows are few, blocks share the tokens of each.

namespace sluice::cuda {
namespace {

using namespace masses;

/// Of keys of Dim numbers.
template <int Dim>
constexpr int kStages = Dim == 256 ? 2 : 3;
template <DataType Type, int Dim>
using StreamedTiles = KeyTiles<Type, Dim, kStages<Dim>>;
constexpr int kBlockTiles = 2;  // of tokens that a block sums for, so that queries are read half as often
template <DataType Type, int Dim>
using BlockTiles = KeyTiles<Type, Dim, kBlockTiles>;

/// A query head.
struct Head {
  int number;
  int kv;

  __device__ __forceinline__ Head(const Task& task, int number) : number(number), kv(number / task.rows.group) {}
};

/// Sixteen rows of a warp: a thread has rows lane / 4 and 8 further on.
template <int Dim>
class WarpRows {
 public:
  /// Those from `first` on.
  __device__ WarpRows(const Task& task, const Head& head, int first) : task_(task), head_(head), first_(first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + lane / 4 + 8 * half;
      exists_[half] = row < task.rows.rows;
      const uint16_t* const q = task.rows.q + row * task.rows.q_stride + head.number * Dim + 2 * (lane % 4);
#pragma unroll
      for (int k = 0; k < Dim / 16; ++k) {
        query_[k][half] = exists_[half] ? *reinterpret_cast<const uint32_t*>(q + 16 * k) : 0;
        query_[k][2 + half] = exists_[half] ? *reinterpret_cast<const uint32_t*>(q + 16 * k + 8) : 0;
      }
      last_[half] = exists_[half] ? task.rows.slots[row] : -1;
      const int words = (task.rows.length + 31) / 32;
      if (task.rows.masks != nullptr)
        mask_[half] =
            task.rows.masks + (static_cast<int64_t>(row) * task.rows.mask_heads + head.kv % task.rows.mask_heads) * words;
    }
  }

  __device__ bool exists(int half) const { return exists_[half]; }
  __device__ int row(int half) const { return first_ + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half; }

  /// scores[token / 8][2 * half + token % 2] of the tokens of a tile that begins at slot `first`, without the scale: -inf of
  /// those that a row does not see.
  __device__ void score(uint32_t tile, int first, float (&scores)[kTile / 8][4]) const {
    constexpr int kRowBytes = BlockTiles<DataType::kBF16, Dim>::kRowBytes;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t at = tile + (lane % 8 + lane / 16 * 8) * kRowBytes + lane / 8 % 2 * 16;
#pragma unroll
    for (int n = 0; n < kTile / 8; n += 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = scores[n + 1][i] = 0;
#pragma unroll
      for (int k = 0; k < Dim / 16; ++k) {
        uint32_t keys[4];
        decode::load_matrices(at + n * 8 * kRowBytes + k * 32, keys);
        decode::multiply<true>(scores[n], query_[k], keys[0], keys[1]);
        decode::multiply<true>(scores[n + 1], query_[k], keys[2], keys[3]);
      }
    }
    uint32_t words[2][kTile / 32];
    uint32_t all = ~0U;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int w = 0; w < kTile / 32; ++w) all &= words[half][w] = word(half, first / 32 + w);
    }
    if (__all_sync(0xffffffffU, all == ~0U) != 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        const uint32_t own = words[half][n / 4] >> 2 * (lane % 4);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if ((own & 1U << (n % 4 * 8 + i)) == 0) scores[n][2 * half + i] = kMinusInfinity;
        }
      }
    }
  }

 private:
  /// A bit for each of 32 slots that a row sees.
  __device__ uint32_t word(int half, int index) const {
    if (!exists_[half] || index >= (task_.rows.length + 31) / 32) return 0;
    if (task_.rows.masks != nullptr) return mask_[half][index];
    const int seen = last_[half] + 1 - 32 * index;
    return seen >= 32 ? ~0U : seen <= 0 ? 0 : (1U << seen) - 1;
  }

  const Task& task_;
  const Head& head_;
  int first_;
  bool exists_[2];
  int last_[2];
  const uint32_t* mask_[2] = {};
  uint32_t query_[Dim / 16][4];
};

/// Slots that any of the rows [first, first + kTile) sees are below this.
__device__ int end_of(const PromptRows& rows, int first) {
  return rows.masks != nullptr ? rows.length : rows.slots[min(rows.rows, first + kTile) - 1] + 1;
}

/// The logarithm, in base 2, of a sum of powers of 2.
__device__ __forceinline__ float log_of(float maximum, float sum) { return sum > 0 ? maximum + log2f(sum) : kMinusInfinity; }

/// A block for each tile of rows, query head, and share of the tokens that rows of the tile see.
template <DataType Type, int Dim>
__global__ void __launch_bounds__(kThreads) log_sums_kernel(const __grid_constant__ Task task) {
  extern __shared__ __align__(16) uint8_t shared[];
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const Head head(task, static_cast<int>(blockIdx.y));
  // The last see the most tokens.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int shares = static_cast<int>(gridDim.z);
  const int share = static_cast<int>(blockIdx.z);
  const int tiles = (end_of(task.rows, first) + kTile - 1) / kTile;
  const int of_share = (tiles + shares - 1) / shares;
  const int begin = share * of_share * kTile;
  const int end = min(tiles, (share + 1) * of_share) * kTile;
  StreamedTiles<Type, Dim> keys(task, head.kv, shared);
  for (int i = 0; i < keys.kAhead; ++i) keys.ask(begin + i * kTile, end);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const WarpRows<Dim> mine(task, head, first + 16 * warp);
  const float scale = task.rows.scale * kLog2E;
  float maximum[2] = {kMinusInfinity, kMinusInfinity};  // without the scale
  float sum[2] = {0, 0};
  for (int at = begin; at < end; at += kTile) {
    const uint32_t tile = keys.take();
    keys.ask(at + keys.kAhead * kTile, end);
    float scores[kTile / 8][4];
    mine.score(tile, at, scores);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = maximum[half];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) highest = fmaxf(highest, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      highest = quad_max(highest);
      const float shift = highest == kMinusInfinity ? 0 : highest * scale;
      sum[half] *= power(__fmaf_rn(maximum[half], scale, -shift));
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n)
        sum[half] +=
            power(__fmaf_rn(scores[n][2 * half], scale, -shift)) + power(__fmaf_rn(scores[n][2 * half + 1], scale, -shift));
      maximum[half] = highest;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = quad_sum(sum[half]);
    if (threadIdx.x % 4 != 0 || !mine.exists(half)) continue;
    if (shares == 1) {
      task.log_sums[static_cast<int64_t>(head.number) * task.rows.rows + mine.row(half)] = log_of(maximum[half] * scale, total);
    } else {
      task.parts[(static_cast<int64_t>(share) * gridDim.y + head.number) * task.rows.rows + mine.row(half)] = {
          maximum[half] * scale, total};
    }
  }
}

/// A thread for each row and query head.
__global__ void __launch_bounds__(kThreads) merge_shares_kernel(const __grid_constant__ Task task, int count, int shares) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int place = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (place >= count) return;
  float maximum = kMinusInfinity;
  for (int share = 0; share < shares; ++share)
    maximum = fmaxf(maximum, task.parts[static_cast<int64_t>(share) * count + place].x);
  float sum = 0;
  for (int share = 0; share < shares; ++share) {
    const float2 part = task.parts[static_cast<int64_t>(share) * count + place];
    if (part.y > 0) sum += part.y * power(part.x - maximum);
  }
  task.log_sums[place] = log_of(maximum, sum);
}

/// The first row that may see a slot at `slot` or behind it.
__device__ int first_row_at(const PromptRows& rows, int slot) {
  if (rows.masks != nullptr) return 0;
  int begin = 0;
  for (int end = rows.rows; begin < end;) {
    const int middle = (begin + end) / 2;
    if (rows.slots[middle] < slot) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

/// What the rows give each token of a block's tiles, by one query head.
template <int Dim>
__device__ void sum_columns(const Task& task, const Head& head, const uint32_t (&tiles)[kBlockTiles], int begin,
                            float (&of_warps)[kWarps][kBlockTiles * kTile]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float scale = task.rows.scale * kLog2E;
  float columns[kBlockTiles][kTile / 8][2] = {};
  for (int first = first_row_at(task.rows, begin); first < task.rows.rows; first += kTile) {
    const WarpRows<Dim> mine(task, head, first + 16 * warp);
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t place = static_cast<int64_t>(head.number) * task.rows.rows + mine.row(half);
      const float log_sum = mine.exists(half) ? task.log_sums[place] : kMinusInfinity;
      // Where a row has seen nothing, or is none, its scores are -inf.
      shift[half] = log_sum == kMinusInfinity ? 0 : log_sum;
    }
#pragma unroll
    for (int tile = 0; tile < kBlockTiles; ++tile) {
      float scores[kTile / 8][4];
      mine.score(tiles[tile], begin + tile * kTile, scores);
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) columns[tile][n][i % 2] += power(__fmaf_rn(scores[n][i], scale, -shift[i / 2]));
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kBlockTiles; ++tile) {
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float column = columns[tile][n][i];
#pragma unroll
        for (int other = 4; other < 32; other *= 2) column += __shfl_xor_sync(0xffffffffU, column, other);
        if (lane < 4) of_warps[warp][tile * kTile + 8 * n + 2 * lane + i] = column;
      }
    }
  }
}

/// A block for some tiles of tokens, a KV head, and a share of its query heads.
template <DataType Type, int Dim>
__global__ void __launch_bounds__(kThreads) column_sums_kernel(const __grid_constant__ Task task) {
  constexpr int kTokens = kBlockTiles * kTile;
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ float of_warps[kWarps][kTokens];
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int begin = static_cast<int>(blockIdx.x) * kTokens;  // the first are seen by the most rows
  const int kv_head = static_cast<int>(blockIdx.y);
  BlockTiles<Type, Dim> keys(task, kv_head, shared);
  for (int tile = 0; tile < kBlockTiles; ++tile) keys.ask(begin + tile * kTile, begin + kTokens);
  uint32_t tiles[kBlockTiles];
#pragma unroll
  for (int tile = 0; tile < kBlockTiles; ++tile) tiles[tile] = keys.take();
  for (int i = static_cast<int>(blockIdx.z); i < task.rows.group; i += static_cast<int>(gridDim.z)) {
    const Head head(task, kv_head * task.rows.group + i);
    sum_columns<Dim>(task, head, tiles, begin, of_warps);
    __syncthreads();
    const int token = static_cast<int>(threadIdx.x);
    static_assert(kTokens == kThreads);
    if (begin + token < task.rows.length) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += of_warps[w][token];
      float& total = task.sums[head.number * task.stride + begin + token];
      total = begin + token < task.known ? total + sum : sum;
    }
    __syncthreads();
  }
}

/// Among how many blocks the tokens of a tile of rows are shared, so that all multiprocessors have some.
int shares_of(int rows, int heads) {
  constexpr int kBlocks = 1024;
  constexpr int kMost = 32;
  const int tiles = (rows + kTile - 1) / kTile * heads;
  return std::clamp((kBlocks + tiles - 1) / std::max(tiles, 1), 1, kMost);
}

template <class Kernel>
void launch(Kernel* kernel, const dim3& blocks, size_t shared_bytes, const Task& task, Stream stream) {
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  launch_overlapping(kernel, {blocks, dim3(kThreads), shared_bytes}, stream, task);
}

template <DataType Type, int Dim>
void launch(const Task& task, Stream stream) {
  const auto kv_heads = static_cast<unsigned>(task.kv_heads);
  const auto group = static_cast<unsigned>(task.rows.group);
  const unsigned heads = kv_heads * group;
  const auto tiles = [](int count) { return static_cast<unsigned>((count + kTile - 1) / kTile); };
  const auto shares = static_cast<unsigned>(shares_of(task.rows.rows, static_cast<int>(heads)));
  launch(log_sums_kernel<Type, Dim>, dim3(tiles(task.rows.rows), heads, shares), StreamedTiles<Type, Dim>::kBytes, task, stream);
  if (shares > 1) {
    const int count = task.rows.rows * static_cast<int>(heads);
    const dim3 blocks(static_cast<unsigned>((count + kThreads - 1) / kThreads));
    launch_overlapping(merge_shares_kernel, {blocks, dim3(kThreads), 0}, stream, task, count, static_cast<int>(shares));
  }
  // Query heads have the keys of a block in turn, as long as there are blocks enough.
  constexpr unsigned kEnough = 1024;
  const unsigned token_tiles = (tiles(task.rows.length) + kBlockTiles - 1) / kBlockTiles;
  const unsigned of_group = std::clamp(kEnough / (token_tiles * kv_heads), 1U, group);
  launch(column_sums_kernel<Type, Dim>, dim3(token_tiles, kv_heads, of_group), BlockTiles<Type, Dim>::kBytes, task, stream);
}

template <DataType Type>
void launch_dim(int dim, const Task& task, Stream stream) {
  switch (dim) {
    case 64:
      return launch<Type, 64>(task, stream);
    case 128:
      return launch<Type, 128>(task, stream);
    case 256:
      return launch<Type, 256>(task, stream);
    default:
      throw InternalError("masses of heads of " + std::to_string(dim) + " channels");
  }
}

}  // namespace

size_t PromptMasses::workspace_bytes(int rows, int group) const {
  const int heads = kv_.kv_heads * group;
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(heads);
  const int shares = shares_of(rows, heads);
  return (count + 1) / 2 * 2 * sizeof(float) + (shares > 1 ? static_cast<size_t>(shares) * count * sizeof(float2) : 0);
}

void PromptMasses::add(const PromptRows& rows, float* sums, int64_t stride, int known, void* workspace, Stream stream) const {
  const size_t log_sums = static_cast<size_t>(rows.rows) * static_cast<size_t>(kv_.kv_heads * rows.group);
  const Task task{.rows = rows,
                  .base = kv_.base,
                  .block_bytes = kv_.layout.bytes,
                  .key_offset = kv_.layout.key_offset,
                  .by_page = Divisor(kv_.layout.page),
                  .kv_heads = kv_.kv_heads,
                  .log_sums = static_cast<float*>(workspace),
                  .parts = reinterpret_cast<float2*>(static_cast<float*>(workspace) + (log_sums + 1) / 2 * 2),
                  .sums = sums,
                  .stride = stride,
                  .known = known};
  switch (kv_.layout.kv) {
    case DataType::kE4M3:
      return launch_dim<DataType::kE4M3>(kv_.layout.head_dim, task, stream);
    case DataType::kE5M2:
      return launch_dim<DataType::kE5M2>(kv_.layout.head_dim, task, stream);
    default:
      return launch_dim<DataType::kBF16>(kv_.layout.head_dim, task, stream);
  }
}

}  // namespace sluice::cuda
