#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace sluice::cuda {

using Stream = CUstream_st*;

/// Throws InternalError with the name and the text of the error; InputError where the device is out of memory.
void check(cudaError_t status, const char* what);
#define SLUICE_CHECK_CUDA(call) ::sluice::cuda::check((call), #call)

/// Device memory, freed with this object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void upload(const void* host, size_t bytes);
  void download(void* host, size_t bytes) const;
  void clear();

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Makes `memory` hold at least so many bytes; what was in it is lost.
void grow(DeviceMemory& memory, size_t bytes);

/// Throws InputError unless this machine has a GPU that the kernels run on (compute capability 9.0) and a driver for it.
void require_device();

/// Lets a launch begin while the kernel before it on the stream ends (programmatic dependent launch).
inline cudaLaunchAttribute overlap_attribute() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

/// Multiprocessors of the current device.
int multiprocessors();

}  // namespace sluice::cuda
