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
  require_equal("layer_chain", "columns of a product's rows", x.columns, weight.columns());
  require_equal("layer_chain", "columns of a product", out.columns, weight.rows() / (finish == Finish::kGate ? 2 : 1));
  require_equal("layer_chain", "rows of a product", out.rows, x.rows);
  return {.x = static_cast<const __nv_bfloat16*>(x.data),
          .x_stride = x.stride,
          .out = static_cast<__nv_bfloat16*>(out.data),
          .out_stride = out.stride,
          .finish = finish,
          .inputs = static_cast<int>(weight.columns()),
          .stages = static_cast<int>((weight.columns() + kStageInputs - 1) / kStageInputs),
          .tiles = static_cast<int>(weight.rows() / kTile)};
}

int64_t bytes_of(const LayerChain::Chain& chain) {
  size_t bytes = chain.output->bytes() + chain.gate_up->bytes() + chain.down->bytes();
  if (chain.next_qkv != nullptr) bytes += chain.next_qkv->bytes();
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

std::optional<LayerChain::Chain> LayerChain::find(std::span<const LayerPart> parts, const Activations& rows) {
  if (parts.size() < 4) return {};
  const auto* const output = std::get_if<ProductPart>(&parts[0]);
  const auto* const norm = std::get_if<AddNormPart>(&parts[1]);
  const auto* const gated = std::get_if<GatedProductPart>(&parts[2]);
  const auto* const down = std::get_if<ProductPart>(&parts[3]);
  if (output == nullptr || norm == nullptr || gated == nullptr || down == nullptr) return {};
  const bool are_chained = output->in == Activation::kAttended && norm->delta == output->out && gated->in == norm->out &&
                           down->in == gated->out && down->out == output->out;
  if (!are_chained) return {};
  Chain chain{.output = output->weight,
              .mlp_gain = norm->gain,
              .gate_up = gated->weight,
              .down = down->weight,
              .epsilon = norm->epsilon,
              .attended = rows[output->in],
              .residual = rows[Activation::kResidual],
              .delta = rows[down->out],
              .normed = rows[norm->out],
              .activated = rows[gated->out],
              .qkv = rows[Activation::kQkv],
              .parts = 4};
  if (parts.size() < 6) return chain;
  const auto* const next_norm = std::get_if<AddNormPart>(&parts[4]);
  const auto* const qkv = std::get_if<ProductPart>(&parts[5]);
  if (next_norm == nullptr || *next_norm != AddNormPart{next_norm->gain, norm->epsilon, down->out, norm->out}) return chain;
  if (qkv == nullptr || qkv->in != next_norm->out || qkv->out != Activation::kQkv) return chain;
  chain.next_gain = next_norm->gain;
  chain.next_qkv = qkv->weight;
  chain.parts = 6;
  return chain;
}

bool LayerChain::takes(const Chain& chain) {
  const int64_t count = chain.residual.rows;
  if (count < 1 || count > kRows || chain.residual.columns > int64_t{kMostParts} * kTile) return false;
  const auto matrices = {&chain.attended, &chain.normed, &chain.activated, chain.next_qkv == nullptr ? &chain.delta : &chain.qkv};
  const auto weights = {chain.output, chain.gate_up, chain.down, chain.next_qkv == nullptr ? chain.down : chain.next_qkv};
  return chain.residual.type == DataType::kF32 &&
         std::all_of(matrices.begin(), matrices.end(), [](const Matrix* matrix) { return is_plain(*matrix); }) &&
         std::all_of(weights.begin(), weights.end(), [](const Weight* weight) { return is_tiled(*weight); });
}

bool LayerChain::pays(const Chain& chain) {
  // Waiting for each other costs blocks as much in a small layer as in a large one, and every block reads all of x.
  constexpr int64_t kLeastBytes = int64_t{64} << 20;
  constexpr int64_t kMostInputs = 16384;
  return bytes_of(chain) >= kLeastBytes && chain.residual.rows * chain.residual.columns <= kMostInputs;
}

void LayerChain::run(const Chain& chain, bool cooperative, Stream stream) {
  if (!takes(chain)) throw InternalError("a layer that LayerChain does not take");
  require_equal("layer_chain", "attended.rows", chain.attended.rows, chain.residual.rows);
  require_equal("layer_chain", "output.rows", chain.output->rows(), chain.residual.columns);
  Maps maps;
  Arguments a{.rows = static_cast<int>(chain.residual.rows),
              .residual = chain.residual.f32(),
              .residual_stride = chain.residual.stride,
              .squares = squares_.as<float>(),
              .square_parts = static_cast<int>(chain.residual.columns / kTile),
              .inverse_hidden = 1.0f / static_cast<float>(chain.residual.columns),
              .epsilon = chain.epsilon,
              .counters = counters_.as<uint32_t>()};
  const auto gain_of = [&](const Weight& gain) {
    require_equal("layer_chain", "columns of a gain", gain.columns(), chain.residual.columns);
    return as_cuda(gain).vector();
  };
  const auto add = [&](const Weight& weight, const Matrix& x, const Matrix& out, Finish finish) -> Product& {
    maps.weights[a.count] = to_cuda(map_tiles(as_cuda(weight).matrix(), finish == Finish::kGate));
    return a.products[a.count++] = product_of(x, weight, out, finish);
  };
  add(*chain.output, chain.attended, chain.normed, Finish::kAddNorm).gain = gain_of(*chain.mlp_gain);
  add(*chain.gate_up, chain.normed, chain.activated, Finish::kGate).normed = true;
  if (chain.next_qkv == nullptr) {
    add(*chain.down, chain.activated, chain.delta, Finish::kStore);
  } else {
    add(*chain.down, chain.activated, chain.normed, Finish::kAddNorm).gain = gain_of(*chain.next_gain);
    add(*chain.next_qkv, chain.normed, chain.qkv, Finish::kStore).normed = true;
  }
  a.stages = kStages;
  a.most_copies = bytes_of(chain) < kLongStream ? kCopies : kCopiesOfLongStreams;
  a.early_copies = kCopies;
  launch_overlapping(chain_kernel,
                     {.blocks = static_cast<unsigned>(multiprocessors()),
                      .threads = kThreads,
                      .shared_bytes = static_cast<size_t>(Places::bytes(a.stages)),
                      .cooperative = cooperative},
                     stream, maps, a);
}

}  // namespace sluice::cuda
