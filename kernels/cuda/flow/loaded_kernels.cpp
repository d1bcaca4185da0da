#include "kernels/cuda/flow/loaded_kernels.h"

#include <algorithm>

namespace sluice::cuda {
namespace {

constexpr size_t kReservedShared = 1024;  // of every block, by the system

}  // namespace

dim3 grid_of(int64_t blocks) { return {static_cast<unsigned>(std::min<int64_t>(blocks, INT32_MAX))}; }

cudaLaunchConfig_t configure(dim3 grid, int threads, size_t shared_bytes, std::span<cudaLaunchAttribute> attributes,
                             Stream stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  return config;
}

LoadedKernel LoadedKernel::of(const KernelLibrary& library, const codegen::GeneratedKernel& how) {
  LoadedKernel loaded{.how = how, .kernel = library.kernel(how.name.c_str())};
  const size_t shared = how.global_memory ? 0 : static_cast<size_t>(how.memory_bytes);
  set_shared_memory_limit(loaded.kernel, shared);
  int blocks = 0;
  SLUICE_CHECK_CUDA(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(loaded.kernel), how.threads, shared));
  loaded.resident = std::max(1, blocks) * multiprocessors();
  return loaded;
}

LoadedRow LoadedRow::of(const KernelLibrary& library, const std::string& name) {
  LoadedRow loaded{.kernel = library.kernel(name.c_str())};
  cudaFuncAttributes attributes{};
  SLUICE_CHECK_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(loaded.kernel)));
  loaded.own_shared = attributes.sharedSizeBytes;
  set_shared_memory_limit(loaded.kernel, loaded.most_shared(1));
  SLUICE_CHECK_CUDA(
      cudaFuncSetAttribute(reinterpret_cast<const void*>(loaded.kernel), cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  return loaded;
}

size_t LoadedRow::most_shared(int blocks) const {
  const size_t reserved = own_shared + kReservedShared;
  const size_t share = (shared_memory_limit() + kReservedShared) / static_cast<size_t>(blocks);
  return share - std::min(share, reserved);
}

codegen::ClustersAtOnce LoadedRow::clusters_at_once(int threads, int blocks) const {
  codegen::ClustersAtOnce all{};
  for (int cluster = 1; cluster <= kMostRowBlocks; ++cluster) {
    cudaLaunchAttribute attribute = cluster_attribute(cluster);
    const cudaLaunchConfig_t config =
        configure(grid_of(int64_t{multiprocessors()} * blocks * cluster), threads, most_shared(blocks), {&attribute, 1}, nullptr);
    const cudaError_t error =
        cudaOccupancyMaxActiveClusters(&all.at(static_cast<size_t>(cluster)), reinterpret_cast<const void*>(kernel), &config);
    if (error == cudaErrorInvalidClusterSize) {
      all.at(static_cast<size_t>(cluster)) = 0;
      static_cast<void>(cudaGetLastError());
    } else {
      SLUICE_CHECK_CUDA(error);
    }
  }
  return all;
}

void LoadedRow::launch_clusters(int cluster, int count, int threads, size_t shared_bytes, void** parameters,
                                Stream stream) const {
  cudaLaunchAttribute attributes[2] = {cluster_attribute(cluster), overlap_attribute()};
  const auto used = std::span(attributes).subspan(cluster > 1 ? 0 : 1);
  const cudaLaunchConfig_t config = configure(grid_of(int64_t{count} * cluster), threads, shared_bytes, used, stream);
  SLUICE_CHECK_CUDA(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), parameters));
}

}  // namespace sluice::cuda
