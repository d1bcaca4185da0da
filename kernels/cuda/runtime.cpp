#include "kernels/cuda/runtime.h"

#include <fmt/format.h>

#include <utility>

#include "scripting/graph/error.h"

namespace sluice::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const std::string text = fmt::format("{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
  if (status == cudaErrorMemoryAllocation) throw InputError(text, "use a smaller page pool or a smaller model");
  throw InternalError(text);
}

DeviceMemory::DeviceMemory(size_t bytes) : bytes_(bytes) {
  if (bytes > 0) SLUICE_CHECK_CUDA(cudaMalloc(&data_, bytes));
}

DeviceMemory::~DeviceMemory() { cudaFree(data_); }

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void DeviceMemory::upload(const void* host, size_t bytes) {
  SLUICE_CHECK_CUDA(cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice));
}
void DeviceMemory::download(void* host, size_t bytes) const {
  SLUICE_CHECK_CUDA(cudaMemcpy(host, data_, bytes, cudaMemcpyDeviceToHost));
}
void DeviceMemory::clear() { SLUICE_CHECK_CUDA(cudaMemset(data_, 0, bytes_)); }

void grow(DeviceMemory& memory, size_t bytes) {
  if (memory.bytes() < bytes) memory = DeviceMemory(bytes);
}

void require_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    throw InputError(fmt::format("device \"cuda\" is not available: {}",
                                 status == cudaSuccess ? "this machine has no NVIDIA GPU" : cudaGetErrorString(status)),
                     "use --device cpu");
  }
  int device = 0;
  cudaDeviceProp properties{};
  SLUICE_CHECK_CUDA(cudaGetDevice(&device));
  SLUICE_CHECK_CUDA(cudaGetDeviceProperties(&properties, device));
  if (properties.major != 9 || properties.minor != 0) {
    throw InputError(
        fmt::format("device \"cuda\" is not available: the kernels are built for compute capability 9.0 (H100, H200), "
                    "and {} has {}.{}",
                    properties.name, properties.major, properties.minor),
        "use --device cpu");
  }
}

int multiprocessors() {
  int device = 0;
  int count = 0;
  SLUICE_CHECK_CUDA(cudaGetDevice(&device));
  SLUICE_CHECK_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace sluice::cuda
