#include "kernels/cuda/products/decode_mlp.h"

#include <algorithm>

#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/products/decode_matmul_plan.cuh"
#include "kernels/cuda/products/decode_mlp_sums.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device/checks.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using namespace decode_matmul;

constexpr size_t kMostShared = 225 << 10;       // of a block: norms, before and behind, find room beside it
constexpr size_t kGroupsOf64Rows = 72 << 10;    // bytes of activated rows, three groups, that come as fast as L2 gives them
constexpr size_t kMostWeightBytes = 150 << 20;  // of all three: the 300 MB of Qwen3-8B take 2% longer than one by one
constexpr int kAhead = 4;                       // stages of down that keep memory busy while the last blocks get gate and up

/// There is never a second block on a multiprocessor, but registers are left for norms.
template <int Rows>
__global__ void __launch_bounds__(kMostThreads, 2)
    mlp_kernel(const __grid_constant__ CUtensorMap gate_up, const __grid_constant__ CUtensorMap x,
               const __grid_constant__ CUtensorMap down_weight, const __grid_constant__ CUtensorMap activated,
               const __grid_constant__ Arguments a, const __grid_constant__ Down down) {
  extern __shared__ std::byte raw[];
  const int warp = uniform(static_cast<int>(threadIdx.x) / 32);
  const bool leads = threadIdx.x % 32 == 0;
  if (warp >= a.warps && leads) {
    prefetch_map(warp == a.warps ? &gate_up : &x);
    prefetch_map(warp == a.warps ? &down_weight : &activated);
  }
  const Share share(a);
  const Places<Rows> places(a, share, shared_address(raw));
  const DownPlaces<Rows> down_places(a, places);
  let_next_kernel_start();
  if (warp == a.warps && leads) {
    init_down_barriers(a, down, down_places);
    init_barriers(a, places);
  }
  __syncwarp();
  give_barriers(a, share, warp == a.warps);
  if (warp == a.warps) {
    if (leads) copy_down(&down_weight, down, places, copy_weight<Rows, true>(&gate_up, a, share, places));
    __syncwarp();
    wait_for_barriers(a, share, true);
    return;
  }
  wait_for_barriers(a, share, false);
  if (warp > a.warps) {
    if (leads) {
      expect_rows(a, share, places);
      wait_for_earlier_kernels();
      copy_rows(&x, a, share, places);
    }
    __syncwarp();  // what one lane has waited for, all have: counters are of this kernel
    copy_activated(&activated, a, down, down_places);
    return;
  }
  wait_for_earlier_kernels();
  const Turn stage = multiply_gated(a, down, share, places, down_places);
  multiply_down(a, down, places, down_places, stage);
}

auto kernel_for(int padded_rows) {
  switch (padded_rows) {
    case 8:
      return mlp_kernel<8>;
    case 16:
      return mlp_kernel<16>;
    case 32:
      return mlp_kernel<32>;
    default:
      return mlp_kernel<64>;
  }
}

}  // namespace

DecodeMlp::DecodeMlp()
    : sums_(sizeof(float) * DecodeMatmul::kMostRows * kTileOutputs * multiprocessors()),
      counters_(sizeof(uint32_t) * (multiprocessors() + 2)) {  // stages of down's inputs are half as many as tiles of gate and up
  counters_.clear();
}

std::optional<DecodeMlp::Plan> DecodeMlp::make_plan(const Shape& shape) {
  const int rows = shape.padded_rows;
  Plan plan{.cut = cut_weight(2 * shape.intermediate, shape.hidden, multiprocessors())};
  if (warps_of(plan.cut) != kMostWarps) return {};  // down has stages of as many bytes
  const size_t slot = slot_bytes(rows);
  const size_t sums = part_bytes(rows, plan.cut);
  const size_t wanted = kGroupsOf64Rows * rows / DecodeMatmul::kMostRows;
  plan.slots = std::max(4, ceiling(static_cast<int64_t>(wanted) - static_cast<int64_t>(sums), static_cast<int64_t>(slot)));
  plan.groups = static_cast<int>((plan.slots * slot + sums) / (kTeams * slot));
  const auto bytes = [&](int stages) {
    return shared_bytes(rows, plan.cut, stages, plan.slots) + (1 + plan.groups) * Places<8>::kBarriers;
  };
  plan.stages = static_cast<int>((kMostShared - bytes(0)) / (bytes(1) - bytes(0)));
  plan.shared_bytes = bytes(plan.stages);
  plan.clusters = ceiling(2 * shape.intermediate, plan.cut.outputs);
  SLUICE_CHECK_CUDA(
      cudaFuncSetAttribute(kernel_for(rows), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostShared)));
  const int tiles = static_cast<int>(shape.hidden / kTileOutputs);
  const int blocks = plan.clusters * plan.cut.split;
  if (tiles == 0 || tiles > blocks || plan.clusters > most_clusters(kernel_for(rows), plan.cut, plan.shared_bytes)) return {};
  plan.parts = std::min({SumParts::kMost, blocks / tiles, ceiling(shape.intermediate, kStageInputs)});
  return plan;
}

const std::optional<DecodeMlp::Plan>& DecodeMlp::plan(const Shape& shape) const {
  const auto known = plans_.find(shape);
  return known != plans_.end() ? known->second : plans_.emplace(shape, make_plan(shape)).first->second;
}

bool DecodeMlp::pays(const Matrix& x, const Matrix& down) const {
  const std::optional<Plan>& how = plan({.padded_rows = padded(x.rows), .hidden = x.columns, .intermediate = down.columns});
  if (!how || static_cast<size_t>(3 * down.rows * down.columns) * size_of(down.type) > kMostWeightBytes) return false;
  const int64_t blocks = int64_t{how->clusters} * how->cut.split;
  return how->parts * (down.rows / kTileOutputs) * 4 >= blocks * 3;
}

bool DecodeMlp::takes(const Matrix& x, const Matrix& gate_up, const Matrix& down, const Matrix& activated) const {
  return x.rows > 0 && activated.type == DataType::kBF16 && DecodeMatmul::takes(x, gate_up, activated) &&
         DecodeMatmul::takes(activated, down, {}) && down.rows % kTileOutputs == 0 && down.rows == x.columns &&
         plan({.padded_rows = padded(x.rows), .hidden = x.columns, .intermediate = down.columns}).has_value();
}

SumParts DecodeMlp::run(const Matrix& x, const Matrix& gate_up, const Matrix& down, const TensorMap& down_map,
                        const Matrix& activated, bool cooperative, Stream stream) {
  require_equal("DecodeMlp", "x.columns", x.columns, gate_up.columns);
  require_equal("DecodeMlp", "activated.rows", activated.rows, x.rows);
  require_equal("DecodeMlp", "twice activated.columns", 2 * activated.columns, gate_up.rows);
  require_equal("DecodeMlp", "down.columns", down.columns, activated.columns);
  if (!takes(x, gate_up, down, activated)) throw InternalError("an MLP that DecodeMlp does not take");
  const int padded_rows = padded(x.rows);
  const Plan& how = *plan({.padded_rows = padded_rows, .hidden = x.columns, .intermediate = down.columns});
  Arguments arguments;
  arguments.out = activated.data;
  arguments.out_stride = activated.stride;
  arguments.narrow = true;
  set_shape(arguments, x, gate_up, how.cut, how.clusters);
  arguments.stages = how.stages;
  arguments.slots = how.slots;
  const Down second{.inputs = static_cast<int>(down.columns),
                    .outputs = static_cast<int>(down.rows),
                    .tiles = static_cast<int>(down.rows / kTileOutputs),
                    .parts = how.parts,
                    .stages = ceiling(down.columns, kStageInputs),
                    .groups = how.groups,
                    .ahead = std::min(kAhead, how.stages - 1),
                    .sums = sums_.as<float>(),
                    .counters = counters_.as<uint32_t>()};
  LaunchShape launch = launch_shape(how.cut, how.clusters, how.shared_bytes);
  launch.cooperative = cooperative;
  launch_overlapping(kernel_for(padded_rows), launch, stream, to_cuda(map_row_pairs(gate_up, DecodeMatmul::kBoxOutputs / 16)),
                     to_cuda(map_matrix(x, padded_rows)), to_cuda(down_map), to_cuda(map_matrix(activated, padded_rows)),
                     arguments, second);
  return {.data = second.sums, .count = second.parts};
}

}  // namespace sluice::cuda
