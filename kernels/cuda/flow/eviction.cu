#include "kernels/cuda/flow/eviction.h"
#include "kernels/cuda/primitives/compact.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/selection/topk_keys.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kDigit = 8;  // bits of a key that are looked at together
constexpr uint64_t kNobody = ~uint64_t{0};

/// One layer, sequence and KV head of a launch, which a block has.
class EvictedRow {
 public:
  __device__ EvictedRow(const EvictedLayers& layer, const EvictionRule& rule, const EvictingBatch& batch)
      : layer_(layer),
        rule_(rule),
        batch_(batch),
        number_(static_cast<int>(blockIdx.y)),
        sequence_(static_cast<int>(blockIdx.x) / layer.kv_heads),
        head_(static_cast<int>(blockIdx.x) % layer.kv_heads),
        first_row_(batch.query_indptr[sequence_]),
        rows_(batch.query_indptr[sequence_ + 1] - first_row_),
        pages_(batch.page_indices + batch.page_indptr[sequence_]),
        states_(batch.states[sequence_]) {
    const int64_t block = static_cast<int64_t>(layer.state_layer[number_]) * layer.kv_heads + head_;
    values_ = states_.values + block * (layer.state_page_numbers * states_.capacity + layer.state_fixed_numbers);
    positions_ = states_.positions + block * states_.capacity * layer.page;
    newest_ = batch.newest[sequence_];
    first_position_ = batch.positions[first_row_];
  }

  __device__ int held() const { return batch_.held[sequence_]; }
  __device__ int staying() const { return batch_.staying[sequence_]; }
  __device__ int sequence() const { return sequence_; }
  /// That its rows attend to.
  __device__ int pages() const { return (staying() + rows_ - 1) / layer_.page + 1; }

  /// Tokens leave in the order of their keys: the lowest score first, NaN before all, of equals the oldest. kNobody: it stays.
  __device__ uint64_t key(int slot) const {
    const int position = positions_[slot];
    if (position < rule_.first || position > newest_ - rule_.recent) return kNobody;
    if (rule_.last_readers != nullptr && rule_.last_readers[position] >= first_position_) return kNobody;
    const float score = values_[layer_.score_offset * states_.capacity + slot];
    return static_cast<uint64_t>(topk::order_key(__float_as_uint(score))) << 32 | static_cast<uint32_t>(position);
  }

  /// What a lane of a warp has of the move of a token with what is kept of it.
  __device__ void move(int from, int to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::byte* const source = block_of(from) + static_cast<size_t>(from % layer_.page) * layer_.row_bytes;
    std::byte* const target = block_of(to) + static_cast<size_t>(to % layer_.page) * layer_.row_bytes;
    for (int at = lane * 16; at < 2 * layer_.row_bytes; at += 32 * 16) {
      const bool is_key = at < layer_.row_bytes;
      const size_t offset = (is_key ? layer_.key_offset : layer_.value_offset) + (is_key ? at : at - layer_.row_bytes);
      *reinterpret_cast<uint4*>(target + offset) = *reinterpret_cast<const uint4*>(source + offset);
    }
    if (lane == 0) positions_[to] = positions_[from];
    for (int i = 0; i < layer_.token_state_count; ++i) {
      const TokenState& state = layer_.token_states[i];
      for (int at = lane; at < of_token(state); at += 32) {
        *place_of(state, to, at) = *place_of(state, from, at);
      }
    }
  }

  /// Slots [first, end) hold nobody. By all threads.
  __device__ void forget(int first, int end) const {
    for (int i = 0; i < layer_.token_state_count; ++i) {
      const TokenState& state = layer_.token_states[i];
      const int numbers = of_token(state);
      for (int at = static_cast<int>(threadIdx.x); at < (end - first) * numbers; at += kThreads) {
        *place_of(state, first + at / numbers, at % numbers) = state.initial;
      }
    }
  }

  /// The rows come behind those that stay. By all threads.
  __device__ void welcome() const {
    for (int row = static_cast<int>(threadIdx.x); row < rows_; row += kThreads) {
      positions_[staying() + row] = batch_.positions[first_row_ + row];
    }
  }

  /// By one thread: place `at` of the pages that tokens moved to is the one with `slot`.
  __device__ void touch(const MovedPages& moved, int at, int slot) const {
    const int64_t row = static_cast<int64_t>(number_) * batch_.sequences + sequence_;
    const int64_t to = (row * moved.room + at) * layer_.kv_heads + head_;
    const int number = slot / layer_.page;
    moved.pages[to] = slot < 0 ? -1 : pages_[number];
    if (slot < 0) return;
    moved.tokens[to] = min(layer_.page, staying() - number * layer_.page);
    if (moved.fields != nullptr) moved.fields[to] = batch_.field_indices[batch_.field_indptr[sequence_] + number];
  }

 private:
  __device__ std::byte* block_of(int slot) const {
    return layer_.base[number_] + static_cast<size_t>(pages_[slot / layer_.page]) * layer_.page_stride +
           head_ * layer_.block_bytes;
  }
  /// Numbers that a state has of a token.
  __device__ int of_token(const TokenState& state) const { return static_cast<int>(state.elements / layer_.page); }
  /// The state's page is [parts, token, inner]; number `at` of a token's is [part, inner].
  __device__ float* place_of(const TokenState& state, int slot, int at) const {
    const int64_t part = at / state.inner;
    const int64_t within = part * layer_.page * state.inner + slot % layer_.page * state.inner + at % state.inner;
    return values_ + state.offset * states_.capacity + slot / layer_.page * state.elements + within;
  }

  const EvictedLayers& layer_;
  const EvictionRule& rule_;
  const EvictingBatch& batch_;
  int number_;  // of the layer
  int sequence_;
  int head_;
  int first_row_;
  int rows_;
  const int32_t* pages_;
  StateBlock states_;
  float* values_;
  int* positions_;
  int newest_;
  int first_position_;
};

/// Who has the lowest key.
struct Lowest {
  uint64_t key;
  int slot;
};

__device__ __forceinline__ Lowest lower(const Lowest& a, const Lowest& b) { return b.key < a.key ? b : a; }

__device__ Lowest find_lowest(const EvictedRow& row, int held) {
  __shared__ Lowest of_warps[kWarps];
  const auto other = [](const Lowest& mine, int lanes) {
    return Lowest{__shfl_xor_sync(0xffffffffU, mine.key, lanes), __shfl_xor_sync(0xffffffffU, mine.slot, lanes)};
  };
  Lowest mine{kNobody, 0};
  for (int slot = static_cast<int>(threadIdx.x); slot < held; slot += kThreads) mine = lower(mine, {row.key(slot), slot});
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) mine = lower(mine, other(mine, lanes));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = of_warps[threadIdx.x % kWarps];
#pragma unroll
  for (int lanes = kWarps / 2; lanes > 0; lanes /= 2) mine = lower(mine, other(mine, lanes));
  return mine;
}

/// The key of which `rank` keys, counted from 1, are at most as high. Positions differ, so that no two keys are the same.
__device__ uint64_t key_of_rank(const EvictedRow& row, int held, int rank) {
  __shared__ int counts[1 << kDigit];
  __shared__ int digit;
  __shared__ int left;
  uint64_t known = 0;
  for (int shift = 64 - kDigit; shift >= 0; shift -= kDigit) {
    for (int i = static_cast<int>(threadIdx.x); i < 1 << kDigit; i += kThreads) counts[i] = 0;
    __syncthreads();
    const uint64_t above = shift + kDigit == 64 ? 0 : ~uint64_t{0} << (shift + kDigit);
    for (int slot = static_cast<int>(threadIdx.x); slot < held; slot += kThreads) {
      const uint64_t key = row.key(slot);
      if (key != kNobody && (key & above) == known) atomicAdd(&counts[key >> shift & ((1 << kDigit) - 1)], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int at = 0;
      int before = 0;
      while (at < (1 << kDigit) - 1 && before + counts[at] < rank) before += counts[at++];
      digit = at;
      left = rank - before;
    }
    __syncthreads();
    known |= static_cast<uint64_t>(digit) << shift;
    rank = left;
    __syncthreads();
  }
  return known;
}

/// A block for each layer, sequence and KV head.
__global__ void __launch_bounds__(kThreads)
    evict_kernel(const __grid_constant__ EvictedLayers layer, const __grid_constant__ EvictionRule rule,
                 const __grid_constant__ EvictingBatch batch, const __grid_constant__ MovedPages moved,
                 const __grid_constant__ EvictionScratch scratch) {
  // What comes next may read K and V before it waits: it is not to start before this ends.
  const EvictedRow row(layer, rule, batch);
  const int held = row.held();
  const int staying = row.staying();
  const int leaving = held - staying;
  SlotMove* const moves = scratch.moves + (static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * scratch.room;
  int count = 0;
  if (leaving == 1) {
    const Lowest gone = find_lowest(row, held);
    count = gone.slot < staying ? 1 : 0;
    if (threadIdx.x / 32 == 0 && count > 0) {
      row.move(staying, gone.slot);
      if (threadIdx.x == 0) moves[0] = {staying, gone.slot};
    }
  } else if (leaving > 1) {
    const uint64_t last = key_of_rank(row, held, leaving);
    const auto leaves = [&](int slot) { return row.key(slot) <= last; };
    compact<kThreads>(0, staying, leaves, [&](int slot, int rank) { moves[rank].to = slot; });
    count = compact<kThreads>(
        staying, held, [&](int slot) { return !leaves(slot); }, [&](int slot, int rank) { moves[rank].from = slot; });
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x) / 32; i < count; i += kWarps) row.move(moves[i].from, moves[i].to);
  }
  __syncthreads();
  if (leaving > 0) row.forget(staying, held);
  if (moved.pages != nullptr) {
    const auto begins_page = [&](int i) { return i == 0 || moves[i].to / layer.page != moves[i - 1].to / layer.page; };
    const int pages = compact<kThreads>(0, count, begins_page, [&](int i, int rank) { row.touch(moved, rank, moves[i].to); });
    for (int i = pages + static_cast<int>(threadIdx.x); i < moved.room; i += kThreads) row.touch(moved, i, -1);
  }
  row.welcome();
  if (threadIdx.x != 0 || batch.dense_pages[row.sequence()] == 0) return;
  if (scratch.available != nullptr)
    atomicAdd(scratch.available, static_cast<unsigned long long>(batch.dense_pages[row.sequence()]));
  if (scratch.attended != nullptr) atomicAdd(scratch.attended, static_cast<unsigned long long>(row.pages()));
}

}  // namespace

void evict_tokens(const EvictedLayers& layers, const EvictionRule& rule, const EvictingBatch& batch, const MovedPages& moved,
                  const EvictionScratch& scratch, Stream stream) {
  const dim3 blocks(static_cast<unsigned>(batch.sequences * layers.kv_heads), static_cast<unsigned>(layers.count));
  evict_kernel<<<blocks, kThreads, 0, stream>>>(layers, rule, batch, moved, scratch);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace sluice::cuda
