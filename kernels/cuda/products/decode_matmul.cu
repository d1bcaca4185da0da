#include "kernels/cuda/products/decode_matmul.h"

#include <algorithm>

#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/products/decode_matmul_plan.cuh"
#include "kernels/cuda/products/decode_matmul_sums.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device/checks.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using namespace decode_matmul;

static_assert(sampling::BestTokens::kRows == DecodeMatmul::kMostRows);

template <int Rows, template <int> class End>
__global__ void __launch_bounds__(kMostThreads, End<Rows>::kBlocks)
    product_kernel(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
                   const __grid_constant__ Arguments a) {
  extern __shared__ std::byte raw[];
  const int warp = uniform(static_cast<int>(threadIdx.x) / 32);
  const bool leads = threadIdx.x % 32 == 0;
  if (warp >= a.warps && leads) prefetch_map(warp == a.warps ? &weight : &x);
  const Share share(a);
  const Places<Rows> places(a, share, shared_address(raw));
  let_next_kernel_start();
  // The thread that fills the ring makes its barriers, so that it need not wait for anybody.
  if (warp == a.warps && leads) init_barriers(a, places);
  __syncwarp();
  arrive_in_cluster_relaxed();
  if (warp == a.warps) {
    if (leads) copy_weight<Rows, End<Rows>::kGated>(&weight, a, share, places);
    __syncwarp();
    wait_for_cluster();
    return;
  }
  wait_for_cluster();
  if (warp > a.warps) {
    if (leads) {
      expect_rows(a, share, places);
      wait_for_earlier_kernels();
      copy_rows(&x, a, share, places);
    }
    return;
  }
  wait_for_earlier_kernels();
  multiply<Rows, End>(a, share, places);
}

/// The kernel for so many rows of x in a slot.
template <template <int> class End>
auto kernel_for(int padded_rows) {
  switch (padded_rows) {
    case 8:
      return product_kernel<8, End>;
    case 16:
      return product_kernel<16, End>;
    case 32:
      return product_kernel<32, End>;
    default:
      return product_kernel<64, End>;
  }
}

Arguments stored_in(const Matrix& out) {
  Arguments arguments;
  arguments.out = out.data;
  arguments.out_stride = out.stride;
  arguments.narrow = out.type == DataType::kBF16;
  return arguments;
}

void require_taken(const Matrix& x, const Matrix& weight, const Matrix& out) {
  if (!DecodeMatmul::takes(x, weight, out)) throw InternalError("a product that DecodeMatmul does not take");
}

}  // namespace

WeightCut cut_weight(int64_t outputs, int64_t inputs, int multiprocessors) {
  WeightCut best;
  double best_share = 0;  // of all multiprocessors' time that is of use
  const int chunks = ceiling(inputs, kChunk);
  for (const int split : {1, 2, 4}) {
    for (const int tile : {192, 128, 64}) {
      // Wide tiles of many parts leave no room for a ring, and large clusters not all of the GPU for a second round.
      const int tiles = ceiling(outputs, tile);
      const int rounds = ceiling(tiles, multiprocessors / split);
      if (tile / 16 % split != 0 || chunks < split || (split > 2 && (tile > 128 || rounds > 1))) continue;
      const double share = static_cast<double>(outputs) / tile * split / rounds / multiprocessors;
      // What a larger split costs, in sums that blocks send to each other, must be worth it.
      if (share > 1.03 * best_share) {
        best = {.outputs = tile, .split = split};
        best_share = share;
      }
    }
  }
  return best;
}

bool DecodeMatmul::takes(const Matrix& x, const Matrix& weight, const Matrix& out) {
  const auto aligned = [](const Matrix& matrix, uintptr_t bytes) {
    return reinterpret_cast<uintptr_t>(matrix.data) % bytes == 0 && matrix.stride * size_of(matrix.type) % bytes == 0;
  };
  return x.rows <= kMostRows && x.type == DataType::kBF16 && x.columns % 8 == 0 && weight.rows % 16 == 0 && aligned(x, 16) &&
         aligned(weight, 16) && aligned(out, 4);
}

DecodeMatmul::Plan DecodeMatmul::make_plan(const Shape& shape) {
  constexpr size_t kHalf = 113 << 10;   // of a multiprocessor's shared memory: the next product can begin beside this one
  constexpr size_t kWhole = 200 << 10;  // more than half
  constexpr int kMostStages = 24;
  constexpr int kFewestStages = 3;
  const int rows = shape.padded_rows;
  for (auto* kernel : {kernel_for<Stored>(rows), kernel_for<Gated>(rows), kernel_for<Best>(rows)}) {
    SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kWhole));
    // The same split of L1 for all of them: a multiprocessor would have to be empty to change it.
    SLUICE_CHECK_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  }
  const WeightCut cut = cut_weight(shape.outputs, shape.inputs, multiprocessors());
  const int chunks = ceiling(ceiling(shape.inputs, kChunk), cut.split);
  const int tiles = ceiling(shape.outputs, cut.outputs);
  const size_t stage = stage_bytes(cut) + Places<8>::kBarriers;
  const size_t slot = slot_bytes(rows) + Places<8>::kBarriers;
  const auto with_memory = [&](size_t bytes) {
    Plan plan{.cut = cut, .shared_bytes = bytes};
    // x cannot be asked for early, so a few slots must do; what the weight does not need goes to them.
    plan.slots = std::min(chunks, std::max<int>(4, (32 << 10) / slot));
    plan.stages = static_cast<int>((bytes - shared_bytes(rows, cut, 0, plan.slots)) / stage);
    const int most = std::max(1, most_clusters(kernel_for<Stored>(rows), cut, bytes));
    plan.stages = std::min({plan.stages, kMostStages, tiles <= most ? chunks : kMostStages});
    plan.slots = std::min(chunks, static_cast<int>((bytes - shared_bytes(rows, cut, plan.stages, 0)) / slot));
    plan.clusters = ceiling(tiles, ceiling(tiles, most));
    if (plan.clusters * cut.split > most_blocks()) throw InternalError("DecodeMatmul: more blocks than there are places for");
    return plan;
  };
  const Plan half = with_memory(kHalf);
  const Plan whole = with_memory(kWhole);
  // Where much of the weight is left once the next product could begin, this one had better have a deep ring.
  const bool is_long = chunks * stage > (size_t{256} << 10);
  const bool at_once = whole.clusters >= std::min(tiles, half.clusters) || half.clusters < tiles;
  return half.stages < std::min(chunks, kFewestStages) || (is_long && at_once) ? whole : half;
}

const DecodeMatmul::Plan& DecodeMatmul::plan(const Shape& shape) {
  const auto known = plans_.find(shape);
  return known != plans_.end() ? known->second : plans_.emplace(shape, make_plan(shape)).first->second;
}

void DecodeMatmul::run(const Matrix& x, const Matrix& weight, const TensorMap& map, const Matrix& out, Stream stream) {
  require_taken(x, weight, out);
  require_equal("DecodeMatmul", "out.rows", out.rows, x.rows);
  require_equal("DecodeMatmul", "out.columns", out.columns, weight.rows);
  launch<Stored>(x, weight, map, stored_in(out), stream);
}

void DecodeMatmul::run_gated(const Matrix& x, const Matrix& weight, const Matrix& out, Stream stream) {
  require_taken(x, weight, out);
  require_equal("DecodeMatmul", "out.rows", out.rows, x.rows);
  require_equal("DecodeMatmul", "twice out.columns", 2 * out.columns, weight.rows);
  if (out.type != DataType::kBF16) throw InternalError("DecodeMatmul: what is gated is bf16");
  launch<Gated>(x, weight, map_row_pairs(weight, kBoxOutputs / 16), stored_in(out), stream);
}

void DecodeMatmul::run_best(const Matrix& x, const Matrix& weight, const TensorMap& map, sampling::BestTokens* best,
                            Stream stream) {
  require_taken(x, weight, {});
  Arguments arguments;
  arguments.best = best;
  launch<Best>(x, weight, map, arguments, stream);
}

template <template <int> class End>
void DecodeMatmul::launch(const Matrix& x, const Matrix& weight, const TensorMap& map, decode_matmul::Arguments arguments,
                          Stream stream) {
  require_equal("DecodeMatmul", "x.columns", x.columns, weight.columns);
  const int padded_rows = padded(x.rows);
  const Plan& how = plan({.padded_rows = padded_rows, .outputs = weight.rows, .inputs = weight.columns});
  set_shape(arguments, x, weight, how.cut, how.clusters);
  arguments.stages = how.stages;
  arguments.slots = how.slots;
  launch_overlapping(kernel_for<End>(padded_rows), launch_shape(how.cut, how.clusters, how.shared_bytes), stream, to_cuda(map),
                     to_cuda(map_matrix(x, padded_rows)), arguments);
}

}  // namespace sluice::cuda
