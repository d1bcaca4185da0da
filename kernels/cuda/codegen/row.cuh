// What the kernels share that keep a whole row on chip, from scores to the list of selected pages. The row belongs to a block, or
// to the blocks of a cluster, each with a stretch of its pages. Text behind that of prelude.cuh.

namespace sluice::cuda {

constexpr int kFieldThreads = 128;  // that compute the newest page's fields, while the others go on

// Copies of pages to shared memory, a ring of stages for each warp.

__device__ __forceinline__ void begin_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Barriers are seen by copies from here on.
__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/// The barrier's phase ends once so many more bytes are there.
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_for(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred there; again: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1; @!there bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void copy_bytes(uint32_t shared, const uint8_t* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}
/// What this thread has written to pages is seen by copies that are asked for behind the next barrier, and by later kernels even
/// before they wait.
__device__ __forceinline__ void publish_fields() {
  __threadfence();
  asm volatile("fence.proxy.async;" ::: "memory");
}
/// Waits for the threads that compute fields.
__device__ __forceinline__ void sync_field_threads() { asm volatile("bar.sync 1, %0;" ::"n"(kFieldThreads) : "memory"); }

// Sums of products on tensor cores: lines of channels in shared memory, bf16, times numbers of the query, which are split into
// bf16 parts that add up to them. Products are exact and sums float32. Infinities and NaN spoil a sum that should be finite,
// never the reverse, so whoever gets a number that is not finite computes it anew.

enum class Bound { kNone, kUpper, kLower };  // sums of q * a, of max(q * a, q * b) or of min(q * a, q * b)

constexpr int kMostParts = 3;  // of a float32

/// Writes [signs][kMostParts][kSteps][kTiles][32 lanes] pairs of a product's second operand: value(result, channel) for up to
/// 8 * kTiles results and 16 * kSteps channels. By the whole block; returns the number of parts that are not all zero, 1 or 3.
template <int kSteps, int kTiles, Bound kBound, class Value>
__device__ int write_query_parts(uint2* to, int results, const Value& value) {
  constexpr int kFragments = kSteps * kTiles * 32;
  bool rest = false;
#pragma unroll 1
  for (int i = threadIdx.x; i < kFragments; i += blockDim.x) {
    const int result = i / 32 % kTiles * 8 + i % 32 / 4;
    const int channel = i / (32 * kTiles) * 16 + i % 4 * 2;
    float numbers[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) numbers[j] = result < results ? value(result, channel + j % 2 + j / 2 * 8) : 0.0F;
#pragma unroll
    for (int sign = 0; sign < (kBound == Bound::kNone ? 1 : 2); ++sign) {
      float left[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) left[j] = kBound == Bound::kNone || (numbers[j] >= 0) == (sign == 0) ? numbers[j] : 0.0F;
#pragma unroll
      for (int part = 0; part < kMostParts; ++part) {
        uint32_t halves[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          halves[j] = BF16::narrow(left[j]);
          left[j] -= BF16::widen(halves[j]);
          rest |= part == 0 && left[j] != 0;
        }
        to[(sign * kMostParts + part) * kFragments + i] = {halves[0] | halves[1] << 16, halves[2] | halves[3] << 16};
      }
    }
  }
  return __syncthreads_or(rest) ? kMostParts : 1;
}

/// 16 lines of 16 channels; each lane gives where a line of the first or the last eight channels begins.
__device__ __forceinline__ void load_lines(uint32_t address, uint32_t (&numbers)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(numbers[0]), "=r"(numbers[1]), "=r"(numbers[2]), "=r"(numbers[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t (&lines)[4], const uint2& query) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(lines[0]), "r"(lines[1]), "r"(lines[2]), "r"(lines[3]), "r"(query.x), "r"(query.y));
}
__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b) {
  uint32_t larger;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
__device__ __forceinline__ uint32_t smaller_pair(uint32_t a, uint32_t b) {
  uint32_t smaller;
  asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(smaller) : "r"(a), "r"(b));
  return smaller;
}

/// sums[tile]: of lines lane / 4 (+ 8) and results 8 * tile + 2 * (lane % 4) (+ 1), as mma.m16n8k16 has them.
template <int kSteps, int kTiles, Bound kBound, int kParts>
__device__ __forceinline__ void multiply_lines(float (&sums)[kTiles][4], uint32_t a, uint32_t b, const uint2* query) {
  constexpr int kFragments = kSteps * kTiles * 32;
  float part_sums[kParts][kTiles][4] = {};
  query += threadIdx.x % 32;
#pragma unroll 8
  for (int step = 0; step < kSteps; ++step) {
    uint32_t lines[4];
    load_lines(a + 32 * step, lines);
    uint32_t others[4];
    if constexpr (kBound != Bound::kNone) {
      load_lines(b + 32 * step, others);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t larger = larger_pair(lines[i], others[i]);
        const uint32_t smaller = smaller_pair(lines[i], others[i]);
        lines[i] = kBound == Bound::kUpper ? larger : smaller;
        others[i] = kBound == Bound::kUpper ? smaller : larger;
      }
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint2* const from = query + part * kFragments + (step * kTiles + tile) * 32;
        multiply(part_sums[part][tile], lines, from[0]);
        if constexpr (kBound != Bound::kNone) multiply(part_sums[part][tile], others, from[kMostParts * kFragments]);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[tile][i] = part_sums[kParts - 1][tile][i];
#pragma unroll
      for (int part = kParts - 2; part >= 0; --part) sums[tile][i] += part_sums[part][tile][i];
    }
  }
}

/// The blocks that have a row.
class RowBlocks {
 public:
  __device__ RowBlocks() : count(static_cast<int>(cluster_blocks())), rank(static_cast<int>(cluster_rank())) {}

  __device__ void sync() const {
    if (count > 1) {
      sync_cluster();
    } else {
      __syncthreads();
    }
  }

  /// Gives every block the numbers of all, which each thread of a block must have: [count].
  template <class T>
  __device__ const T* exchange(T x) {
    __shared__ T parts[2][topk::kMaxCluster];  // by turns, so that no block writes what another still reads
    T* const mine = &parts[turn_][rank];
    turn_ ^= 1;
    if (static_cast<int>(threadIdx.x) < count) *in_block(mine, threadIdx.x) = x;
    sync();
    return mine - rank;
  }

  /// Combines a number of every thread; all get the result. The order is fixed.
  template <class Op, class T>
  __device__ T combine(T x) {
    x = combine_block<Op>(x);
    if (count == 1) return x;
    const T* const parts = exchange(x);
    x = parts[0];
#pragma unroll 1
    for (int block = 1; block < count; ++block) x = Op::of(x, parts[block]);
    return x;
  }

  /// What the block that has page `page` holds of it; each has `share` pages.
  template <class T>
  __device__ const T* of_page(const T* held, int page, int per_page, int share) const {
    return in_block(held + page % share * per_page, page / share);
  }

  const int count;
  const int rank;

 private:
  int turn_ = 0;
};

/// The pages of a row that are selected: those of this block as bits.
class PageSet {
 public:
  /// `bits` and `ranks` in shared memory: a word for every 32 of the block's pages [first, first + count).
  __device__ PageSet(uint32_t* bits, uint32_t* ranks, int first, int count)
      : bits_(bits), ranks_(ranks), words_((count + 31) / 32), first_(first), count_(count) {}

  /// Selects the `first` and `last` of `pages` pages, and no others. By the whole block.
  __device__ void begin(int first, int last, int pages) {
#pragma unroll 1
    for (int word = threadIdx.x; word < words_; word += blockDim.x) {
      const int begin = first_ + 32 * word;
      bits_[word] = bits_below(pages, begin) & (bits_below(first, begin) | ~bits_below(pages - last, begin));
    }
  }

  /// Adds the four pages of each lane of a warp, all 128 of which follow each other: bit i for page `at` + i of the block.
  __device__ void add(uint32_t four, int at) {
    uint32_t word = four << at % 32;
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) word |= __shfl_xor_sync(~0U, word, lanes);
    if (at % 32 == 0 && at < count_) bits_[at / 32] |= word;
  }

  /// Adds page `at` of the block; not while others are added by fours.
  __device__ void add_one(int at) { atomicOr(&bits_[at / 32], 1U << at % 32); }

  /// Counts them; returns their number in this block.
  __device__ int count() {
    __shared__ int warps[kRowWarps];
    __syncthreads();
    const int run = (words_ + kRowThreads - 1) / kRowThreads;
    const int begin = threadIdx.x * run;
    const int end = min(begin + run, words_);
    int own = 0;
#pragma unroll 1
    for (int word = begin; word < end; ++word) own += __popc(bits_[word]);
    int through = own;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int lower = __shfl_up_sync(~0U, through, lanes);
      if (lane >= lanes) through += lower;
    }
    const int warp = threadIdx.x / 32;
    if (lane == 31) warps[warp] = through;
    __syncthreads();
    const int of_warp = lane < kRowWarps ? warps[lane] : 0;
    int rank = through - own + __reduce_add_sync(~0U, lane < warp ? of_warp : 0);
#pragma unroll 1
    for (int word = begin; word < end; ++word) {
      ranks_[word] = rank;
      rank += __popc(bits_[word]);
    }
    const int all = __reduce_add_sync(~0U, of_warp);
    __syncthreads();
    return all;
  }

  __device__ bool has(int at) const { return (bits_[at / 32] >> at % 32 & 1) != 0; }
  /// How many lie before page `at` of the block.
  __device__ int rank_of(int at) const { return ranks_[at / 32] + __popc(bits_[at / 32] & ((1U << at % 32) - 1)); }

 private:
  /// The bits of pages [begin, begin + 32) that lie before `end`.
  static __device__ uint32_t bits_below(int end, int begin) {
    if (end <= begin) return 0;
    return end - begin >= 32 ? ~0U : (1U << (end - begin)) - 1;
  }

  uint32_t* bits_;
  uint32_t* ranks_;
  int words_;
  int first_;
  int count_;
};

/// Order keys of the scores of a row that this block holds: keys[0, count) of the pages from `first` on. Those that are not among
/// pages [begin, end) are kNoKey.
struct HeldKeys {
  uint32_t* keys;
  int first;
  int count;
  int begin;
  int end;

  /// Calls use(place of four): warps have equal stretches of whole steps.
  template <class Use>
  __device__ void places(int warp, int lane, const Use& use) const {
    const int steps = (count + topk::kStep * kRowWarps - 1) / (topk::kStep * kRowWarps);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const int at = (warp * steps + step) * topk::kStep + 4 * lane;
      if (at - 4 * lane >= count) return;
      use(at);
    }
  }
  /// Makes the keys; what a thread visits later is what it made.
  template <class Use>
  __device__ void make(const float* scores, int warp, int lane, const Use& use) const {
    const auto wanted = static_cast<uint32_t>(end - begin);
    places(warp, lane, [&](int at) {
      uint4 four{};
      if (at < count) four = *reinterpret_cast<const uint4*>(scores + at);
      const auto key = [&](uint32_t bits, int i) {
        return at + i < count && static_cast<uint32_t>(first + at + i - begin) < wanted ? topk::order_key(bits) : topk::kNoKey;
      };
      four = {key(four.x, 0), key(four.y, 1), key(four.z, 2), key(four.w, 3)};
      if (at < count) *reinterpret_cast<uint4*>(keys + at) = four;
      use(four);
    });
  }
  /// Four keys and the place of the first at a time.
  template <class Use>
  __device__ void visit(int warp, int lane, const Use& use) const {
    places(warp, lane, [&](int at) {
      uint4 four{};
      if (at < count) four = *reinterpret_cast<const uint4*>(keys + at);
      use(four, at);
    });
  }
};

/// Makes the keys, and finds a bracket that the k-th best of the row is in. Where there are at least k groups of keys, the lowest
/// of their highest keys is one that at least k keys reach.
template <bool kAcross>
__device__ topk::Bracket bracket_of(RowBlocks& blocks, const topk::Team<kRowThreads>& team, const HeldKeys& keys,
                                    const float* scores, int k) {
  __shared__ uint2 warps[kRowWarps];
  uint32_t highest = topk::kNoKey;
  keys.make(scores, team.warp, team.lane,
            [&](const uint4& four) { highest = max(highest, max(max(four.x, four.y), max(four.z, four.w))); });
  // Groups are what four threads have, if these are enough, else what each has.
  constexpr int kGroupThreads = 4;
  const int length = keys.end - keys.begin;
  const int enough = min(kRowThreads / kGroupThreads * blocks.count, length / (4 * kGroupThreads) - 2 * blocks.count);
  uint32_t group = highest;
  if (k <= enough) {
#pragma unroll
    for (int lanes = 1; lanes < kGroupThreads; lanes *= 2) group = max(group, __shfl_xor_sync(~0U, group, lanes));
  }
  const bool leads = group != topk::kNoKey && (k > enough || team.lane % kGroupThreads == 0);
  uint32_t above = __reduce_max_sync(~0U, group == topk::kNoKey ? 0U : ~group);  // of ~key, as lowest means most
  highest = __reduce_max_sync(~0U, highest);
  if (team.lane == 0) warps[team.warp] = {above, highest};
  int groups = __syncthreads_count(leads);
  const uint2 of_warp = team.lane < kRowWarps ? warps[team.lane] : uint2{0, 0};
  above = __reduce_max_sync(~0U, of_warp.x);
  highest = __reduce_max_sync(~0U, of_warp.y);
  if constexpr (kAcross) {
    const uint4* const parts = blocks.exchange(uint4{above, highest, static_cast<uint32_t>(groups), 0});
    groups = 0;
#pragma unroll 1
    for (int block = 0; block < blocks.count; ++block) {
      const uint4 part = parts[block];
      above = max(above, part.x);
      highest = max(highest, part.y);
      groups += static_cast<int>(part.z);
    }
  }
  topk::Bracket bracket;
  if (groups >= k) bracket.begin = ~above;
  bracket.end = highest + 1;
  bracket.reaching_begin = length;  // at most
  return bracket;
}

/// Adds what a cut takes, of the keys that tie the first in the row.
template <bool kAcross, class Visit>
__device__ void add_cut(topk::Team<kRowThreads>& team, PageSet& pages, const topk::Cut& cut, const Visit& visit) {
  const uint32_t ties = cut.ties;
  uint32_t before = 0;
  if (ties > 0) before = team.template count<kAcross>(cut, visit, [](uint32_t) { return 0U; }).before.y;
  visit([&](const uint4& keys, int at) {
    uint32_t taken = topk::bits_of(keys, [&](uint32_t key) { return static_cast<uint32_t>(key >= cut.first); });
    if (ties > 0) {
      const uint32_t tied = topk::bits_of(keys, [&](uint32_t key) { return static_cast<uint32_t>(key == cut.first - 1); });
      const uint2 sums = team.sums_of_lanes(__popc(tied));
      uint32_t rank = before + sums.x;
      before += sums.y;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((tied >> i & 1) != 0 && rank++ < ties) taken |= 1U << i;
      }
    }
    pages.add(taken, at);
  });
}

constexpr int kMostCandidates = 256;

/// Keys that are compared with each other, each with its place in the row so that lower pages are better.
struct Candidates {
  uint64_t own[kMostCandidates];  // of this block
  uint64_t all[kMostCandidates];  // of a cluster
  int found;                      // own ones
};

/// Adds the keys above the bracket, and of those in it, at most kMostCandidates, the best: each is compared with all others.
template <bool kAcross, class Visit>
__device__ void add_candidates(RowBlocks& blocks, const topk::Team<kRowThreads>& team, PageSet& pages,
                               const topk::Bracket& bracket, int k, int first, const Visit& visit, Candidates& candidates) {
  if (threadIdx.x == 0) candidates.found = 0;
  __syncthreads();
  visit([&](const uint4& four, int at) {
    const uint32_t over = topk::bits_of(four, [&](uint32_t key) { return static_cast<uint32_t>(key >= bracket.end); });
    const uint32_t in = topk::bits_of(four, [&](uint32_t key) { return static_cast<uint32_t>(key >= bracket.begin); }) & ~over;
    pages.add(over, at);
    const uint2 sums = team.sums_of_lanes(__popc(in));
    int place = 0;
    if (team.lane == 0) place = atomicAdd(&candidates.found, static_cast<int>(sums.y));
    place = __shfl_sync(~0U, place, 0) + static_cast<int>(sums.x);
    const uint32_t keys[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((in >> i & 1) != 0)
        candidates.own[place++] = static_cast<uint64_t>(keys[i]) << 32 | static_cast<uint32_t>(~(first + at + i));
    }
  });
  __syncthreads();
  const int own_count = candidates.found;
  int all = own_count;
  const uint64_t* rivals = candidates.own;
  if constexpr (kAcross) {
    const int* const counts = blocks.exchange(own_count);
    int before = 0;
    all = 0;
#pragma unroll 1
    for (int block = 0; block < blocks.count; ++block) {
      if (block < blocks.rank) before += counts[block];
      all += counts[block];
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < own_count * blocks.count; i += kRowThreads) {
      in_block(candidates.all, i / own_count)[before + i % own_count] = candidates.own[i % own_count];
    }
    sync_cluster();
    rivals = candidates.all;
  }
  const int wanted = k - bracket.reaching_end;
#pragma unroll 1
  for (int i = team.warp; i < own_count; i += kRowWarps) {
    const uint64_t mine = candidates.own[i];
    int rank = 0;
#pragma unroll 1
    for (int j = team.lane; j < all; j += 32) rank += rivals[j] > mine ? 1 : 0;
    rank = __reduce_add_sync(~0U, rank);
    if (team.lane == 0 && rank < wanted) pages.add_one(static_cast<int>(~static_cast<uint32_t>(mine)) - first);
  }
}

/// Adds the best k of scores to `pages`, 0 < k < their number in the row.
template <bool kAcross>
__device__ void add_best(RowBlocks& blocks, topk::Team<kRowThreads>& team, PageSet& pages, const HeldKeys& keys,
                         const float* scores, int k, Candidates& candidates) {
  const auto visit = [&](const auto& use) { keys.visit(team.warp, team.lane, use); };
  topk::Bracket bracket = bracket_of<kAcross>(blocks, team, keys, scores, k);
#pragma unroll 1
  while (!topk::is_exact(bracket, k) && bracket.reaching_begin - bracket.reaching_end > kMostCandidates) {
    team.template narrow<kAcross>(bracket, k, visit);
  }
  if (topk::is_exact(bracket, k)) {
    add_cut<kAcross>(team, pages, topk::exact_cut(bracket, k), visit);
  } else {
    add_candidates<kAcross>(blocks, team, pages, bracket, k, keys.first, visit, candidates);
  }
}

/// The same for any budget and any number of blocks.
__device__ __forceinline__ void select_best(RowBlocks& blocks, topk::Team<kRowThreads>& team, PageSet& pages,
                                            const HeldKeys& keys, const float* scores, int budget) {
  __shared__ Candidates candidates;
  const int k = min(budget, keys.end - keys.begin);
  if (k <= 0) return;
  if (k == keys.end - keys.begin) {
    keys.make(scores, team.warp, team.lane, [](const uint4&) {});
    keys.visit(team.warp, team.lane, [&](const uint4& four, int at) {
      pages.add(topk::bits_of(four, [](uint32_t key) { return static_cast<uint32_t>(key != topk::kNoKey); }), at);
    });
  } else if (blocks.count > 1) {
    add_best<true>(blocks, team, pages, keys, scores, k, candidates);
  } else {
    add_best<false>(blocks, team, pages, keys, scores, k, candidates);
  }
  __syncthreads();
}

/// Writes the list of selected pages, ascending, and what attention wants to know of it; ids[count] of this block's pages.
__device__ __forceinline__ void write_list(const Row& row, RowBlocks& blocks, PageSet& set, const int* ids, int first, int count,
                                           int page_tokens) {
  const FlowArguments& a = row.arguments;
  const int own = set.count();
  int before = 0;
  int all = own;
  if (blocks.count > 1) {
    const int* const counts = blocks.exchange(own);
    all = 0;
#pragma unroll 1
    for (int block = 0; block < blocks.count; ++block) {
      if (block == blocks.rank) before = all;
      all += counts[block];
    }
  }
  int* const positions = a.list_positions + row.index * a.list_stride + before;
  int* const listed = a.list_pages + row.index * a.list_stride + before;
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += kRowThreads) {
    if (!set.has(i)) continue;
    const int at = set.rank_of(i);
    listed[at] = ids[i];
    positions[at] = first + i;
  }
  const int newest = row.pages - 1 - first;
  const bool has_newest = row.pages == 0 ? blocks.rank == 0 : newest >= 0 && newest < count;
  if (!has_newest || threadIdx.x != kRowThreads - 1) return;
  const int missing = row.pages > 0 && set.has(newest) ? page_tokens - row.last_tokens : 0;
  a.list_starts[row.index] = static_cast<int>(row.index * a.list_stride);
  a.list_tokens[row.index] = all * page_tokens - missing;
  a.list_counts[row.index] = all;
  if (a.attended != nullptr) atomicAdd(a.attended, static_cast<unsigned long long>(all));
  if (a.available != nullptr) atomicAdd(a.available, static_cast<unsigned long long>(row.pages));
}

}  // namespace sluice::cuda
