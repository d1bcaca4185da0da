#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/runtime/runtime.h"

/// Kernels that start while the one before them ends (programmatic dependent launch): what they do before
/// `wait_for_earlier_kernels` may not touch what a kernel still at work writes, and every block must call it: only then have all
/// kernels before it ended once it has. (A guess that is checked afterwards may be read early, past L1.) What the kernel before
/// the last has written may be read earlier, past L1, if the last one has itself waited.
namespace sluice::cuda {

__device__ __forceinline__ void wait_for_earlier_kernels() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// Once all blocks have called this, or ended, the next kernel's blocks may be placed where there is room.
__device__ __forceinline__ void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

struct LaunchShape {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
  int cluster = 0;           // blocks of one; 0: there are none
  bool cooperative = false;  // all blocks are on the GPU at once, or none
};

/// Launches a kernel that waits so.
template <class... Parameters, class... Arguments>
void launch_overlapping(void (*kernel)(Parameters...), const LaunchShape& shape, Stream stream, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[3] = {overlap_attribute()};
  unsigned count = 1;
  if (shape.cluster > 0) attributes[count++] = cluster_attribute(shape.cluster);
  if (shape.cooperative) attributes[count++] = together_attribute();
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  SLUICE_CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

}  // namespace sluice::cuda
