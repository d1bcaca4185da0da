#pragma once

#include <cuda_runtime.h>

#include <span>
#include <string>

#include "kernels/cuda/codegen/attending_path.h"
#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/runtime/kernel_library.h"
#include "kernels/cuda/runtime/runtime.h"

/// The generated kernels of a flow on the current device, with what launches of them have to know.
namespace sluice::cuda {

/// One whose blocks have memory of their own.
struct LoadedKernel {
  codegen::GeneratedKernel how;
  Kernel kernel = nullptr;
  int resident = 1;  // blocks that the device runs at a time

  static LoadedKernel of(const KernelLibrary& library, const codegen::GeneratedKernel& how);
};

/// One that holds rows.
struct LoadedRow {
  Kernel kernel = nullptr;
  size_t own_shared = 0;  // bytes that it has anyway

  static LoadedRow of(const KernelLibrary& library, const std::string& name);

  /// Dynamic shared memory of a block, if so many share a multiprocessor.
  size_t most_shared(int blocks) const;
  /// Of blocks of so many threads.
  codegen::ClustersAtOnce clusters_at_once(int threads, int blocks = 1) const;
  /// `count` clusters that start while the kernel before ends.
  void launch_clusters(int cluster, int count, int threads, size_t shared_bytes, void** parameters, Stream stream) const;
};

dim3 grid_of(int64_t blocks);
cudaLaunchConfig_t configure(dim3 grid, int threads, size_t shared_bytes, std::span<cudaLaunchAttribute> attributes,
                             Stream stream);

}  // namespace sluice::cuda
