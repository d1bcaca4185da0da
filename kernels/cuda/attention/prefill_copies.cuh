#pragma once

#include "kernels/cuda/attention/prefill_works.cuh"

/// How works, queries and tiles of K and V reach the warpgroups that multiply.
namespace sluice::cuda::prefill {

/// Copies K (V if `value`) of tokens [token, token + 8) of one block to shared memory.
__device__ __forceinline__ void copy_box(const CUtensorMap* map, uint32_t target, uint32_t barrier, int token, int value,
                                         int block) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %3, %5, %6}], [%2];" ::"r"(
          target),
      "l"(map), "r"(barrier), "r"(0), "r"(token), "r"(value), "r"(block)
      : "memory");
}

/// A barrier of one warpgroup.
__device__ __forceinline__ void warpgroup_sync(int barrier) { asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory"); }

/// What lies in shared memory, by shared address.
template <int Dim, Kind kKind>
struct Places {
  uint32_t query;
  uint32_t slots;        // [K and V][stages]
  uint32_t barriers;     // [K and V][stages][filled, emptied], then [two works][filled, emptied]
  WorkOf<kKind>* works;  // [two]

  __device__ __forceinline__ uint32_t slot(int value, int stage) const {
    return slots + (value * Shape<Dim>::kStages + stage) * Shape<Dim>::kSlotBytes;
  }
  __device__ __forceinline__ uint32_t filled(int value, int stage) const {
    return barriers + (value * Shape<Dim>::kStages + stage) * 16;
  }
  __device__ __forceinline__ uint32_t emptied(int value, int stage) const { return filled(value, stage) + 8; }
  __device__ __forceinline__ uint32_t work_filled(int stage) const { return filled(2, stage); }
  __device__ __forceinline__ uint32_t work_emptied(int stage) const { return emptied(2, stage); }
};

/// A place in a ring: the slot of the next tile and which turn it is.
template <int Stages>
struct Turn {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// The next work that the copying warp has set out, for one warp.
template <int Dim, Kind kKind>
__device__ __forceinline__ WorkOf<kKind> take_work(const Places<Dim, kKind>& places, Turn<2>& turn) {
  barrier_wait(places.work_filled(turn.stage), turn.parity);
  const WorkOf<kKind> work = places.works[turn.stage];
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(places.work_emptied(turn.stage));
  turn.next();
  return work;
}

template <int Dim, Kind kKind>
__device__ __forceinline__ void set_out_work(const Places<Dim, kKind>& places, Turn<2>& turn, const WorkOf<kKind>& work) {
  barrier_wait(places.work_emptied(turn.stage), turn.parity ^ 1);
  if (threadIdx.x % 32 == 0) {
    places.works[turn.stage] = work;
    barrier_arrive(places.work_filled(turn.stage));
  }
  __syncwarp();
  turn.next();
}

/// The entries of a list that are a work's.
template <Kind kKind>
__device__ __forceinline__ const int32_t* entries_of(const int32_t* list, const WorkOf<kKind>& work) {
  if constexpr (kKind == Kind::kSplit) {
    return list + 1 + work.first;
  } else {
    return list + 1;
  }
}

/// One warp copies the K tiles (V tiles) of a work, in order; a lane a box. `before` is called with the number of each.
template <int Dim, Kind kKind, class Before>
__device__ __forceinline__ void copy_tiles(const CUtensorMap* map, const ArgumentsOf<kKind>& a, const WorkOf<kKind>& work,
                                           const Places<Dim, kKind>& places, int value, Turn<Shape<Dim>::kStages>& turn,
                                           const Before& before) {
  using S = Shape<Dim>;
  const int lane = threadIdx.x % 32;
  const int box = lane % S::kBoxes;
  const int32_t* pages = a.page_indices + __ldg(a.page_indptr + work.sequence) - a.first_page;
  const int last_page = (work.length - 1) / a.page;
  // Past the end: any page, since its scores are masked and its values cleared.
  const auto block_of = [&](int token) { return __ldg(pages + min(token / a.page, last_page)) * a.kv_heads + work.head; };
  [[maybe_unused]] const int32_t* list = nullptr;
  [[maybe_unused]] const int32_t* entries = nullptr;
  if constexpr (kKind != Kind::kDense) {
    list = a.sights.list(work.place, work.head);
    entries = entries_of<kKind>(list, work);
  }
  [[maybe_unused]] const auto listed_token = [&](Entry entry) {
    if constexpr (kKind != Kind::kDense) {
      // In place of none any will do, since its scores are masked.
      if (entry.is_gathered()) return max(0, __ldg(list + a.sights.box_place + entry.tile() * S::kBoxes + box)) * kBoxTokens;
      return entry.tile() * S::kTokens + box * kBoxTokens;
    }
  };
  int token = box * kBoxTokens;
  [[maybe_unused]] int next_token = 0;  // of a list, which is asked for a tile earlier
  if constexpr (kKind != Kind::kDense) {
    token = listed_token(work.entries[0]);
    next_token = listed_token(work.entries[1]);
  }
  int block = block_of(token);
  for (int number = 0; number < work.tiles; ++number) {
    before(number);
    const int next = block_of(kKind != Kind::kDense ? next_token : token + S::kTokens);
    barrier_wait(places.emptied(value, turn.stage), turn.parity ^ 1);
    const uint32_t barrier = places.filled(value, turn.stage);
    if (lane == 0) barrier_expect(barrier, S::kSlotBytes);
    __syncwarp();
    if (lane < S::kBoxes) {
      copy_box(map, places.slot(value, turn.stage) + box * S::kBoxBytes, barrier, token % a.page, value, block);
    }
    if constexpr (kKind != Kind::kDense) {
      token = next_token;
      next_token = listed_token(Entry(__ldg(entries + min(number + 2, work.tiles - 1))));
    } else {
      token += S::kTokens;
    }
    block = next;
    turn.next();
  }
}

/// A warp says of the rows of a split that has no tiles that they have seen nothing.
__device__ __forceinline__ void note_nothing(const SplitArguments& a, const SplitWork& work) {
  for (int pair = work.pair + static_cast<int>(threadIdx.x) % 32; pair < work.pair + work.pairs; pair += 32)
    a.splits.logs[place_of(a, work, pair)] = -INFINITY;
}

/// The warp that hands the block its works, and copies their K.
template <int Dim, Kind kKind>
__device__ void copy_keys(const CUtensorMap* map, const ArgumentsOf<kKind>& a, const Places<Dim, kKind>& places) {
  int works = count_works(a);
  if constexpr (kKind == Kind::kSplit) works *= a.splits.count;
  Turn<2> work_turn;
  Turn<Shape<Dim>::kStages> turn;
  int number = static_cast<int>(blockIdx.x);
  while (number < works) {
    WorkOf<kKind> work = find_work<Dim, kKind>(a, number);
    if constexpr (kKind == Kind::kSplit) {
      const int32_t* const list = a.sights.list(work.place, work.head);
      work.take_split(__ldg(list), a.splits.count);
      if (work.tiles <= 0) {
        note_nothing(a, work);
        unsigned next = 0;
        if (threadIdx.x % 32 == 0) next = atomicInc(a.taken, static_cast<unsigned>(works) - 1);
        number = static_cast<int>(gridDim.x + __shfl_sync(0xffffffffU, next, 0));
        continue;
      }
      for (int i = 0; i < 2; ++i) work.entries[i] = Entry(__ldg(list + 1 + work.first + min(i, work.tiles - 1)));
    } else if constexpr (kKind != Kind::kDense) {
      const int4 head = __ldg(reinterpret_cast<const int4*>(a.sights.list(work.place, work.head)));
      work.tiles = head.x;
      work.entries[0] = Entry(head.y);
      work.entries[1] = Entry(work.tiles > 1 ? head.z : head.y);
    }
    set_out_work(places, work_turn, work);
    // Blocks ask `works` times in all (each once in vain), after which the counter is zero again.
    unsigned next = 0;
    // Works of rows that do not follow each other are few and uneven: who has much to do leaves the next one to others.
    const int last = kKind == Kind::kDense ? 0 : max(0, work.tiles - Shape<Dim>::kStages);
    const bool asks = threadIdx.x % 32 == 0;
    if (kKind == Kind::kDense && asks) next = atomicInc(a.taken, static_cast<unsigned>(works) - 1);
    copy_tiles<Dim, kKind>(map, a, work, places, 0, turn, [&](int tile) {
      if (kKind != Kind::kDense && asks && tile == last) next = atomicInc(a.taken, static_cast<unsigned>(works) - 1);
    });
    number = static_cast<int>(gridDim.x + __shfl_sync(0xffffffffU, next, 0));
  }
  set_out_work(places, work_turn, WorkOf<kKind>{});
}

template <int Dim, Kind kKind>
__device__ void copy_values(const CUtensorMap* map, const ArgumentsOf<kKind>& a, const Places<Dim, kKind>& places) {
  Turn<2> work_turn;
  Turn<Shape<Dim>::kStages> turn;
  for (WorkOf<kKind> work = take_work(places, work_turn); work.sequence >= 0; work = take_work(places, work_turn)) {
    copy_tiles<Dim, kKind>(map, a, work, places, 1, turn, [](int /*tile*/) {});
  }
}

/// Asks for 16 bytes of Q, chunk `chunk` of row `row` among a warpgroup's; zeros where `bytes` is 0.
template <int Dim>
__device__ __forceinline__ void ask_query(uint32_t target, int row, int chunk, const __nv_bfloat16* from, int bytes) {
  const uint32_t address = target + chunk / 8 * Shape<Dim>::kQueryPanel + row * 128 + (((chunk % 8) ^ (row % 8)) << 4);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

/// Asks for a warpgroup's 64 rows of Q; zeros past the last pair, and where there is no row.
template <int Dim, Kind kKind>
__device__ __forceinline__ void ask_queries(const ArgumentsOf<kKind>& a, const Work& work, uint32_t target, int first) {
  constexpr int kChunks = Dim / 8;
  if constexpr (kKind == Kind::kDense) {
    // Fewer numbers are alive than below, which heads of 64 channels feel.
#pragma unroll 4
    for (int i = threadIdx.x % 128; i < kGroupRows * kChunks; i += 128) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      const int bytes = first + row < work.pairs ? 16 : 0;
      const int pair = work.pair + (bytes > 0 ? first + row : 0);
      const int64_t at = (work.query + a.by_group.quotient(pair)) * a.q_stride +
                         (work.head * a.group + a.by_group.remainder(pair)) * Dim + chunk * 8;
      ask_query<Dim>(target, row, chunk, a.q + at, bytes);
    }
    return;
  }
  [[maybe_unused]] RowOrder order(0, 0);
  if constexpr (kKind == Kind::kFar) order = RowOrder(a.rows_of(work.sequence), a.parts.stride);
#pragma unroll 4
  for (int i = threadIdx.x % 128; i < kGroupRows * kChunks; i += 128) {
    const int place = first + i / kChunks;
    const int chunk = i % kChunks;
    // Where there is none any will do, of which no bytes are taken.
    const int pair = work.pair + min(place, work.pairs - 1);
    int row = a.by_group.quotient(pair);
    bool is_there = place < work.pairs;
    if constexpr (kKind == Kind::kFar) {
      row = order.row(row);
      is_there = is_there && row < order.rows;
      row = min(row, order.rows - 1);
    }
    const int head = work.head * a.group + a.by_group.remainder(pair);
    const __nv_bfloat16* const query = a.q + (work.query + row) * a.q_stride + head * Dim;
    ask_query<Dim>(target, i / kChunks, chunk, query + chunk * 8, is_there ? 16 : 0);
  }
}

}  // namespace sluice::cuda::prefill
