#include "kernels/cuda/flow/eviction.h"
#include "kernels/cuda/primitives/compact.cuh"
#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/selection/topk_keys.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRowsOfBlock = 4;    // where a warp has a row
constexpr int kMostOfWarp = 1024;  // tokens of a row that a warp looks through
constexpr int kKeysAtOnce = 16;    // of a lane, whose loads are under way together
constexpr unsigned kAll = 0xffffffffU;
constexpr int kDigit = 8;  // bits of a key that are looked at together
constexpr uint64_t kNobody = ~uint64_t{0};

/// What a lane of a warp has of a token on its way to another slot: of K and V, and of the first state.
struct CarriedToken {
  static constexpr int kPieces = 2;  // of 16 bytes

  uint4 pieces[kPieces];
  float state;
  int position;
};

/// Threads that have a row together, and which of them this one is.
struct Crew {
  int thread;
  int threads;
};

/// One layer, sequence and KV head of a launch, which a block or a warp has. `row` counts sequences and KV heads.
class EvictedRow {
 public:
  __device__ EvictedRow(const EvictedLayers& layer, const EvictionRule& rule, const EvictingBatch& batch, int number, int row)
      : layer_(layer),
        rule_(rule),
        batch_(batch),
        number_(number),
        sequence_(row / layer.kv_heads),
        head_(row % layer.kv_heads),
        first_row_(batch.query_indptr[sequence_]),
        rows_(batch.query_indptr[sequence_ + 1] - first_row_),
        pages_(batch.page_indices + batch.page_indptr[sequence_]),
        states_(batch.states[sequence_]) {
    const int64_t block = static_cast<int64_t>(layer.state_layer[number_]) * layer.kv_heads + head_;
    values_ = states_.values + block * (layer.state_page_numbers * states_.capacity + layer.state_fixed_numbers);
    positions_ = states_.positions + block * states_.capacity * layer.page;
    newest_ = batch.newest[sequence_];
    if (rule.last_readers != nullptr) first_position_ = batch.positions[first_row_];
  }

  __device__ int held() const { return batch_.held[sequence_]; }
  __device__ int staying() const { return batch_.staying[sequence_]; }
  __device__ int sequence() const { return sequence_; }
  /// Of its sequence in the launch.
  __device__ bool is_first() const { return number_ == 0 && head_ == 0; }
  /// That its rows attend to.
  __device__ int pages() const { return (staying() + rows_ - 1) / layer_.page + 1; }

  /// Tokens leave in the order of their keys: the lowest score first, NaN before all, of equals the oldest. kNobody: it stays.
  __device__ uint64_t key(int slot) const { return key(position(slot), score(slot)); }
  __device__ int position(int slot) const { return positions_[slot]; }
  __device__ float score(int slot) const { return values_[layer_.score_offset * states_.capacity + slot]; }
  __device__ uint64_t key(int position, float score) const {
    if (position < rule_.first || position > newest_ - rule_.recent) return kNobody;
    if (rule_.last_readers != nullptr && rule_.last_readers[position] >= first_position_) return kNobody;
    return static_cast<uint64_t>(topk::order_key(__float_as_uint(score))) << 32 | static_cast<uint32_t>(position);
  }

  /// The part of a lane of a warp in the move of a token with what is kept of it.
  __device__ void move(int from, int to) const { put(carry(from), from, to); }

  /// Its first half, which needs no place to go to.
  __device__ CarriedToken carry(int from) const {
    CarriedToken token{};
    const std::byte* const source = row_of(block_of(page_of(from)), from);
#pragma unroll
    for (int i = 0; i < CarriedToken::kPieces; ++i) {
      if (piece(i) < 2 * layer_.row_bytes) token.pieces[i] = *reinterpret_cast<const uint4*>(source + offset_of(piece(i)));
    }
    token.position = positions_[from];
    if (layer_.token_state_count > 0 && lane() < of_token(layer_.token_states[0])) {
      token.state = *place_of(layer_.token_states[0], from, lane());
    }
    return token;
  }
  __device__ void put(const CarriedToken& token, int from, int to) const { put(token, from, to, page_of(to)); }
  /// `page` is that of `to`.
  __device__ void put(const CarriedToken& token, int from, int to, int page) const {
    std::byte* const target = row_of(block_of(page), to);
#pragma unroll
    for (int i = 0; i < CarriedToken::kPieces; ++i) {
      if (piece(i) < 2 * layer_.row_bytes) *reinterpret_cast<uint4*>(target + offset_of(piece(i))) = token.pieces[i];
    }
    if (piece(CarriedToken::kPieces) < 2 * layer_.row_bytes) {
      const std::byte* const source = row_of(block_of(page_of(from)), from);
      for (int i = CarriedToken::kPieces; piece(i) < 2 * layer_.row_bytes; ++i) {
        *reinterpret_cast<uint4*>(target + offset_of(piece(i))) = *reinterpret_cast<const uint4*>(source + offset_of(piece(i)));
      }
    }
    if (lane() == 0) positions_[to] = token.position;
    for (int i = 0; i < layer_.token_state_count; ++i) {
      const TokenState& state = layer_.token_states[i];
      for (int at = lane(); at < of_token(state); at += 32) {
        *place_of(state, to, at) = i == 0 && at == lane() ? token.state : *place_of(state, from, at);
      }
    }
  }

  /// Slots [first, end) hold nobody.
  __device__ void forget(int first, int end, Crew crew) const {
    for (int i = 0; i < layer_.token_state_count; ++i) {
      const TokenState& state = layer_.token_states[i];
      const int numbers = of_token(state);
      for (int at = crew.thread; at < (end - first) * numbers; at += crew.threads) {
        *place_of(state, first + at / numbers, at % numbers) = state.initial;
      }
    }
  }

  /// The rows come behind those that stay.
  __device__ void welcome(Crew crew) const {
    for (int row = crew.thread; row < rows_; row += crew.threads) positions_[staying() + row] = coming(row);
  }
  /// The position of one that comes; 0 where there is none.
  __device__ int coming(int row) const { return row < rows_ ? batch_.positions[first_row_ + row] : 0; }
  /// The same, by a warp that knows the position of the one of its lane.
  __device__ void welcome(int staying, int position) const {
    if (lane() < rows_) positions_[staying + lane()] = position;
    for (int row = lane() + 32; row < rows_; row += 32) positions_[staying + row] = coming(row);
  }
  /// The page of a slot.
  __device__ int page_of(int slot) const { return pages_[slot / layer_.page]; }
  /// That of the lane's number in the order of slots, of `held` tokens.
  __device__ int page_of_lane(int held) const { return lane() * layer_.page < held ? pages_[lane()] : 0; }

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
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  /// Where the lane's piece `i` of K and V begins, counted from K.
  __device__ static int piece(int i) { return (lane() + 32 * i) * 16; }
  /// Of a piece, in a block.
  __device__ size_t offset_of(int at) const {
    return at < layer_.row_bytes ? layer_.key_offset + at : layer_.value_offset + at - layer_.row_bytes;
  }
  __device__ std::byte* block_of(int page) const {
    return layer_.base[number_] + static_cast<size_t>(page) * layer_.page_stride + head_ * layer_.block_bytes;
  }
  __device__ std::byte* row_of(std::byte* block, int slot) const {
    return block + static_cast<size_t>(slot % layer_.page) * layer_.row_bytes;
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
  int first_position_ = 0;  // of the pass's rows
};

/// Who has the lowest key.
struct Lowest {
  uint64_t key;
  int slot;
};

__device__ __forceinline__ Lowest lower(const Lowest& a, const Lowest& b) { return b.key < a.key ? b : a; }

/// Over groups of `lanes` lanes, a power of two.
__device__ __forceinline__ Lowest lowest_of_lanes(Lowest mine, int lanes) {
#pragma unroll
  for (lanes /= 2; lanes > 0; lanes /= 2) {
    mine = lower(mine, {__shfl_xor_sync(kAll, mine.key, lanes), __shfl_xor_sync(kAll, mine.slot, lanes)});
  }
  return mine;
}

/// By a block.
__device__ Lowest find_lowest(const EvictedRow& row, int held) {
  __shared__ Lowest of_warps[kWarps];
  Lowest mine{kNobody, 0};
  for (int slot = static_cast<int>(threadIdx.x); slot < held; slot += kThreads) mine = lower(mine, {row.key(slot), slot});
  mine = lowest_of_lanes(mine, 32);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  return lowest_of_lanes(of_warps[threadIdx.x % kWarps], kWarps);
}

/// By a warp.
__device__ Lowest find_lowest_of_warp(const EvictedRow& row, int held) {
  Lowest mine{kNobody, 0};
  for (int first = static_cast<int>(threadIdx.x) % 32; first < held; first += 32 * kKeysAtOnce) {
    int positions[kKeysAtOnce];
    float scores[kKeysAtOnce];
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      const int slot = min(first + 32 * i, held - 1);
      positions[i] = row.position(slot);
      scores[i] = row.score(slot);
    }
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      mine = lower(mine, {row.key(positions[i], scores[i]), min(first + 32 * i, held - 1)});
    }
  }
  return lowest_of_lanes(mine, 32);
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

/// Pages of what stays and of the rows that come, and those that dense attention would read, of all rows of a sequence at once:
/// counters are few, and whoever adds to one waits for the others. By one thread of a row.
__device__ void count_pages(const EvictedRow& row, const EvictedLayers& layer, const EvictionScratch& scratch, int dense) {
  if (!row.is_first() || dense == 0) return;
  const auto rows = static_cast<unsigned long long>(layer.count) * static_cast<unsigned long long>(layer.kv_heads);
  if (scratch.available != nullptr) atomicAdd(scratch.available, rows * static_cast<unsigned long long>(dense));
  if (scratch.attended != nullptr) atomicAdd(scratch.attended, rows * static_cast<unsigned long long>(row.pages()));
}

/// A warp for each layer, sequence and KV head, where one token leaves at most: multiprocessors keep room for what goes on
/// beside.
__global__ void __launch_bounds__(32 * kRowsOfBlock)
    evict_one_kernel(const __grid_constant__ EvictedLayers layer, const __grid_constant__ EvictionRule rule,
                     const __grid_constant__ EvictingBatch batch, const __grid_constant__ MovedPages moved,
                     const __grid_constant__ EvictionScratch scratch) {
  const int number = static_cast<int>(blockIdx.x) * kRowsOfBlock + static_cast<int>(threadIdx.x) / 32;
  if (number >= batch.sequences * layer.kv_heads) return;
  const EvictedRow row(layer, rule, batch, static_cast<int>(blockIdx.y), number);
  const Crew lanes{static_cast<int>(threadIdx.x) % 32, 32};
  const int held = row.held();
  const int staying = row.staying();
  // All that does not depend on who leaves is under way before that is known: each round to memory takes most of a microsecond.
  const int dense = batch.dense_pages[row.sequence()];
  const int coming = row.coming(lanes.thread);
  const int my_page = row.page_of_lane(held);
  int to = -1;
  if (held > staying) {
    const CarriedToken last = row.carry(staying);
    const Lowest gone = find_lowest_of_warp(row, held);
    const int place = gone.slot / layer.page;
    const int page = place < 32 ? __shfl_sync(kAll, my_page, place) : row.page_of(gone.slot);
    if (gone.slot < staying) {
      to = gone.slot;
      row.put(last, staying, to, page);
    }
    __syncwarp();
    row.forget(staying, held, lanes);
  }
  if (moved.pages != nullptr) {
    for (int i = lanes.thread; i < moved.room; i += lanes.threads) row.touch(moved, i, i == 0 ? to : -1);
  }
  row.welcome(staying, coming);
  if (lanes.thread == 0) count_pages(row, layer, scratch, dense);
}

/// A block for each layer, sequence and KV head.
__global__ void __launch_bounds__(kThreads)
    evict_kernel(const __grid_constant__ EvictedLayers layer, const __grid_constant__ EvictionRule rule,
                 const __grid_constant__ EvictingBatch batch, const __grid_constant__ MovedPages moved,
                 const __grid_constant__ EvictionScratch scratch) {
  // What comes next may read K and V before it waits: it is not to start before this ends.
  const EvictedRow row(layer, rule, batch, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x));
  const Crew all{static_cast<int>(threadIdx.x), kThreads};
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
  if (leaving > 0) row.forget(staying, held, all);
  if (moved.pages != nullptr) {
    const auto begins_page = [&](int i) { return i == 0 || moves[i].to / layer.page != moves[i - 1].to / layer.page; };
    const int pages = compact<kThreads>(0, count, begins_page, [&](int i, int rank) { row.touch(moved, rank, moves[i].to); });
    for (int i = pages + static_cast<int>(threadIdx.x); i < moved.room; i += kThreads) row.touch(moved, i, -1);
  }
  row.welcome(all);
  if (threadIdx.x == 0) count_pages(row, layer, scratch, batch.dense_pages[row.sequence()]);
}

}  // namespace

void evict_tokens(const EvictedLayers& layers, const EvictionRule& rule, const EvictingBatch& batch, const MovedPages& moved,
                  const EvictionScratch& scratch, Stream stream) {
  const int rows = batch.sequences * layers.kv_heads;
  const auto blocks = [&](int count) { return dim3(static_cast<unsigned>(count), static_cast<unsigned>(layers.count)); };
  if (batch.most_leave <= 1 && batch.most_held <= kMostOfWarp) {
    const int of_rows = (rows + kRowsOfBlock - 1) / kRowsOfBlock;
    evict_one_kernel<<<blocks(of_rows), 32 * kRowsOfBlock, 0, stream>>>(layers, rule, batch, moved, scratch);
  } else {
    evict_kernel<<<blocks(rows), kThreads, 0, stream>>>(layers, rule, batch, moved, scratch);
  }
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace sluice::cuda
