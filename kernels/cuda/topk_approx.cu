#include "kernels/cuda/topk_approx.cuh"

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/topk.h"
#include "scripting/graph/error.h"

namespace sluice::cuda {
namespace {

using namespace topk;

constexpr int kThreads = 1024;

struct Arguments {
  TopK rows;
  Draws draws;
  bool aligned;  // every row begins at 16 bytes
};

/// The order keys of a row in device memory, read anew on each visit: every warp has a contiguous stretch.
class Source {
 public:
  __device__ Source(const float* scores, int length, bool aligned, int warps, int warp, int lane)
      : scores_(scores), length_(length), aligned_(aligned) {
    steps_ = (length + kStep * warps - 1) / (kStep * warps);
    first_ = warp * steps_ * kStep + 4 * lane;
  }

  template <class Use>
  __device__ void visit(const Use& use) const {
#pragma unroll 2
    for (int step = 0; step < steps_; ++step) {
      const int index = first_ + step * kStep;
      uint32_t keys[4] = {kNoKey, kNoKey, kNoKey, kNoKey};
      if (aligned_ && index + 4 <= length_) {
        const uint4 four = __ldg(reinterpret_cast<const uint4*>(scores_ + index));
        keys[0] = order_key(four.x);
        keys[1] = order_key(four.y);
        keys[2] = order_key(four.z);
        keys[3] = order_key(four.w);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (index + i < length_) keys[i] = order_key(__float_as_uint(scores_[index + i]));
        }
      }
      use(uint4{keys[0], keys[1], keys[2], keys[3]}, index);
    }
  }

 private:
  const float* scores_;
  int length_;
  bool aligned_;
  int steps_;  // of this warp
  int first_;  // index of this lane's first score
};

__global__ __launch_bounds__(kThreads, 1) void draw_rows(const __grid_constant__ Arguments arguments) {
  __shared__ Shared<kThreads> shared;
  __shared__ SampleMemory sample;
  const TopK& rows = arguments.rows;
  const Draws& draws = arguments.draws;
  const int blocks = static_cast<int>(cluster_blocks());
  const int block = static_cast<int>(cluster_rank());
  const int row = blockIdx.x / blocks;
  const int length = min(max(rows.lengths != nullptr ? rows.lengths[row] : rows.max_length, 0), rows.max_length);
  const int budget = min(rows.budgets != nullptr ? rows.budgets[row] : rows.max_budget, rows.max_budget);
  const int k = min(max(budget, 0), length);
  int32_t* const selected = rows.selected + row * rows.selected_stride;
  if (rows.counts != nullptr && block == 0 && threadIdx.x == 0) rows.counts[row] = k;
  if (k == length || k == 0) {
    for (int i = block * kThreads + threadIdx.x; i < k; i += blocks * kThreads) selected[i] = i;
    return;
  }
  const float* const scores = rows.scores + row * rows.stride;
  Team<kThreads> team(shared, blocks, block);
  team.clear();
  sync_cluster();  // all blocks run, and their histograms are clear
  const Source source(scores, length, arguments.aligned, blocks * team.kWarps, block * team.kWarps + team.warp, team.lane);
  const auto visit = [&](const auto& use) { source.visit(use); };
  const Remap remap = remap_of<kThreads, WholeBlock>(sample, length, k, [&](int place) { return scores[place]; });
  const int sequence = row / draws.heads;
  const uint64_t random = random_key(draws.seeds != nullptr ? draws.seeds[sequence] : 0, RandomPurpose::kApproxTopK, draws.layer,
                                     row % draws.heads, draws.tokens[sequence]);
  const Drawing drawing = plan_drawing<true>(team, remap, length, k, draws.tolerate, random, visit);
  const auto draw = [&](const auto& use) {
    visit([&](const uint4& keys, int index) { use(drawing.keys_of(keys, draws.first + index), index); });
  };
  Bracket bracket = drawing.bracket;
#pragma unroll 1
  while (!is_exact(bracket, k)) team.template narrow<true>(bracket, k, draw);
  const Cut cut = exact_cut(bracket, k);
  const auto reaching = [&](uint32_t first) {
    uint32_t count = 0;
    draw([&](const uint4& keys, int) { count += number_of(keys, [&](uint32_t key) { return key >= first; }); });
    return count;
  };
  const Counts counts = team.template count<true>(cut, draw, reaching);
  team.place(cut, counts.before, draw, [&](int at, uint32_t, int index) { selected[at] = index; });
  sync_cluster();  // no block may end while another reads what it holds
}

}  // namespace

void draw_top_k(const TopK& rows, const Draws& draws, Stream stream) {
  if (rows.rows <= 0 || rows.max_budget <= 0) return;
  if (draws.tokens == nullptr || draws.heads < 1) throw InternalError("top-k: draws of no sequence");
  const bool aligned = rows.stride % 4 == 0 && reinterpret_cast<uintptr_t>(rows.scores) % sizeof(uint4) == 0;
  const Arguments arguments{rows, draws, aligned};
  const int blocks = plan_top_k(rows.rows, rows.max_length, rows.max_budget, false).cluster;
  cudaLaunchAttribute cluster = cluster_attribute(blocks);
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(rows.rows * blocks);
  config.blockDim = kThreads;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  SLUICE_CHECK_CUDA(cudaLaunchKernelEx(&config, draw_rows, arguments));
}

}  // namespace sluice::cuda
