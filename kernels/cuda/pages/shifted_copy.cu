#include "kernels/cuda/pages/shifted_copy.h"

#include <algorithm>

#include "kernels/cuda/primitives/bulk.cuh"
#include "kernels/cuda/primitives/eight_bits.cuh"
#include "kernels/cuda/primitives/mbarrier.cuh"
#include "kernels/cuda/rows/row_view.cuh"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice::cuda {
namespace {

// A block has up to a few tokens of a run, in many layers and heads. K and V of one head, which lie together, go through a stage
// of shared memory: copies without registers bring them and take them away, and in between a thread turns the same channels of
// the same token in every stage, so that it finds out once how far.

constexpr int kTurners = 128;  // threads
constexpr int kThreads = kTurners + 32;
constexpr int kBlocks = 2;   // of a multiprocessor
constexpr int kStages = 12;  // of a block
constexpr int kEight = 8;    // channels that a thread turns, and those half a row further on

/// Eight neighbouring numbers of a row.
template <DataType Type>
struct Eight {
  using Number = std::conditional_t<Type == DataType::kBF16, uint16_t, uint8_t>;
  alignas(kEight * sizeof(Number)) Number at[kEight];

  __device__ __forceinline__ float widened(int i) const {
    if constexpr (Type == DataType::kBF16) {
      return __uint_as_float(uint32_t{at[i]} << 16);
    } else {
      return widen_byte(Type, at[i]);
    }
  }
  __device__ __forceinline__ void set(int i, float x) {
    if constexpr (Type == DataType::kBF16) {
      at[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    } else {
      at[i] = narrow_to_byte(Type, x);
    }
  }
};

/// How a key is turned on its way: of eight pairs of channels.
struct Turn {
  float cosine[kEight];
  float sine[kEight];

  /// As KeyTurns has it: angles are float32, as models have them.
  __device__ __forceinline__ Turn(const float* frequencies, int from, int to) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      const float old_angle = __fmul_rn(static_cast<float>(from), frequencies[i]);
      const float new_angle = __fmul_rn(static_cast<float>(to), frequencies[i]);
      constexpr double kHalfTurn = 3.141592653589793;
      double half_turns = (static_cast<double>(new_angle) - static_cast<double>(old_angle)) / kHalfTurn;
      half_turns -= 2 * rint(half_turns / 2);
      sincospif(static_cast<float>(half_turns), &sine[i], &cosine[i]);
    }
  }
  template <DataType Type>
  __device__ __forceinline__ void apply(Eight<Type>& low, Eight<Type>& high) const {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      const float a = low.widened(i);
      const float b = high.widened(i);
      low.set(i, a * cosine[i] - b * sine[i]);
      high.set(i, b * cosine[i] + a * sine[i]);
    }
  }
};

/// A stage: K of a head, and V.
template <DataType Type>
constexpr uint32_t kHalfStage = kTurners * 2 * kEight * sizeof(typename Eight<Type>::Number);
template <DataType Type>
constexpr size_t kSharedBytes = size_t{kStages} * 2 * kHalfStage<Type>;

/// Tokens of a run that a block turns at most.
__host__ __device__ int most_tokens(const ShiftedRows& rows) { return kTurners * 2 * kEight / rows.head_dim; }

/// What a block copies: tokens of a run, of layers and all heads, an item each.
struct Part {
  int tokens;
  int items;
  size_t from;  // of the first layer's first head
  size_t to;
  uint32_t bytes;  // of K, or V
  int from_position;
  int to_position;

  __device__ Part(const ShiftedRows& rows, const ShiftedRun& run, int parts, int layers) {
    const int most = most_tokens(rows);
    const int first = static_cast<int>(blockIdx.x) % parts * most;
    const int layer = static_cast<int>(blockIdx.y) * layers;
    tokens = min(most, run.tokens - first);
    items = min(layers, rows.blocks.layers - layer) * rows.rows.kv_heads;
    const size_t base = layer * rows.blocks.layer_stride;
    from = base + run.from_page * rows.blocks.bytes + (run.from_token + first) * rows.rows.bytes;
    to = base + run.to_page * rows.blocks.bytes + (run.to_token + first) * rows.rows.bytes;
    bytes = static_cast<uint32_t>(tokens * rows.rows.bytes);
    from_position = run.from_position + first;
    to_position = run.to_position + first;
  }
};

/// Bytes from the first item to one after the other.
class ItemPlace {
 public:
  __device__ explicit ItemPlace(const ShiftedRows& rows) : rows_(rows) {}
  __device__ size_t bytes() const { return bytes_; }
  __device__ void next() {
    bytes_ += rows_.rows.block_bytes;
    if (++head_ < rows_.rows.kv_heads) return;
    head_ = 0;
    bytes_ += rows_.blocks.layer_stride - rows_.rows.kv_heads * rows_.rows.block_bytes;
  }

 private:
  const ShiftedRows& rows_;
  int head_ = 0;
  size_t bytes_ = 0;
};

struct Barriers {
  uint64_t filled[kStages];
  uint64_t turned[kStages];
};

/// By one thread: brings items, and takes them away once they are turned.
template <DataType Type>
__device__ void move_items(const ShiftedRows& rows, const Part& part, uint8_t* stages, Barriers& barriers) {
  constexpr int kBefore = kStages - 1;  // so many items are on their way: a stage is free once the one before it has been read
  const TokenRows& layout = rows.rows;
  ItemPlace loaded(rows);
  ItemPlace stored(rows);
  const auto load = [&](int item) {
    const int stage = item % kStages;
    const uint32_t filled = shared_address(&barriers.filled[stage]);
    const uint32_t at = shared_address(stages) + stage * 2 * kHalfStage<Type>;
    const std::byte* const from = rows.blocks.base + part.from + loaded.bytes();
    barrier_expect(filled, 2 * part.bytes);
    bulk_load(at, from + layout.key_offset, part.bytes, filled);
    bulk_load(at + kHalfStage<Type>, from + layout.value_offset, part.bytes, filled);
    loaded.next();
  };
  for (int item = 0; item < min(kBefore, part.items); ++item) load(item);
  for (int item = 0; item < part.items; ++item) {
    const int stage = item % kStages;
    const uint32_t at = shared_address(stages) + stage * 2 * kHalfStage<Type>;
    barrier_wait(shared_address(&barriers.turned[stage]), item / kStages % 2);
    std::byte* const to = rows.blocks.base + part.to + stored.bytes();
    bulk_store(to + layout.key_offset, at, part.bytes);
    bulk_store(to + layout.value_offset, at + kHalfStage<Type>, part.bytes);
    bulk_commit();
    stored.next();
    if (item + kBefore >= part.items) continue;
    bulk_wait_read<1>();
    load(item + kBefore);
  }
  bulk_wait_read<0>();
}

/// By the other threads.
template <DataType Type>
__device__ void turn_items(const ShiftedRows& rows, const Part& part, uint8_t* stages, Barriers& barriers) {
  using Numbers = Eight<Type>;
  const int eights = rows.head_dim / (2 * kEight);
  const int token = static_cast<int>(threadIdx.x) / eights;
  const int channel = static_cast<int>(threadIdx.x) % eights * kEight;
  const bool has_token = token < part.tokens;
  const Turn turn(rows.frequencies + channel, part.from_position + token, part.to_position + token);
  uint8_t* const mine = stages + (token * rows.head_dim + channel) * sizeof(typename Numbers::Number);
  const size_t half = static_cast<size_t>(rows.head_dim / 2) * sizeof(typename Numbers::Number);
  for (int item = 0; item < part.items; ++item) {
    const int stage = item % kStages;
    barrier_wait(shared_address(&barriers.filled[stage]), item / kStages % 2);
    if (has_token) {
      auto* const low = reinterpret_cast<Numbers*>(mine + stage * 2 * kHalfStage<Type>);
      auto* const high = reinterpret_cast<Numbers*>(mine + stage * 2 * kHalfStage<Type> + half);
      Numbers first = *low;
      Numbers second = *high;
      turn.apply(first, second);
      *low = first;
      *high = second;
    }
    publish_shared();
    barrier_arrive(shared_address(&barriers.turned[stage]));
  }
}

/// A block for tokens of a run, `parts` of which a page may have, and `layers` layers.
template <DataType Type>
__global__ __launch_bounds__(kThreads, kBlocks) void shifted_copy_kernel(const __grid_constant__ ShiftedRows rows,
                                                                         const ShiftedRun* __restrict__ runs, int parts,
                                                                         int layers) {
  extern __shared__ __align__(128) uint8_t stages[];
  __shared__ Barriers barriers;
  const Part part(rows, runs[static_cast<int>(blockIdx.x) / parts], parts, layers);
  if (part.tokens <= 0) return;
  if (threadIdx.x == kTurners) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(shared_address(&barriers.filled[stage]), 1);
      barrier_init(shared_address(&barriers.turned[stage]), kTurners);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kTurners) {
    turn_items<Type>(rows, part, stages, barriers);
  } else if (threadIdx.x == kTurners) {
    move_items<Type>(rows, part, stages, barriers);
  }
}

template <DataType Type>
void launch(const ShiftedRows& rows, const ShiftedRun* runs, int count, Stream stream) {
  constexpr int kWanted = 2048;  // blocks, so that all multiprocessors have something to do until the end
  const int parts = (rows.page + most_tokens(rows) - 1) / most_tokens(rows);
  const int layer_parts = std::clamp(kWanted / (count * parts), 1, rows.blocks.layers);
  const int layers = (rows.blocks.layers + layer_parts - 1) / layer_parts;
  const dim3 blocks(static_cast<unsigned>(count * parts), static_cast<unsigned>((rows.blocks.layers + layers - 1) / layers));
  constexpr size_t kBytes = kSharedBytes<Type>;
  SLUICE_CHECK_CUDA(
      cudaFuncSetAttribute(shifted_copy_kernel<Type>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)));
  shifted_copy_kernel<Type><<<blocks, kThreads, kBytes, stream>>>(rows, runs, parts, layers);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace

void copy_shifted(const ShiftedRows& rows, const ShiftedRun* runs, int count, Stream stream) {
  switch (rows.kv) {
    case DataType::kE4M3:
      return launch<DataType::kE4M3>(rows, runs, count, stream);
    case DataType::kE5M2:
      return launch<DataType::kE5M2>(rows, runs, count, stream);
    default:
      return launch<DataType::kBF16>(rows, runs, count, stream);
  }
}

}  // namespace sluice::cuda
