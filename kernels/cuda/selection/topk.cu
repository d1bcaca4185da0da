#include "kernels/cuda/selection/topk.h"

#include <string>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/selection/topk_guess.cuh"
#include "kernels/cuda/selection/topk_row.cuh"
#include "kernels/cuda/selection/topk_task.cuh"
#include "kernels/cuda/selection/topk_team.cuh"
#include "scripting/base/error.h"

namespace sluice::cuda {

namespace {

using namespace topk;

// Selection narrows a bracket of order keys until it holds the key of the k-th best score. A row is read once: its scores stay in
// registers, spread over the threads of a block or of a cluster. Two things narrow the bracket: a probe counts the scores that
// reach a guess, a histogram splits the bracket into equal bins. Once few scores reach its lower end they move to the first block
// of the cluster, which finishes alone. At these times, a few µs, a kernel is as fast as its instructions are fetched: what runs
// once should be short.

struct Arguments {
  TopK rows;
  FirstGuess guess;
  bool aligned;  // rows, as are_aligned has it
};

/// What the owner of a row keeps of its last selection.
struct KeptHints {
  int32_t* at = nullptr;
  int room = 0;

  __device__ KeptHints(const TopK& rows, int row) {
    const HintBlock& block = rows.hints[row / rows.owner_rows];
    if (block.lists == nullptr) return;
    at = block.lists + (int64_t{rows.hint_list} * rows.owner_rows + row % rows.owner_rows) * block.stride;
    room = static_cast<int>(block.stride);
  }
};

/// Where a row's selection goes.
struct Target {
  int32_t* selected;
  int32_t* kept;
  int room;  // of `kept`

  __device__ void put(int at, int index) const {
    selected[at] = index;
    if (at < room) kept[at] = index;
  }
};

/// The first block of a cluster selects from the candidates that all have left with it: `bracket.reaching_begin` of them.
template <int kThreads>
__device__ void select_candidates(Team<kThreads>& team, const Candidates& candidates, Bracket bracket, int k,
                                  const Target& target) {
  const int held = bracket.reaching_begin;
  const int steps = (held + kStep * team.kWarps - 1) / (kStep * team.kWarps);
  const auto visit = [&](const auto& use) {
    for (int i = 0; i < steps; ++i) {
      const int place = (team.warp * steps + i) * kStep + 4 * team.lane;
      if (place - 4 * team.lane >= held) return;
      uint4 keys = *reinterpret_cast<const uint4*>(&candidates.keys[min(place, kCandidates - 4)]);
      if (place >= held) keys.x = kNoKey;
      if (place + 1 >= held) keys.y = kNoKey;
      if (place + 2 >= held) keys.z = kNoKey;
      if (place + 3 >= held) keys.w = kNoKey;
      use(keys, place);
    }
  };
  uint32_t highest = 0;
  visit([&](const uint4& keys, int) { highest = max(highest, max(max(keys.x, keys.y), max(keys.z, keys.w))); });
  if (bracket.end > bracket.begin + 1) bracket.end = min(bracket.end, team.block_max(highest) + 1);
  while (!is_exact(bracket, k)) team.template narrow<false>(bracket, k, visit);
  const Cut cut = exact_cut(bracket, k);
  const auto reaching = [&](uint32_t first) {
    uint32_t count = 0;
    visit([&](const uint4& keys, int) { count += number_of(keys, [&](uint32_t key) { return key >= first; }); });
    return count;
  };
  team.place(cut, team.template count<false>(cut, visit, reaching).before, visit,
             [&](int at, uint32_t, int place) { target.put(at, candidates.indices[place]); });
}

/// The score that each thread contributes to a row's first guess, which is asked for before the row itself. Every block of a
/// cluster gathers the same ones, so that all agree without a word.
struct Contribution {
  FirstGuess how = FirstGuess::kNone;
  int index = -1;  // in the row; -1: none
  float score = 0;

  __device__ __forceinline__ uint32_t key() const { return index >= 0 ? order_key(__float_as_uint(score)) : kNoKey; }
};

/// Asks for this thread's contribution, and finds where a selection is kept as hints to the next.
template <int kThreads, bool kInsists>
__device__ __forceinline__ Contribution ask_for_guess(const Arguments& arguments, const Task& task, Target& target) {
  const TopK& rows = arguments.rows;
  Contribution mine{.how = kInsists || task.length > kCandidates ? arguments.guess : FirstGuess::kNone};
  int hint_count = 0;
  if (arguments.guess == FirstGuess::kHints) {
    const KeptHints hints(rows, task.row);
    hint_count = min(rows.hint_count, hints.room);
    target.kept = hints.at;
    target.room = rows.keeps_hints ? hints.room : 0;
    if (!kInsists && mine.how == FirstGuess::kHints && hint_count == 0) mine.how = FirstGuess::kSample;
  }
  mine.index = guess_index(mine.how, target.kept, hint_count, task.length, kThreads);
  if (mine.index >= 0) mine.score = task.scores[mine.index];
  return mine;
}

/// Where narrowing ended: at the cut, or, in a cluster, where few enough keys reach it for one block.
struct Narrowed {
  Bracket bracket;
  Cut cut;
  Counts counts;
  bool exact = false;
};

/// Narrows the bracket of the k-th best key by probes, in a cluster, and by histograms. Who insists on guesses narrows rows that
/// one block has room for, too.
template <bool kInsists, int kThreads, int kKeys, bool kClustered>
__device__ __forceinline__ Narrowed narrow_row(Team<kThreads>& team, Row<kKeys, kClustered>& row, const Task& task,
                                               Probes<kThreads> probes) {
  const int k = task.k;
  const int few = kInsists ? min(kCandidates, task.length - 1) : kCandidates;
  const auto visit = [&](const auto& use) { row.visit(use); };
  const auto reaching = [&](uint32_t first) { return row.reaching(first); };
  bool loading = true;
  Bracket bracket{.reaching_begin = task.length};
  Cut cut;
  Counts counts;
  bool exact = false;
  for (;;) {
    exact = is_exact(bracket, k);
    const bool done = exact || (kClustered && bracket.reaching_begin <= few);
    Cut next = exact ? exact_cut(bracket, k) : Cut{bracket.begin, 0};
    if (done && cut.first == next.first && next.ties == 0) break;
    if constexpr (kClustered) {
      if (!done) next.first = probes.next(team, bracket);
    }
    if (loading) row.finish_load();
    loading = false;
    if (!done && (!kClustered || next.first <= bracket.begin || next.first >= bracket.end)) {
      probes.guess.rank = 0;
      team.template narrow<kClustered>(bracket, k, visit);
      continue;
    }
    cut = next;
    counts = team.template count<kClustered>(cut, visit, reaching);
    if (done) break;
    const int reached = static_cast<int>(counts.all.x);
    (reached >= k ? bracket.begin : bracket.end) = cut.first;
    (reached >= k ? bracket.reaching_begin : bracket.reaching_end) = reached;
    probes.learn(k, reached);
  }
  return {bracket, cut, counts, exact};
}

/// Puts what the cut of a cluster takes where it goes or, unless that is exact, to the first block, which finishes alone.
template <int kThreads, int kKeys>
__device__ __forceinline__ void place_from_cluster(Team<kThreads>& team, Candidates* candidates, Row<kKeys, true>& row,
                                                   const Narrowed& at, int k, const Target& target, int block) {
  Candidates* collected = at.exact ? nullptr : in_block(&candidates[0], 0);
  uint32_t* own_scores = at.exact ? nullptr : candidates[0].own_scores;
  place_by_masks(at.cut, at.counts, row, own_scores, [&](uint32_t place, int index, uint32_t slot) {
    if (collected == nullptr) {
      target.put(static_cast<int>(place), index);
    } else {
      collected->keys[place] = order_key(own_scores[slot]);
      collected->indices[place] = index;
    }
  });
  if (at.exact) return;
  sync_cluster();
  if (block == 0) select_candidates(team, candidates[0], at.bracket, k, target);
}

template <int kThreads, int kKeys, bool kClustered, bool kInsists>
__global__ __launch_bounds__(kThreads, 1) void select_rows(const __grid_constant__ Arguments arguments) {
  __shared__ Shared<kThreads> shared;
  extern __shared__ Candidates candidates[];  // one, where blocks are clustered

  int blocks = 1;
  int block = 0;
  if constexpr (kClustered) {
    blocks = static_cast<int>(cluster_blocks());
    block = static_cast<int>(cluster_rank());
  }
  const Task task(arguments.rows, blocks);
  if (task.is_done<kThreads>(arguments.rows, blocks, block)) return;
  Team<kThreads> team(shared, blocks, block);
  team.template clear<kClustered>();
  Target target{task.selected, nullptr, 0};
  Contribution mine;
  if constexpr (kClustered) mine = ask_for_guess<kThreads, kInsists>(arguments, task, target);
  Row<kKeys, kClustered> row(task.scores, task.length, arguments.aligned, blocks * team.kWarps, block * team.kWarps + team.warp,
                             team.lane);
  Probes<kThreads> probes{.how = mine.how, .key = mine.key(), .guess = {}};
  if constexpr (kClustered) {
    probes.guess = first_guess<kThreads, kInsists>(mine.how, probes.key, task);
    sync_cluster();  // all blocks run, and their histograms are clear
  } else {
    __syncthreads();
  }
  const Narrowed at = narrow_row<kInsists>(team, row, task, probes);
  if constexpr (kClustered) {
    place_from_cluster(team, candidates, row, at, task.k, target, block);
  } else {
    team.place(
        at.cut, at.counts.before, [&](const auto& use) { row.visit(use); },
        [&](int place, uint32_t, int index) { target.put(place, index); });
  }
}

struct Kernel {
  int threads;
  int keys;
  bool clustered;
  bool insists;
  void (*function)(Arguments);
};

template <int kThreads, int kKeys, bool kClustered, bool kInsists = false>
constexpr Kernel kernel() {
  return {kThreads, kKeys, kClustered, kInsists, select_rows<kThreads, kKeys, kClustered, kInsists>};
}

constexpr Kernel kKernels[] = {
    kernel<128, 8, false>(),        kernel<512, 4, false>(),        kernel<512, 8, false>(),  kernel<1024, 8, false>(),
    kernel<1024, 8, true>(),        kernel<1024, 16, true>(),       kernel<1024, 32, true>(), kernel<1024, 8, true, true>(),
    kernel<1024, 16, true, true>(), kernel<1024, 32, true, true>(),
};

const Kernel& kernel_of(const TopKPlan& plan, int max_length) {
  const bool clustered = plan.cluster > 1 || plan.threads * plan.keys < max_length || plan.guess != FirstGuess::kNone;
  for (const Kernel& kernel : kKernels) {
    if (kernel.threads == plan.threads && kernel.keys == plan.keys && kernel.clustered == clustered &&
        kernel.insists == plan.insists) {
      return kernel;
    }
  }
  throw InternalError("top-k: no kernel of " + std::to_string(plan.threads) + " threads of " + std::to_string(plan.keys) +
                      " keys for rows of " + std::to_string(max_length));
}

}  // namespace

void select_top_k(const TopK& rows, const TopKPlan& plan, Stream stream) {
  if (rows.rows <= 0 || rows.max_budget <= 0) return;
  if (plan.guess == FirstGuess::kHints && rows.hints == nullptr) throw InternalError("top-k: no hints to begin with");
  if (plan.insists && plan.guess != FirstGuess::kHints) throw InternalError("top-k: a plan insists on hints and begins without");
  const Kernel& kernel = kernel_of(plan, rows.max_length);
  const Arguments arguments{rows, plan.guess, are_aligned(rows)};
  cudaLaunchConfig_t config{};
  config.gridDim = rows.rows * plan.cluster;
  config.blockDim = plan.threads;
  config.stream = stream;
  cudaLaunchAttribute cluster = cluster_attribute(plan.cluster);
  if (kernel.clustered) {
    config.dynamicSmemBytes = sizeof(Candidates);
    SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Candidates)));
    SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  SLUICE_CHECK_CUDA(cudaLaunchKernelEx(&config, kernel.function, arguments));
}

}  // namespace sluice::cuda
