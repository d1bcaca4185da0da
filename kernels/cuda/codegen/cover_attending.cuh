// How the blocks of a cluster attend to what they have selected of a row under a cover (cover_attention.h): each to an equal part
// of the pages that are opened, and to the summaries of those of its own pages that are not. Text behind that of
// cluster_attending.cuh and cover_row.cuh.

namespace sluice::cuda {

/// A page by its rank: of two the one that is taken first is greater, that with the higher key or else the lower page. 0: none.
/// Compared as one number, since in a row's few steps a branch costs more than what it saves.
using RankedPage = unsigned long long;
static_assert(topk::kNoKey == 0);
__device__ __forceinline__ RankedPage ranked_page(float score, int page) {
  return static_cast<RankedPage>(topk::order_key(__float_as_uint(score))) << 32 | ~static_cast<uint32_t>(page);
}
/// Not of what is none.
__device__ __forceinline__ int page_of(RankedPage ranked) { return static_cast<int>(~static_cast<uint32_t>(ranked)); }

/// What blocks tell each other of the few pages that a row opens, in shared memory.
struct FewPages {
  struct Told {
    RankedPage rank;
    long long id;  // its place in the pool
  };

  RankedPage of_warps[2][kAttenderThreads / 32];  // by turns
  Told told[topk::kMaxCluster * kFewPages];
};

/// Selects from a row of which each block has the `scores` and the places in the pool, `pool_pages`, of pages
/// [first, first + count): each tells the others its best, of which all take the best. Calls take(rank, page, place in the pool)
/// for each selected page, first those that are kept anyway, and returns their number. By all threads of all blocks; a barrier.
/// `what.k` is at most kFewPages.
template <int kThreads, class Take>
__device__ __forceinline__ int select_few(RowBlocks& blocks, const Row& row, const float* scores, const int* pool_pages,
                                          int first, int count, const Selecting& what, FewPages& few, const Take& take) {
  static_assert(topk::kMaxCluster * kFewPages <= kThreads);
  const int thread = threadIdx.x;
  const int low = min(what.first, row.pages);  // pages are kept below this, and from the next on
  const int high = max(low, row.pages - what.last);
  const int kept = low + row.pages - high;
  const auto kept_page = [&](int i) { return i < low ? i : high + i - low; };
  const int own_id = thread < kept ? row.ids[kept_page(thread)] : 0;  // on its way meanwhile
  RankedPage best, second;                                            // of this thread's pages that are left
  const auto look_below = [&](RankedPage bound) {
    const auto wanted = static_cast<uint32_t>(max(0, what.end - what.begin));
    best = second = 0;
#pragma unroll 1
    for (int i = thread; i < count; i += kThreads) {
      RankedPage one = ranked_page(scores[i], first + i);
      if (static_cast<uint32_t>(first + i - what.begin) >= wanted || one >= bound) one = 0;
      second = max(second, min(best, one));
      best = max(best, one);
    }
  };
  look_below(~RankedPage{0});
  RankedPage mine = 0;  // of thread i: number i of this block
  int taken = 0;
#pragma unroll 1
  for (int i = 0; i < what.k; ++i) {
    const uint32_t key = __reduce_max_sync(~0U, static_cast<uint32_t>(best >> 32));
    const uint32_t not_page = __reduce_max_sync(~0U, static_cast<uint32_t>(best >> 32) == key ? static_cast<uint32_t>(best) : 0);
    RankedPage* const of_warps = few.of_warps[i % 2];
    if (thread % 32 == 0) of_warps[thread / 32] = static_cast<RankedPage>(key) << 32 | not_page;
    __syncthreads();
    RankedPage all[kThreads / 32];
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) all[warp] = of_warps[warp];
#pragma unroll
    for (int left = kThreads / 64; left > 0; left /= 2) {
#pragma unroll
      for (int warp = 0; warp < left; ++warp) all[warp] = max(all[warp], all[warp + left]);
    }
    const RankedPage highest = all[0];
    if (thread == i) mine = highest;
    if (best == highest && highest != 0) {
      best = second;
      second = 0;
      if (++taken % 2 == 0) look_below(highest);
    }
  }
  if (thread < what.k) {
    const FewPages::Told own{mine, mine != 0 ? pool_pages[page_of(mine) - first] : 0};
#pragma unroll 1
    for (int block = 0; block < blocks.count; ++block) blocks.send(few.told + blocks.rank * what.k + thread, own, block);
  }
  if (thread < kept) take(thread, kept_page(thread), own_id);
#pragma unroll 1
  for (int i = thread + kThreads; i < kept; i += kThreads) take(i, kept_page(i), row.ids[kept_page(i)]);
  const int told = blocks.count * what.k;
  if (told > 0) {
    blocks.receive(told * static_cast<int>(sizeof(FewPages::Told)));
  } else {
    blocks.sync();
  }
  bool is_taken = false;
  if (thread < told) {
    const auto is_open = [&](RankedPage one) {
      return one != 0 && static_cast<uint32_t>(page_of(one) - low) < static_cast<uint32_t>(high - low);
    };
    const FewPages::Told own = few.told[thread];
    int rank = 0;
    int place = kept;
#pragma unroll 4
    for (int i = 0; i < told; ++i) {
      const RankedPage other = few.told[i].rank;
      rank += other > own.rank ? 1 : 0;
      place += other > own.rank && is_open(other) ? 1 : 0;
    }
    is_taken = is_open(own.rank) && rank < what.k;
    if (is_taken) take(place, page_of(own.rank), static_cast<int>(own.id));
  }
  return kept + __syncthreads_count(is_taken);
}

/// The pages that a block has of a row, those of [first, first + count), and what it knows of the summaries that stand for them.
template <int kGroup, int kBiasHeads>
struct CoveredPages {
  const RowBlocks& blocks;
  int first;
  int count;
  int share;       // pages that a block has
  int first_page;  // that have summaries: pages [first_page, end_page) of the row
  int end_page;
  const float* logits;     // [pages of this block][kGroup] q . k
  const float* bias;       // [pages of this block][kBiasHeads]; not read if kBiasHeads is 0
  float scale;             // of logits, in base 2
  float common;            // added to all of them
  const uint32_t* opened;  // a bit for each page of this block

  __device__ __forceinline__ bool has_summary(int page) const { return page >= first_page && page < end_page; }
  /// The logit of a summary, whichever block has the page, in base 2, once that block has sent what it computed from it. Barriers
  /// of that block lie in between, behind which its logits are in its memory: this goes by how multiprocessors work, since PTX
  /// does not order what other threads wrote before a message. Of heads past the group's: that of its last.
  __device__ __forceinline__ float of(int page, int head) const {
    return with_bias(blocks.of_page(logits, page, kGroup, share),
                     kBiasHeads > 0 ? blocks.of_page(bias, page, max(kBiasHeads, 1), share) : nullptr, min(head, kGroup - 1));
  }
  /// The same of this block's page `at`.
  __device__ __forceinline__ float of_own(int at, int head) const {
    return with_bias(logits + at * kGroup, kBiasHeads > 0 ? bias + at * kBiasHeads : nullptr, min(head, kGroup - 1));
  }

 private:
  __device__ __forceinline__ float with_bias(const float* own, const float* own_bias, int head) const {
    const float logit = __fmaf_rn(own[head], scale, common);
    if constexpr (kBiasHeads == 0) return logit;
    return __fmaf_rn(own_bias[kBiasHeads == 1 ? 0 : head], kLog2E, logit);
  }
};

/// The pages that are opened, as a warp asks for them: every `step`-th from `place` on, tile by tile.
template <class Tile, int kBox, int kPageTokens>
class OpenedTiles {
 public:
  static constexpr int kTileTokens = decode::kTileTokens;
  static constexpr int kPageTiles = (kPageTokens + kTileTokens - 1) / kTileTokens;

  __device__ __forceinline__ OpenedTiles(const int* ids, int count, int place, int step)
      : ids_(ids), count_(count), place_(place), step_(step) {}

  /// Asks for the next tile, if there is one. By one lane.
  __device__ __forceinline__ void copy(const FlowArguments& a, const AttentionArguments& attention, int head, uint32_t target,
                                       uint32_t barrier) {
    if (place_ >= count_) return;
    constexpr int kBoxBytes = 2 * Tile::kHalfBytes;
    const int boxes = min(kTileTokens, kPageTokens - tile_ * kTileTokens) / kBox;
    barrier_expect(barrier, boxes * kBoxBytes);
#pragma unroll
    for (int box = 0; box < kTileTokens / kBox; ++box) {
      if (box >= boxes) break;
      decode::copy_box(attention.map, target + box * kBoxBytes, barrier, tile_ * kTileTokens + box * kBox,
                       ids_[place_] * a.kv_heads + head);
    }
    if (++tile_ < kPageTiles) return;
    tile_ = 0;
    place_ += step_;
  }

 private:
  const int* ids_;
  int count_;
  int place_;
  int step_;
  int tile_ = 0;
};

/// Adds pages that are opened, places `place`, `place` + `step`, ... of `chosen`, to `all`. A page with a summary weighs what
/// that says, if kShares. By a warp; `ring` has slots whose barriers are `filled`, and `tiles` has been asked for as many tiles.
template <bool kShares, int kPageTokens, class Tile, class AttendedRow, class All, class Covered, class Tiles>
__device__ __forceinline__ void attend_opened(const FlowArguments& a, const AttentionArguments& attention, const Row& row,
                                              const Covered& covered, const int* positions, int chosen, int place, int step,
                                              uint8_t* ring, uint32_t filled, Tiles& tiles, AttendedRow& mine, All& all) {
  const int lane = threadIdx.x % 32;
  Turn slot;
#pragma unroll 1
  for (; place < chosen; place += step) {
    const int page = positions[place];
    const int tokens = page == row.pages - 1 ? row.last_tokens : kPageTokens;
    const bool shares = kShares && covered.has_summary(page);
    float weight[2] = {};
    if (shares) {
#pragma unroll
      for (int half = 0; half < AttendedRow::kHalves; ++half) weight[half] = covered.of(page, lane / 4 + 8 * half);
    }
#pragma unroll 1
    for (int token = 0; token < kPageTokens; token += decode::kTileTokens) {
      barrier_wait(filled + 8 * slot.index, slot.parity);
      uint8_t* const tile = ring + slot.index * Tile::kTileBytes;
      if (token < tokens) mine.attend(tile, min(tokens - token, decode::kTileTokens));
      // The copy engine writes here next: after what this warp wrote, and after all its lanes have read.
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (lane == 0) tiles.copy(a, attention, row.head, shared_address(tile), filled + 8 * slot.index);
      slot.next(attention.value_stages);
    }
    if constexpr (kShares) {
      if (shares) {
        all.add_as(mine, weight);
      } else {
        all.add(mine);
      }
      mine.clear();
    }
  }
  if constexpr (!kShares) all.add(mine);
}

/// Adds the summaries of tile `tile` of this block's pages, which are in `values` once the phase of `barrier` ends that has
/// `parity`, to `all`. By a warp.
template <class Summaries, DataType kType, class All, class Covered>
__device__ __forceinline__ void attend_own_summaries(const Covered& covered, int tile, uint8_t* values, uint32_t barrier,
                                                     uint32_t parity, All& all) {
  const int begin = tile * Summaries::kEntries;
  const uint32_t hidden = covered.opened[begin / 32] >> begin % 32;
  const auto counts = [&](int entry) {
    return begin + entry < covered.count && covered.has_summary(covered.first + begin + entry) && (hidden >> entry & 1) == 0;
  };
  decode::attend_summaries<Summaries>(
      values, kType, counts, [&](int entry, int head) { return covered.of_own(begin + entry, head); },
      [&] { barrier_wait(barrier, parity); }, all);
}

/// Adds what a row attends to under a cover to the totals: pages that are opened, and as many as entries for the others fill.
__device__ __forceinline__ void count_covered(const Row& row, int opened, int entries, int page_tokens) {
  const FlowArguments& a = row.arguments;
  const int filled = max(0, min((entries + page_tokens - 1) / page_tokens, row.pages - opened));
  if (a.attended != nullptr) atomicAdd(a.attended, static_cast<unsigned long long>(opened + filled));
  if (a.available != nullptr) atomicAdd(a.available, static_cast<unsigned long long>(row.pages));
}

}  // namespace sluice::cuda
