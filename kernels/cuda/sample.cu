#include "kernels/cuda/sample.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sample_row.cuh"

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

}  // namespace

void CudaPicks::FreePinned::operator()(void* memory) const { cudaFreeHost(memory); }
void CudaPicks::DestroyEvent::operator()(CUevent_st* event) const { cudaEventDestroy(event); }

CudaPicks::CudaPicks(int most_rows) : Picks(most_rows), tokens_(static_cast<size_t>(most_rows) * sizeof(int32_t)) {
  for (Call& call : calls_) {
    void* memory = nullptr;
    SLUICE_CHECK_CUDA(cudaMallocHost(&memory, static_cast<size_t>(most_rows) * (sizeof(SampleRow) + sizeof(Sampled))));
    call.memory.reset(memory);
    cudaEvent_t event = nullptr;
    SLUICE_CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    call.done.reset(event);
  }
}

void CudaPicks::sample(const Matrix& logits, std::span<const SampleRow> rows, Stream stream) {
  const int call = begin(rows.size());
  if (!rows.empty()) {
    std::copy(rows.begin(), rows.end(), choices(call));
    std::array attributes{overlap_attribute(), cluster_attribute(kCluster)};
    cudaLaunchConfig_t config{};
    config.gridDim = static_cast<unsigned>(rows.size() * kCluster);
    config.blockDim = kThreads;
    config.stream = stream;
    config.attrs = attributes.data();
    config.numAttrs = attributes.size();
    SLUICE_CHECK_CUDA(cudaLaunchKernelEx(&config, sample_rows, static_cast<const float*>(logits.f32()), logits.stride,
                                         static_cast<int>(logits.columns), static_cast<const SampleRow*>(choices(call)),
                                         results(call), tokens_.as<int32_t>()));
  }
  SLUICE_CHECK_CUDA(cudaEventRecord(calls_.at(static_cast<size_t>(call)).done.get(), stream));
}

void CudaPicks::take_results(std::span<Sampled> out) {
  const int call = take(out.size());
  SLUICE_CHECK_CUDA(cudaEventSynchronize(calls_.at(static_cast<size_t>(call)).done.get()));
  std::copy_n(results(call), out.size(), out.begin());
}

}  // namespace sluice::cuda
