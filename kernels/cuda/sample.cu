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
    sample_rows(const float* logits, int64_t stride, int columns, const SampleRow* choices, Sampled* out) {
  __shared__ sampling::Shared shared;
  const int row = static_cast<int>(blockIdx.x) / kCluster;
  const SampleRow choice = choices[row];
  wait_for_earlier_kernels();
  const Sampled result = sampling::RowSampler(shared, {logits + choice.row * stride, columns}).sample(choice);
  if (threadIdx.x == 0 && cooperative_groups::this_cluster().block_rank() == 0) out[row] = result;
  cooperative_groups::this_cluster().sync();  // others may still read this block's memory
}

}  // namespace

void Sampler::FreePinned::operator()(void* memory) const { cudaFreeHost(memory); }

void Sampler::reserve(size_t rows) {
  if (rows <= capacity_) return;
  memory_.reset();
  capacity_ = 0;
  void* memory = nullptr;
  SLUICE_CHECK_CUDA(cudaMallocHost(&memory, rows * (sizeof(SampleRow) + sizeof(Sampled))));
  memory_.reset(memory);
  capacity_ = rows;
}

void Sampler::run(const Matrix& logits, std::span<const SampleRow> rows, std::span<Sampled> out, Stream stream) {
  if (rows.empty()) return;
  reserve(rows.size());
  auto* const choices = static_cast<SampleRow*>(memory_.get());
  auto* const results = reinterpret_cast<Sampled*>(choices + capacity_);
  std::copy(rows.begin(), rows.end(), choices);
  std::array attributes{overlap_attribute(), cluster_attribute(kCluster)};
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(rows.size() * kCluster);
  config.blockDim = kThreads;
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = attributes.size();
  SLUICE_CHECK_CUDA(cudaLaunchKernelEx(&config, sample_rows, static_cast<const float*>(logits.f32()), logits.stride,
                                       static_cast<int>(logits.columns), static_cast<const SampleRow*>(choices), results));
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream));
  std::copy_n(results, rows.size(), out.begin());
}

}  // namespace sluice::cuda
