#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

namespace sluice::cuda {

using Stream = CUstream_st*;

/// Throws InternalError with the name and the text of the error; InputError where the device is out of memory.
void check(cudaError_t status, const char* what);
#define SLUICE_CHECK_CUDA(call) ::sluice::cuda::check((call), #call)

/// In its life no stream of the process is recorded. While one is, CUDA refuses uses of the default stream and waits for the
/// whole device, by any thread, and breaks off the recording.
class NoRecording {
 public:
  /// Waits for recordings to end. Throws InternalError where this thread itself records.
  NoRecording();
  ~NoRecording();
  NoRecording(const NoRecording&) = delete;
  NoRecording& operator=(const NoRecording&) = delete;
};

/// In its life this thread alone may record a stream.
class Recording {
 public:
  /// Waits for those of other threads, and for what they do in the life of a NoRecording.
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

/// Waits for all that the GPU has been given.
void wait_for_device();

/// Device memory, freed with this object. What its functions copy goes by the default stream.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Throws InputError that says how much was wanted and how much is free where the device has less.
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
  void clear() { fill(0); }
  void fill(int byte);

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Bytes of device memory that nobody has taken.
size_t free_bytes();

/// Makes `memory` hold at least so many bytes; what was in it is lost.
void grow(DeviceMemory& memory, size_t bytes);

/// Throws InputError unless this machine has a GPU that the kernels run on (compute capability 9.0) and a driver for it.
void require_device();
/// The part of it that concerns the capability of `gpu`, which is the GPU's name.
void require_capability(const char* gpu, int major, int minor);
/// Why there is no GPU, in words, from what cudaGetDeviceCount gave and the CUDA version that the driver is made for (13000
/// is 13.0; 0: there is no driver).
std::string explain_absence(cudaError_t status, int driver_version);

/// See visible_gpus in kernels/device.h.
std::vector<std::string> visible_gpus();
/// The same where CUDA_VISIBLE_DEVICES is `variable` (null: not set) and CUDA finds `count` GPUs: it takes names up to the first
/// that is of none.
std::vector<std::string> names_of_gpus(const char* variable, int count);

/// Lets a launch begin while the kernel before it on the stream ends (programmatic dependent launch).
inline cudaLaunchAttribute overlap_attribute() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

/// A launch in clusters of so many blocks.
inline cudaLaunchAttribute cluster_attribute(int blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  return attribute;
}

/// A launch whose blocks are all on the GPU at once, or none.
inline cudaLaunchAttribute together_attribute() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  return attribute;
}

/// Multiprocessors of the current device.
int multiprocessors();

/// Whether other processes may use the current device at the same time, not by turns: CUDA's Multi-Process Service runs.
bool is_gpu_shared();

}  // namespace sluice::cuda
