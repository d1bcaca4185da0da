#include "kernels/cuda/products/layer_chain.h"

#include <algorithm>

#include "kernels/cuda/products/layer_chain_sums.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device/checks.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using namespace layer_chain;

__global__ void __launch_bounds__(kThreads, 1)
    chain_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Arguments a) {
  extern __shared__ std::byte raw[];
  const Places places(a, shared_address(raw));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  let_next_kernel_start();
  if (threadIdx.x == 0) init_barriers(places);
  __syncthreads();
  if (warp < kWarps) {
    wait_for_earlier_kernels();
    Multiplier(a, places).run();
  } else if (warp < kCopier) {
    wait_for_earlier_kernels();
    finish_tiles(a, places, warp - kWarps);
  } else if (warp == kCopier) {
    if (threadIdx.x % 32 == 0) copy_weights(maps, a, places);
  } else {
    watch(a, places);
  }
}

static_assert(LayerChain::kMostRows == kRows);
static_assert((kWarps & (kWarps - 1)) == 0);
constexpr int kMostParts = 2048;  // a residual of 32,768 numbers
constexpr int kStages = 24;       // more than half of a multiprocessor's memory: what blocks wait for each other is to be bridged
static_assert(kStages % kWarps == 0);
constexpr int kCopies = 4;
constexpr int kCopiesOfLongStreams = 6;  // with these it counts more that memory is never idle
constexpr int64_t kLongStream = int64_t{200} << 20;

bool is_plain(const Matrix& matrix) {
  return matrix.type == DataType::kBF16 && reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0;
}

/// Whether a weight can be copied in tiles.
bool is_tiled(const Weight& weight) { return weight.rows() % kTile == 0 && weight.columns() % 64 == 0; }

Product product_of(const Matrix& x, const Weight& weight, const Matrix& out, Finish finish) {
  require_equal("finish_layer", "columns of a product's rows", x.columns, weight.columns());
  require_equal("finish_layer", "columns of a product", out.columns, weight.rows() / (finish == Finish::kGate ? 2 : 1));
  require_equal("finish_layer", "rows of a product", out.rows, x.rows);
  return {.x = static_cast<const __nv_bfloat16*>(x.data),
          .x_stride = x.stride,
          .out = static_cast<__nv_bfloat16*>(out.data),
          .out_stride = out.stride,
          .finish = finish,
          .inputs = static_cast<int>(weight.columns()),
          .stages = static_cast<int>((weight.columns() + kStageInputs - 1) / kStageInputs),
          .tiles = static_cast<int>(weight.rows() / kTile)};
}

int64_t bytes_of(const Device::LayerTail& tail) {
  size_t bytes = tail.output->bytes() + tail.gate_up->bytes() + tail.down->bytes();
  if (tail.next_qkv != nullptr) bytes += tail.next_qkv->bytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace

LayerChain::LayerChain() : squares_(sizeof(float) * kRows * kMostParts), counters_(sizeof(uint32_t) * (kMostProducts + 1)) {
  counters_.clear();
  const int bytes = Places::bytes(kStages);
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(chain_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  int blocks = 0;
  SLUICE_CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, chain_kernel, kThreads, bytes));
  fits_ = blocks > 0;
}

bool LayerChain::takes(const Device::LayerTail& tail, const Device::TailRows& rows) {
  const int64_t count = rows.residual.rows;
  if (count < 1 || count > kRows || rows.residual.columns > int64_t{kMostParts} * kTile) return false;
  const auto matrices = {&rows.attended, &rows.normed, &rows.activated, tail.next_qkv == nullptr ? &rows.delta : &rows.qkv};
  const auto weights = {tail.output, tail.gate_up, tail.down, tail.next_qkv == nullptr ? tail.down : tail.next_qkv};
  return rows.residual.type == DataType::kF32 &&
         std::all_of(matrices.begin(), matrices.end(), [](const Matrix* matrix) { return is_plain(*matrix); }) &&
         std::all_of(weights.begin(), weights.end(), [](const Weight* weight) { return is_tiled(*weight); });
}

bool LayerChain::pays(const Device::LayerTail& tail, const Device::TailRows& rows) {
  // Waiting for each other costs blocks as much in a small layer as in a large one, and every block reads all of x.
  constexpr int64_t kLeastBytes = int64_t{64} << 20;
  constexpr int64_t kMostInputs = 16384;
  return bytes_of(tail) >= kLeastBytes && rows.residual.rows * rows.residual.columns <= kMostInputs;
}

void LayerChain::run(const Device::LayerTail& tail, const Device::TailRows& rows, bool cooperative, Stream stream) {
  if (!takes(tail, rows)) throw InternalError("a layer that LayerChain does not take");
  require_equal("finish_layer", "attended.rows", rows.attended.rows, rows.residual.rows);
  require_equal("finish_layer", "output.rows", tail.output->rows(), rows.residual.columns);
  Maps maps;
  Arguments a{.rows = static_cast<int>(rows.residual.rows),
              .residual = rows.residual.f32(),
              .residual_stride = rows.residual.stride,
              .squares = squares_.as<float>(),
              .square_parts = static_cast<int>(rows.residual.columns / kTile),
              .inverse_hidden = 1.0f / static_cast<float>(rows.residual.columns),
              .epsilon = tail.epsilon,
              .counters = counters_.as<uint32_t>()};
  const auto gain_of = [&](const Weight& gain) {
    require_equal("finish_layer", "columns of a gain", gain.columns(), rows.residual.columns);
    return as_cuda(gain).vector();
  };
  const auto add = [&](const Weight& weight, const Matrix& x, const Matrix& out, Finish finish) -> Product& {
    maps.weights[a.count] = to_cuda(map_tiles(as_cuda(weight).matrix(), finish == Finish::kGate));
    return a.products[a.count++] = product_of(x, weight, out, finish);
  };
  add(*tail.output, rows.attended, rows.normed, Finish::kAddNorm).gain = gain_of(*tail.mlp_gain);
  add(*tail.gate_up, rows.normed, rows.activated, Finish::kGate).normed = true;
  if (tail.next_qkv == nullptr) {
    add(*tail.down, rows.activated, rows.delta, Finish::kStore);
  } else {
    add(*tail.down, rows.activated, rows.normed, Finish::kAddNorm).gain = gain_of(*tail.next_gain);
    add(*tail.next_qkv, rows.normed, rows.qkv, Finish::kStore).normed = true;
  }
  a.stages = kStages;
  a.most_copies = bytes_of(tail) < kLongStream ? kCopies : kCopiesOfLongStreams;
  a.early_copies = kCopies;
  launch_overlapping(chain_kernel,
                     {.blocks = static_cast<unsigned>(multiprocessors()),
                      .threads = kThreads,
                      .shared_bytes = static_cast<size_t>(Places::bytes(a.stages)),
                      .cooperative = cooperative},
                     stream, maps, a);
}

}  // namespace sluice::cuda
