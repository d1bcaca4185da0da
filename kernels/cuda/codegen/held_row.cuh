// Selection from a row of scores in shared memory by four warps or eight, in little code: a kernel's instructions are fetched
// anew for every layer, so long ways that are taken once cost more than loops. Text behind that of attending.cuh.

namespace sluice::cuda {

// Who selects where others have something else to do: the last threads of a block.
constexpr int kChooserThreads = 128;
using Choosers = PartOfBlock<4, kChooserThreads>;

/// What is selected of a row: its `first` and `last` pages and, of pages [begin, end), the best k, 0 <= k <= end - begin.
struct Selecting {
  int first;
  int last;
  int begin;
  int end;
  int k;
};

/// A row that the last kThreads threads of a block, which are the crew, select from, of at most kMostHeldPages. A thread has four
/// pages at a time, a warp a stretch of the row.
template <int kThreads, class Crew>
class HeldRow {
 public:
  /// What warps tell each other, in shared memory.
  using Told = uint2[2][kThreads / 32];

  /// `scores` of `pages` pages, which become what this works with.
  __device__ __forceinline__ HeldRow(float* scores, int pages, const Selecting& what, Told& told)
      : words_(reinterpret_cast<uint32_t*>(scores)),
        pages_(pages),
        what_(what),
        told_(told),
        warp_(threadIdx.x % kThreads / 32),
        steps_((pages + 4 * kThreads - 1) / (4 * kThreads)) {}

  /// Calls use(rank, page) for each selected page; returns their number. By the crew.
  template <class Use>
  __device__ __forceinline__ int select(const Use& use) {
    const topk::Cut cut = find_cut();
    int ties = cut.ties;
    if (ties > 0) {
      uint32_t tied = 0;
      visit<false>(
          [&](const uint4& four, int) { tied += topk::number_of(four, [&](uint32_t key) { return key == cut.first - 1; }); });
      ties -= sums(tied).x;
    }
    // A bit for each page in place of the keys.
    uint32_t own = 0;
    visit<true>([&](uint4& four, int at) {
      uint32_t taken = topk::bits_of(four, [&](uint32_t key) { return static_cast<uint32_t>(key >= cut.first); });
      if (ties > 0) {
        const uint32_t tied = topk::bits_of(four, [&](uint32_t key) { return static_cast<uint32_t>(key == cut.first - 1); });
        const int2 ranks = ranks_of(__popc(tied));
        int rank = ranks.x;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if ((tied >> i & 1) != 0 && rank++ < ties) taken |= 1U << i;
        }
        ties -= ranks.y;
      }
      taken |= PageSet::kept(what_.first, what_.last, pages_, at) & 15;
      own += __popc(taken);
      four.x = taken;
    });
    const int2 selected = sums(own);
    int before = selected.x;
    visit<false>([&](const uint4& four, int at) {
      const int2 ranks = ranks_of(__popc(four.x));
      int rank = before + ranks.x;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((four.x >> i & 1) != 0) use(rank++, at + i);
      }
      before += ranks.y;
    });
    return selected.y;
  }

 private:
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kFew = 8;
  static_assert(kMostHeldPages < 1 << 16);  // two counts are one number

  /// Calls use(words of four pages, the first of them) for this thread's pages, all lanes together; past the row words are 0.
  template <bool kWrites, class Use>
  __device__ __forceinline__ void visit(const Use& use) {
#pragma unroll 1
    for (int step = 0; step < steps_; ++step) {
      const int at = 128 * (warp_ * steps_ + step) + 4 * static_cast<int>(threadIdx.x % 32);
      uint4* const words = reinterpret_cast<uint4*>(words_ + at);
      uint4 four{};
      if (at < pages_) four = *words;
      use(four, at);
      if (kWrites && at < pages_) *words = four;
    }
  }

  /// The sum of `number`, 0 to 4, over the lanes below this one (x) and over all (y).
  static __device__ __forceinline__ int2 ranks_of(int number) {
    const uint32_t lower = (1U << threadIdx.x % 32) - 1;
    int2 ranks{0, 0};
#pragma unroll
    for (int bit = 0; bit < 3; ++bit) {
      const uint32_t has = __ballot_sync(~0U, number >> bit & 1);
      ranks.x += __popc(has & lower) << bit;
      ranks.y += __popc(has) << bit;
    }
    return ranks;
  }

  /// What all warps say.
  __device__ __forceinline__ const uint2* tell(uint2 numbers) {
    uint2* const all = told_[turn_];
    turn_ ^= 1;  // nobody writes what another still reads
    if (threadIdx.x % 32 == 0) all[warp_] = numbers;
    Crew::sync();
    return all;
  }
  /// Of what all warps have told.
  static __device__ __forceinline__ uint2 total(const uint2* all) {
    uint2 total{0, 0};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total = {total.x + all[warp].x, total.y + all[warp].y};
    return total;
  }
  static __device__ __forceinline__ uint2 largest(const uint2* all) {
    uint2 largest{0, 0};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) largest = {max(largest.x, all[warp].x), max(largest.y, all[warp].y)};
    return largest;
  }
  /// The sum of what the warps before this one have (x), and all (y).
  __device__ __forceinline__ int2 sums(uint32_t number) {
    const uint2* const all = tell({__reduce_add_sync(~0U, number), 0});
    int2 sums{0, 0};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp < warp_) sums.x += static_cast<int>(all[warp].x);
      sums.y += static_cast<int>(all[warp].x);
    }
    return sums;
  }

  /// The cut of so few that going down from key to key is sooner there. `highest` of all.
  __device__ __forceinline__ topk::Cut find_few(uint32_t highest) {
    int reaching = 0;
    for (uint32_t key = highest;;) {
      uint32_t below = 0;  // the highest key that is lower
      int equal = 0;
      visit<false>([&](const uint4& four, int) {
        equal += topk::number_of(four, [&](uint32_t other) { return other == key; });
        const auto lower = [&](uint32_t other) { return other < key ? other : 0; };
        below = max(max(below, max(lower(four.x), lower(four.y))), max(lower(four.z), lower(four.w)));
      });
      const uint2* const all = tell({__reduce_add_sync(~0U, static_cast<uint32_t>(equal)), __reduce_max_sync(~0U, below)});
      equal = static_cast<int>(total(all).x);
      if (reaching + equal > what_.k) return {key + 1, what_.k - reaching};
      reaching += equal;
      if (reaching == what_.k) return {key, 0};
      key = largest(all).y;
    }
  }

  /// The complement of a key that at least k keys reach: the greatest complement over all warps is that of such a key, or ~0 if
  /// none was found. Lanes form at least k groups. Each group has a best key, and all of these reach the lowest of them. `best`:
  /// of this thread, 0 if it has none.
  __device__ __forceinline__ uint32_t complement_of_bound(uint32_t best) const {
    if (what_.k > kThreads) return ~0U;
#pragma unroll 1
    for (int lanes = 1; lanes < 32 && kThreads / (2 * lanes) >= what_.k; lanes *= 2) {
      best = max(best, __shfl_xor_sync(~0U, best, lanes));
    }
    return __reduce_max_sync(~0U, ~best);
  }

  /// Makes keys of the scores, and cuts the bracket of the k-th best in four until it is exact.
  __device__ __forceinline__ topk::Cut find_cut() {
    const auto wanted = static_cast<uint32_t>(what_.end - what_.begin);
    uint32_t highest = 0;
    uint32_t lowest = 0;  // the highest ~key
    visit<true>([&](uint4& four, int at) {
      const auto key_of = [&](uint32_t bits, int i) {
        if (static_cast<uint32_t>(at + i - what_.begin) >= wanted) return topk::kNoKey;
        const uint32_t key = topk::order_key(bits);
        highest = max(highest, key);
        lowest = max(lowest, ~key);
        return key;
      };
      four = {key_of(four.x, 0), key_of(four.y, 1), key_of(four.z, 2), key_of(four.w, 3)};
    });
    const uint2 ends = largest(tell({__reduce_max_sync(~0U, highest), complement_of_bound(highest)}));
    highest = ends.x;
    if (what_.k <= 0) return {highest + 1, 0};
    if (what_.k <= kFew) return find_few(highest);
    topk::Bracket bracket;
    bracket.end = highest + 1;
    bracket.begin = ~ends.y;
    if (bracket.begin == topk::kNoKey) bracket.begin = ~largest(tell({0, __reduce_max_sync(~0U, lowest)})).y;
    // Too many where `begin` is a bound, which does no harm: then the row has more than k.
    bracket.reaching_begin = static_cast<int>(wanted);
#pragma unroll 1
    while (!topk::is_exact(bracket, what_.k)) {
      const uint32_t span = bracket.end - bracket.begin;
      const uint32_t quarter = max(1U, span / 4);
      const uint32_t probes[3] = {bracket.begin + quarter, bracket.begin + span / 2, bracket.end - quarter};
      uint2 reach{0, 0};  // keys that reach the first probe and, in the upper half, the second; the third
      visit<false>([&](const uint4& four, int) {
        reach.x += topk::number_of(four, [&](uint32_t key) { return key >= probes[0]; });
        reach.x += topk::number_of(four, [&](uint32_t key) { return key >= probes[1]; }) << 16;
        reach.y += topk::number_of(four, [&](uint32_t key) { return key >= probes[2]; });
      });
      reach = total(tell({__reduce_add_sync(~0U, reach.x), __reduce_add_sync(~0U, reach.y)}));
      const int reaching[3] = {static_cast<int>(reach.x & 0xffff), static_cast<int>(reach.x >> 16), static_cast<int>(reach.y)};
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        if (reaching[i] >= what_.k) {
          bracket.begin = probes[i];
          bracket.reaching_begin = reaching[i];
        } else if (probes[i] < bracket.end) {
          bracket.end = probes[i];
          bracket.reaching_end = reaching[i];
        }
      }
    }
    return topk::exact_cut(bracket, what_.k);
  }

  uint32_t* words_;
  int pages_;
  Selecting what_;
  Told& told_;
  int warp_;
  int steps_;
  int turn_ = 0;
};

}  // namespace sluice::cuda
