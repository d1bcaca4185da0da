#include "kernels/cuda/sampling/sample.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/products/decode_matmul.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/sampling/sample_best.cuh"
#include "kernels/cuda/sampling/sample_probabilities.cuh"
#include "kernels/cuda/sampling/sample_row.cuh"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using sampling::kCluster;
using sampling::kThreads;

__global__ void __launch_bounds__(kThreads, 4)
    sample_rows(const float* logits, int64_t stride, int columns, const SampleRow* choices, Sampled* out, int32_t* tokens) {
  __shared__ sampling::Shared shared;
  const int row = static_cast<int>(blockIdx.x) / kCluster;
  const SampleRow choice = choices[row];
  wait_for_earlier_kernels();
  const Sampled result = sampling::RowSampler(shared, {logits + choice.row * stride, columns}).sample(choice);
  if (threadIdx.x == 0 && cooperative_groups::this_cluster().block_rank() == 0) {
    out[row] = result;
    tokens[row] = result.token;
  }
  cooperative_groups::this_cluster().sync();  // others may still read this block's memory
}

/// A block a row.
__global__ void __launch_bounds__(sampling::ProbabilityFinder::kThreads)
    row_probabilities(const float* logits, int64_t stride, int columns, const SampleRow* choices, const int32_t* tokens,
                      RowProbabilities* out) {
  __shared__ sampling::ProbabilityFinder::Shared shared;
  const SampleRow choice = choices[blockIdx.x];
  wait_for_earlier_kernels();
  if (choice.likely < 0) return;
  sampling::ProbabilityFinder finder(shared, logits + choice.row * stride, columns);
  finder.find(tokens[blockIdx.x], min(choice.likely, columns), out[blockIdx.x]);
}

/// Rows of a product. They come with the launch: choices would have to be fetched from the host.
struct ProductRows {
  uint8_t at[DecodeMatmul::kMostRows];
};

/// A warp a row, from what each block of the product found.
__global__ void pick_best_rows(const sampling::BestTokens* best, const __grid_constant__ ProductRows from_rows, int rows,
                               Sampled* out, int32_t* tokens) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= rows) return;
  const int from = from_rows.at[row];
  wait_for_earlier_kernels();
  const int blocks = best->blocks;
  sampling::BestToken found;
#pragma unroll 8
  for (int block = lane; block < blocks; block += 32) found.join(best->of_block(block)[from]);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) found.join_lane(mask);
  if (lane != 0) return;
  const Sampled result{sampling::token_at(found.place), found.damaged == 0 && sampling::logit_at(found.place) > -INFINITY};
  out[row] = result;
  tokens[row] = result.token;
}

/// For the first `rows` choices.
void launch_best(const sampling::BestTokens* best, const ProductRows& from, size_t rows, Sampled* out, int32_t* tokens,
                 Stream stream) {
  constexpr unsigned kRowsOfBlock = 4;
  const auto count = static_cast<unsigned>(rows);
  launch_overlapping(pick_best_rows, {(count + kRowsOfBlock - 1) / kRowsOfBlock, 32 * kRowsOfBlock}, stream, best, from,
                     static_cast<int>(count), out, tokens);
}

}  // namespace

void CudaPicks::FreePinned::operator()(void* memory) const { cudaFreeHost(memory); }
void CudaPicks::DestroyEvent::operator()(CUevent_st* event) const { cudaEventDestroy(event); }

CudaPicks::CudaPicks(int most_rows)
    : Picks(most_rows),
      tokens_(static_cast<size_t>(most_rows) * sizeof(int32_t)),
      best_(sampling::BestTokens::bytes(DecodeMatmul::most_blocks())) {
  const auto rows = static_cast<size_t>(most_rows);
  for (Call& call : calls_) {
    call.memory = allocate_pinned(rows * (sizeof(SampleRow) + sizeof(RowProbabilities) + sizeof(Sampled)));
    cudaEvent_t event = nullptr;
    SLUICE_CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    call.done.reset(event);
  }
  for (Pinned& picked : picked_) picked = allocate_pinned(rows * sizeof(Sampled));
}

CudaPicks::Pinned CudaPicks::allocate_pinned(size_t bytes) {
  void* memory = nullptr;
  SLUICE_CHECK_CUDA(cudaMallocHost(&memory, bytes));
  return Pinned(memory);
}

void CudaPicks::sample(const Matrix& logits, std::span<const SampleRow> rows, Stream stream) {
  run(rows.size(), stream, [&](int call) {
    std::copy(rows.begin(), rows.end(), choices(call));
    launch_overlapping(
        sample_rows, {.blocks = static_cast<unsigned>(rows.size() * kCluster), .threads = kThreads, .cluster = kCluster}, stream,
        logits.f32(), logits.stride, static_cast<int>(logits.columns), choices(call), results(call), tokens_.as<int32_t>());
    if (std::none_of(rows.begin(), rows.end(), [](const SampleRow& row) { return row.likely >= 0; })) return;
    launch_overlapping(row_probabilities, {static_cast<unsigned>(rows.size()), sampling::ProbabilityFinder::kThreads}, stream,
                       logits.f32(), logits.stride, static_cast<int>(logits.columns), choices(call), tokens_.as<int32_t>(),
                       probabilities_of(call));
  });
}

void CudaPicks::sample_best(std::span<const SampleRow> rows, Stream stream) {
  ProductRows from{};
  if (rows.size() > std::size(from.at)) throw InternalError("sample_best: more choices than a product has rows");
  for (size_t i = 0; i < rows.size(); ++i) from.at[i] = static_cast<uint8_t>(rows[i].row);
  run(rows.size(), stream,
      [&](int call) { launch_best(best(), from, rows.size(), results(call), tokens_.as<int32_t>(), stream); });
}

void CudaPicks::pick_in_pass(int rows, int half, Stream stream) {
  ProductRows from{};
  std::iota(std::begin(from.at), std::end(from.at), uint8_t{0});
  const int count = std::min({rows, most_rows(), static_cast<int>(std::size(from.at))});
  if (count > 0) launch_best(best(), from, static_cast<size_t>(count), picked_of(half), tokens_.as<int32_t>(), stream);
}

void CudaPicks::call_picked(size_t rows, int half, Stream stream) { end_call(begin(rows), picked_of(half), stream); }

template <class Launch>
void CudaPicks::run(size_t rows, Stream stream, const Launch& launch) {
  const int call = begin(rows);
  if (rows > 0) launch(call);
  end_call(call, results(call), stream);
}

void CudaPicks::end_call(int call, const Sampled* found, Stream stream) {
  Call& ended = calls_.at(static_cast<size_t>(call));
  ended.found = found;
  SLUICE_CHECK_CUDA(cudaEventRecord(ended.done.get(), stream));
}

void CudaPicks::take_results(std::span<Sampled> out) {
  taken_ = take(out.size());
  const Call& call = calls_.at(static_cast<size_t>(taken_));
  SLUICE_CHECK_CUDA(cudaEventSynchronize(call.done.get()));
  std::copy_n(call.found, out.size(), out.begin());
}

}  // namespace sluice::cuda
