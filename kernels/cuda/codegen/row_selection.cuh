// How kernels that hold rows (row.cuh) select from them and write the list of what they selected.

namespace sluice::cuda {

/// Makes the keys, and finds a bracket that the k-th best of the row is in. Where there are at least k groups of keys, the lowest
/// of their highest keys is one that at least k keys reach.
template <bool kAcross, int kThreads, class Crew>
__device__ topk::Bracket bracket_of(RowBlocks& blocks, const topk::Team<kThreads, Crew>& team, const HeldKeys<kThreads>& keys,
                                    const float* scores, int k) {
  constexpr int kWarps = kThreads / 32;
  __shared__ uint2 warps[kWarps];
  uint32_t highest = topk::kNoKey;
  keys.make(scores, team.warp, team.lane,
            [&](const uint4& four) { highest = max(highest, max(max(four.x, four.y), max(four.z, four.w))); });
  // Groups are what four threads have, if these are enough, else what each has.
  constexpr int kGroupThreads = 4;
  const int length = keys.end - keys.begin;
  const int enough = min(kThreads / kGroupThreads * blocks.count, length / (4 * kGroupThreads) - 2 * blocks.count);
  uint32_t group = highest;
  if (k <= enough) {
#pragma unroll
    for (int lanes = 1; lanes < kGroupThreads; lanes *= 2) group = max(group, __shfl_xor_sync(~0U, group, lanes));
  }
  const bool leads = group != topk::kNoKey && (k > enough || team.lane % kGroupThreads == 0);
  uint32_t above = __reduce_max_sync(~0U, group == topk::kNoKey ? 0U : ~group);  // of ~key, as lowest means most
  highest = __reduce_max_sync(~0U, highest);
  if (team.lane == 0) warps[team.warp] = {above, highest};
  int groups = Crew::count(leads);
  const uint2 of_warp = team.lane < kWarps ? warps[team.lane] : uint2{0, 0};
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
template <bool kAcross, class Team, class Visit>
__device__ void add_cut(Team& team, PageSet& pages, const topk::Cut& cut, const Visit& visit) {
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
template <bool kInCluster>
struct Candidates {
  uint64_t own[kMostCandidates];                   // of this block
  uint64_t all[kInCluster ? kMostCandidates : 1];  // of a cluster
  int found;                                       // own ones
};

/// Adds the keys above the bracket, and of those in it, at most kMostCandidates, the best: each is compared with all others.
template <bool kAcross, int kThreads, class Crew, class Visit>
__device__ void add_candidates(RowBlocks& blocks, const topk::Team<kThreads, Crew>& team, PageSet& pages,
                               const topk::Bracket& bracket, int k, int first, const Visit& visit,
                               Candidates<Crew::kIsWhole>& candidates) {
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
  Crew::sync();
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
    for (int i = threadIdx.x; i < own_count * blocks.count; i += kThreads) {
      in_block(candidates.all, i / own_count)[before + i % own_count] = candidates.own[i % own_count];
    }
    sync_cluster();
    rivals = candidates.all;
  }
  const int wanted = k - bracket.reaching_end;
#pragma unroll 1
  for (int i = team.warp; i < own_count; i += kThreads / 32) {
    const uint64_t mine = candidates.own[i];
    int rank = 0;
#pragma unroll 1
    for (int j = team.lane; j < all; j += 32) rank += rivals[j] > mine ? 1 : 0;
    rank = __reduce_add_sync(~0U, rank);
    if (team.lane == 0 && rank < wanted) pages.add_one(static_cast<int>(~static_cast<uint32_t>(mine)) - first);
  }
}

/// What selection works with. Except in kernels that attend, it lies where copies of pages were, so nobody may touch it before
/// all tiles of the row are done.
template <int kThreads, class Crew = WholeBlock>
struct SelectionMemory {
  topk::Shared<kThreads, Crew::kIsWhole> team;
  Candidates<Crew::kIsWhole> candidates;
};
static_assert(sizeof(SelectionMemory<kRowThreads>) <= kSelectionBytes &&
              sizeof(SelectionMemory<kSmallRowThreads>) <= kSelectionBytes);

/// Adds the best k of the keys that `visit` gives, of which the k-th best is in the bracket.
template <bool kAcross, int kThreads, class Crew, class Visit>
__device__ __forceinline__ void add_within(RowBlocks& blocks, SelectionMemory<kThreads, Crew>& memory,
                                           topk::Team<kThreads, Crew>& team, PageSet& pages, topk::Bracket bracket, int k,
                                           int first, const Visit& visit) {
#pragma unroll 1
  while (!topk::is_exact(bracket, k) && bracket.reaching_begin - bracket.reaching_end > kMostCandidates) {
    team.template narrow<kAcross>(bracket, k, visit);
  }
  if (topk::is_exact(bracket, k)) {
    add_cut<kAcross>(team, pages, topk::exact_cut(bracket, k), visit);
  } else {
    add_candidates<kAcross>(blocks, team, pages, bracket, k, first, visit, memory.candidates);
  }
}

/// Adds the best k of scores to `pages`, 0 < k < their number in the row.
template <bool kAcross, int kThreads, class Crew>
__device__ void add_best(RowBlocks& blocks, SelectionMemory<kThreads, Crew>& memory, PageSet& pages,
                         const HeldKeys<kThreads>& keys, const float* scores, int k) {
  topk::Team<kThreads, Crew> team(memory.team, blocks.count, blocks.rank);
  team.template clear<kAcross>();
  if (threadIdx.x == 0) memory.candidates.found = 0;
  const auto visit = [&](const auto& use) { keys.visit(team.warp, team.lane, use); };
  const topk::Bracket bracket = bracket_of<kAcross>(blocks, team, keys, scores, k);
  add_within<kAcross>(blocks, memory, team, pages, bracket, k, keys.first, visit);
}

/// Of an approximate selection.
struct Approximation {
  double tolerate;  // share that may be inexact
  uint64_t random;  // key of the draws
  int share;        // pages of the row that each block holds
};

/// Adds about the best k, as topk_approx.cuh has it. `scores` may lie where keys do.
template <bool kAcross, int kThreads, class Crew>
__device__ void add_about(RowBlocks& blocks, SelectionMemory<kThreads, Crew>& memory, PageSet& pages,
                          const HeldKeys<kThreads>& keys, const float* scores, int k, const Approximation& how) {
  topk::Team<kThreads, Crew> team(memory.team, blocks.count, blocks.rank);
  team.template clear<kAcross>();
  if (threadIdx.x == 0) memory.candidates.found = 0;
  keys.make(scores, team.warp, team.lane, [](const uint4&) {});
  if constexpr (kAcross) {
    blocks.sync();
  } else {
    Crew::sync();
  }
  // Nothing else is in the candidates' memory yet.
  static_assert(sizeof(topk::SampleMemory) <= sizeof(memory.candidates.own));
  auto& sample = *reinterpret_cast<topk::SampleMemory*>(memory.candidates.own);
  const int length = keys.end - keys.begin;
  const topk::Remap remap = topk::remap_of<kThreads, Crew>(sample, length, k, [&](int place) {
    const int page = keys.begin + place;
    const uint32_t* const held =
        kAcross ? in_block(keys.keys + page % how.share, page / how.share) : keys.keys + page - keys.first;
    return topk::exact_score_of(*held);
  });
  const auto visit = [&](const auto& use) { keys.visit(team.warp, team.lane, use); };
  const auto left = [&] {
    uint32_t count = 0;
    visit([&](const uint4& four, int) { count += topk::number_of(four, [&](uint32_t key) { return key >= remap.lowest; }); });
    return count;
  };
  const topk::Drawing drawing = topk::plan_drawing<kAcross>(team, remap, length, k, how.tolerate, how.random, visit, left);
  const auto draw = [&](const auto& use) {
    visit([&](const uint4& four, int at) { use(drawing.keys_of(four, keys.first + at), at); });
  };
  add_within<kAcross>(blocks, memory, team, pages, drawing.bracket, k, keys.first, draw);
}

/// Adds as many pages as a budget says, by as many blocks as hold the row: add(whether these are several, number) adds fewer than
/// there are. Where anything is selected a barrier ends it.
template <int kThreads, class Crew, class AddSome>
__device__ __forceinline__ void add_pages(RowBlocks& blocks, PageSet& pages, const HeldKeys<kThreads>& keys, const float* scores,
                                          int budget, const AddSome& add) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int k = min(budget, keys.end - keys.begin);
  if (k <= 0) return;
  if (k == keys.end - keys.begin) {
    keys.make(scores, warp, lane, [](const uint4&) {});
    keys.visit(warp, lane, [&](const uint4& four, int at) {
      pages.add(topk::bits_of(four, [](uint32_t key) { return static_cast<uint32_t>(key != topk::kNoKey); }), at);
    });
  } else if (blocks.count == 1) {
    add.template operator()<false>(k);
  } else if constexpr (kThreads == kRowThreads) {  // smaller blocks have rows of their own
    add.template operator()<true>(k);
  }
  Crew::sync();
}

template <int kThreads, class Crew>
__device__ __forceinline__ void select_best(RowBlocks& blocks, SelectionMemory<kThreads, Crew>& memory, PageSet& pages,
                                            const HeldKeys<kThreads>& keys, const float* scores, int budget) {
  add_pages<kThreads, Crew>(blocks, pages, keys, scores, budget,
                            [&]<bool kAcross>(int k) { add_best<kAcross>(blocks, memory, pages, keys, scores, k); });
}

template <int kThreads, class Crew>
__device__ __forceinline__ void select_about(RowBlocks& blocks, SelectionMemory<kThreads, Crew>& memory, PageSet& pages,
                                             const HeldKeys<kThreads>& keys, const float* scores, int budget,
                                             const Approximation& how) {
  add_pages<kThreads, Crew>(blocks, pages, keys, scores, budget,
                            [&]<bool kAcross>(int k) { add_about<kAcross>(blocks, memory, pages, keys, scores, k, how); });
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
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int word = threadIdx.x / 32; word < set.words(); word += blockDim.x / 32) {
    const uint32_t bits = set.word(word);
    const long long at = row.index * a.list_stride + before + set.rank_of_word(word) + __popc(bits & ((1U << lane) - 1));
    if ((bits >> lane & 1) == 0) continue;
    a.list_pages[at] = ids[32 * word + lane];
    a.list_positions[at] = first + 32 * word + lane;
  }
  const int newest = row.pages - 1 - first;
  const bool has_newest = row.pages == 0 ? blocks.rank == 0 : newest >= 0 && newest < count;
  if (!has_newest || threadIdx.x != blockDim.x - 1) return;
  const int missing = row.pages > 0 && set.has(newest) ? page_tokens - row.last_tokens : 0;
  a.list_starts[row.index] = static_cast<int>(row.index * a.list_stride);
  a.list_tokens[row.index] = all * page_tokens - missing;
  a.list_counts[row.index] = all;
  if (a.attended != nullptr) atomicAdd(a.attended, static_cast<unsigned long long>(all));
  if (a.available != nullptr) atomicAdd(a.available, static_cast<unsigned long long>(row.pages));
}

}  // namespace sluice::cuda
