#include "kernels/cuda/selection/topk_approx.cuh"

#include <algorithm>
#include <string>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/selection/topk.h"
#include "kernels/cuda/selection/topk_task.cuh"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using namespace topk;

struct Arguments {
  TopK rows;
  Draws draws;
  bool aligned;  // rows, as are_aligned has it
  int room;      // keys of each warp's stretch of a row that fit in shared memory, a multiple of kStep
};

/// The order keys of a warp's stretch of a row that a remap does not leave out: a list in shared memory, or, where they are more
/// than it has room for, all of the row's, made anew on each visit.
class Stretch {
 public:
  __device__ Stretch(const float* scores, int length, const Arguments& arguments, int warps, int warp)
      : scores_(scores), length_(length), room_(arguments.room), aligned_(arguments.aligned) {
    steps_ = (length + kStep * warps - 1) / (kStep * warps);
    first_ = warp * steps_ * kStep;
    // What is looked at next is known only after a sample was.
    constexpr int kLine = 32;
    for (int at = first_ + lane() * kLine; at < min(first_ + steps_ * kStep, length); at += kWarp * kLine)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(scores + at));
  }

  /// Fills the list, which lies at `list`, with what `remap` does not leave out.
  template <class OfTeam>
  __device__ void collect(const OfTeam& team, uint32_t* list, const Remap& remap) {
    keys_ = list;
    indices_ = list + room_;
    const bool filters = remap.filters();
    const float floor = score_of(remap.lowest);
    const auto keys = static_cast<uint32_t>(__cvta_generic_to_shared(keys_));
#pragma unroll 2
    for (int step = 0; step < steps_; ++step) {
      const int index = index_of_lane(step);
      const uint4 scores = scores_at(index);
      uint32_t taken = 0;
      mark_reaching(taken, 1, scores.x, floor);
      mark_reaching(taken, 2, scores.y, floor);
      mark_reaching(taken, 4, scores.z, floor);
      mark_reaching(taken, 8, scores.w, floor);
      if (!filters) taken = (1U << min(max(length_ - index, 0), 4)) - 1;
      const uint2 sums = team.sums_of_lanes(__popc(taken));
      uint32_t next = keys + (left_ + sums.x) * sizeof(uint32_t);
      left_ += static_cast<int>(sums.y);
      if (left_ > room_) continue;
      append(next, taken, 1, scores.x, index);
      append(next, taken, 2, scores.y, index + 1);
      append(next, taken, 4, scores.z, index + 2);
      append(next, taken, 8, scores.w, index + 3);
    }
    is_list_ = left_ <= room_;
    if (!is_list_) return;
    const int end = (left_ + kStep - 1) / kStep * kStep;
    for (int at = left_ + lane(); at < end; at += kWarp) keys_[at] = kNoKey;
    __syncwarp();
  }

  /// How many there are, by one lane.
  __device__ uint32_t left() const { return lane() == 0 ? static_cast<uint32_t>(left_) : 0; }
  /// From now on visits all of the row's.
  __device__ void visit_all() { is_list_ = false; }
  /// Makes the keys of a list those of a drawing.
  __device__ void draw(const Drawing& drawing, int first) {
    if (!is_list_) return;
#pragma unroll 1
    for (int at = lane(); at < left_; at += kWarp) keys_[at] = drawing.key_of(keys_[at], first + static_cast<int>(indices_[at]));
    __syncwarp();
  }

  /// Passes four keys at a time to use(keys, place of the first); where no list is, after made(keys, index) of them.
  template <class Use, class Make>
  __device__ void visit(const Use& use, const Make& made) const {
    const int steps = is_list_ ? (left_ + kStep - 1) / kStep : steps_;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      if (is_list_) {
        const int place = step * kStep + 4 * lane();
        use(*reinterpret_cast<const uint4*>(keys_ + place), place);
      } else {
        const int index = index_of_lane(step);
        use(made(keys_at(index), index), index);
      }
    }
  }
  /// Of the row, of what a visit gave.
  __device__ int index_of(int place) const { return is_list_ ? static_cast<int>(indices_[place]) : place; }

 private:
  static __device__ int lane() { return threadIdx.x % kWarp; }
  __device__ int index_of_lane(int step) const { return first_ + step * kStep + 4 * lane(); }

  /// Appends the key of a score at `next` in shared memory, and its index, if `taken` has the bit.
  __device__ void append(uint32_t& next, uint32_t taken, uint32_t bit, uint32_t score, int index) const {
    uint32_t index_at = next + room_ * sizeof(uint32_t);
    append_marked(index_at, taken, bit, static_cast<uint32_t>(index));
    append_marked(next, taken, bit, order_key(score));
  }

  /// Past the end of the row NaN.
  __device__ uint4 scores_at(int index) const {
    if (aligned_ && index + 4 <= length_) return __ldg(reinterpret_cast<const uint4*>(scores_ + index));
    uint32_t scores[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = index + i < length_ ? __float_as_uint(scores_[index + i]) : 0x7fffffffU;
    return {scores[0], scores[1], scores[2], scores[3]};
  }
  __device__ uint4 keys_at(int index) const {
    const uint4 scores = scores_at(index);
    const int left = length_ - index;
    return {left > 0 ? order_key(scores.x) : kNoKey, left > 1 ? order_key(scores.y) : kNoKey,
            left > 2 ? order_key(scores.z) : kNoKey, left > 3 ? order_key(scores.w) : kNoKey};
  }

  const float* scores_;
  int length_;
  int room_;
  bool aligned_;
  int steps_;
  int first_;  // index
  bool is_list_ = false;
  int left_ = 0;
  uint32_t* keys_ = nullptr;
  uint32_t* indices_ = nullptr;
};

template <int kThreads, bool kAcross>
__global__ __launch_bounds__(kThreads, 1) void draw_rows(const __grid_constant__ Arguments arguments) {
  __shared__ Shared<kThreads> shared;
  __shared__ SampleMemory sample;
  __shared__ uint64_t random;  // key of the draws
  extern __shared__ uint4 lists[];
  const TopK& rows = arguments.rows;
  const Draws& draws = arguments.draws;
  const int blocks = kAcross ? static_cast<int>(cluster_blocks()) : 1;
  const int block = kAcross ? static_cast<int>(cluster_rank()) : 0;
  const Task task(rows, blocks);
  if (task.is_done<kThreads>(rows, blocks, block)) return;
  const int k = task.k;
  Team<kThreads> team(shared, blocks, block);
  Stretch stretch(task.scores, task.length, arguments, blocks * team.kWarps, block * team.kWarps + team.warp);
  team.template clear<kAcross>();
  if (threadIdx.x == kThreads - 1) {  // others look at the sample
    const int sequence = task.row / draws.heads;
    random = random_key(draws.seeds != nullptr ? draws.seeds[sequence] : 0, RandomPurpose::kApproxTopK, draws.layer,
                        task.row % draws.heads, draws.tokens[sequence]);
  }
  const Remap remap =
      remap_of<kThreads, WholeBlock>(sample, task.length, k, [&](int place) { return __ldg(task.scores + place); });
  stretch.collect(team, reinterpret_cast<uint32_t*>(lists) + team.warp * 2 * arguments.room, remap);
  if constexpr (kAcross) sync_cluster();  // all blocks run, and their histograms are clear
  const auto visit = [&](const auto& use) { stretch.visit(use, [](const uint4& keys, int) { return keys; }); };
  const Drawing drawing =
      plan_drawing<kAcross>(team, remap, task.length, k, draws.tolerate, random, visit, [&] { return stretch.left(); });
  if (drawing.bin == 0) stretch.visit_all();
  stretch.draw(drawing, draws.first);
  const auto drawn = [&](const auto& use) {
    stretch.visit(use, [&](const uint4& keys, int index) { return drawing.keys_of(keys, draws.first + index); });
  };
  Bracket bracket = drawing.bracket;
#pragma unroll 1
  while (!is_exact(bracket, k)) team.template narrow<kAcross>(bracket, k, drawn);
  const Cut cut = exact_cut(bracket, k);
  const auto reaching = [&](uint32_t first) {
    uint32_t count = 0;
    drawn([&](const uint4& keys, int) { count += number_of(keys, [&](uint32_t key) { return key >= first; }); });
    return count;
  };
  const Counts counts = team.template count<kAcross>(cut, drawn, reaching);
  team.place(cut, counts.before, drawn, [&](int at, uint32_t, int place) { task.selected[at] = stretch.index_of(place); });
  if constexpr (kAcross) sync_cluster();  // no block may end while another reads what it holds
}

struct Kernel {
  int threads;
  bool across;
  void (*function)(Arguments);
};

constexpr Kernel kKernels[] = {{128, false, draw_rows<128, false>},
                               {512, false, draw_rows<512, false>},
                               {1024, false, draw_rows<1024, false>},
                               {1024, true, draw_rows<1024, true>}};

const Kernel& kernel_of(int threads, bool across) {
  for (const Kernel& kernel : kKernels) {
    if (kernel.threads == threads && kernel.across == across) return kernel;
  }
  throw InternalError("top-k: draws of " + std::to_string(threads) + " threads");
}

}  // namespace

void draw_top_k(const TopK& rows, const Draws& draws, Stream stream) {
  if (rows.rows <= 0 || rows.max_budget <= 0) return;
  if (draws.tokens == nullptr || draws.heads < 1) throw InternalError("top-k: draws of no sequence");
  const TopKPlan plan = plan_radix(rows.rows, rows.max_length, multiprocessors());
  const Kernel& kernel = kernel_of(plan.threads, plan.cluster > 1);
  constexpr int kMostSteps = 6;                             // 192 KiB by 1024 threads
  constexpr int kListBytes = kStep * 2 * sizeof(uint32_t);  // of a step of a warp
  const int warps = plan.threads / kWarp;
  const int step = kStep * warps * plan.cluster;
  const int steps = std::min(kMostSteps, (rows.max_length + step - 1) / step);
  const Arguments arguments{rows, draws, are_aligned(rows), steps * kStep};
  cudaLaunchAttribute cluster = cluster_attribute(plan.cluster);
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(rows.rows * plan.cluster);
  config.blockDim = plan.threads;
  config.dynamicSmemBytes = static_cast<size_t>(warps) * steps * kListBytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  // The same for all calls: other threads may launch the kernel at the same time.
  SLUICE_CHECK_CUDA(
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, warps * kMostSteps * kListBytes));
  SLUICE_CHECK_CUDA(cudaLaunchKernelEx(&config, kernel.function, arguments));
}

}  // namespace sluice::cuda
