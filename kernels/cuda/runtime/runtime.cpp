#include "kernels/cuda/runtime/runtime.h"

#include <fmt/format.h>

#include <cstdlib>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <utility>

#include "scripting/base/error.h"
#include "scripting/base/resource_error.h"

namespace sluice::cuda {

namespace {

constexpr const char* kUseLessMemory =
    "end other programs that use the GPU, or choose a smaller model, batch, context or page pool";

std::string size_text(size_t bytes) {
  constexpr double kMiB = 1024.0 * 1024.0;
  constexpr double kGiB = 1024.0 * kMiB;
  const auto size = static_cast<double>(bytes);
  return size < kGiB ? fmt::format("{:.1f} MiB", size / kMiB) : fmt::format("{:.1f} GiB", size / kGiB);
}

/// Shared by those that want no recording.
std::shared_mutex recording_mutex;
thread_local bool records = false;

[[noreturn]] void refuse_memory(size_t bytes) {
  cudaGetLastError();  // which the next launch would report as its own
  size_t free = 0;
  size_t total = 0;
  SLUICE_CHECK_CUDA(cudaMemGetInfo(&free, &total));
  throw DeviceMemoryError(fmt::format("the GPU is out of memory: {} are wanted in one piece, and {} of its {} are free",
                                      size_text(bytes), size_text(free), size_text(total)),
                          kUseLessMemory);
}

/// "13.0" of 13000, as CUDA numbers its versions.
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // which the next launch would report as its own
  const std::string text = fmt::format("{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
  if (status == cudaErrorMemoryAllocation) throw DeviceMemoryError(text, kUseLessMemory);
  throw InternalError(text);
}

size_t free_bytes() {
  size_t free = 0;
  size_t total = 0;
  SLUICE_CHECK_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

NoRecording::NoRecording() {
  if (records) throw InternalError("what is recorded waits for the GPU");
  recording_mutex.lock_shared();
}

NoRecording::~NoRecording() { recording_mutex.unlock_shared(); }

Recording::Recording() {
  recording_mutex.lock();
  records = true;
}

Recording::~Recording() {
  records = false;
  recording_mutex.unlock();
}

void wait_for_device() {
  const NoRecording outside;
  SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
}

DeviceMemory::DeviceMemory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const cudaError_t status = cudaMalloc(&data_, bytes);
  if (status == cudaErrorMemoryAllocation) refuse_memory(bytes);
  check(status, "cudaMalloc");
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
  const NoRecording outside;
  SLUICE_CHECK_CUDA(cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice));
}

void DeviceMemory::download(void* host, size_t bytes) const {
  const NoRecording outside;
  SLUICE_CHECK_CUDA(cudaMemcpy(host, data_, bytes, cudaMemcpyDeviceToHost));
}

void DeviceMemory::fill(int byte) {
  const NoRecording outside;
  SLUICE_CHECK_CUDA(cudaMemset(data_, byte, bytes_));
}

void grow(DeviceMemory& memory, size_t bytes) {
  if (memory.bytes() < bytes) memory = DeviceMemory(bytes);
}

std::string explain_absence(cudaError_t status, int driver_version) {
  if (status == cudaErrorNoDevice) return "there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it";
  if (status != cudaErrorInsufficientDriver) return cudaGetErrorString(status);
  if (driver_version == 0) return "there is no NVIDIA driver";
  return fmt::format("the NVIDIA driver is made for CUDA {}, and this program needs one for CUDA {} or later",
                     version_text(driver_version), version_text(CUDART_VERSION / 1000 * 1000));
}

void require_capability(const char* gpu, int major, int minor) {
  if (major == 9 && minor == 0) return;
  throw InputError(fmt::format("device \"cuda\" is not available: the kernels are built for compute capability 9.0 (H100, H200), "
                               "and {} has {}.{}",
                               gpu, major, minor),
                   "use --device cpu");
}

void require_device() {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count == 0) status = cudaErrorNoDevice;
  if (status != cudaSuccess) {
    int driver_version = 0;
    cudaDriverGetVersion(&driver_version);  // 0 stays where there is none
    throw InputError(fmt::format("device \"cuda\" is not available: {}", explain_absence(status, driver_version)),
                     "use --device cpu");
  }
  int device = 0;
  cudaDeviceProp properties{};
  SLUICE_CHECK_CUDA(cudaGetDevice(&device));
  SLUICE_CHECK_CUDA(cudaGetDeviceProperties(&properties, device));
  require_capability(properties.name, properties.major, properties.minor);
}

std::vector<std::string> visible_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  return names_of_gpus(std::getenv("CUDA_VISIBLE_DEVICES"), count);
}

std::vector<std::string> names_of_gpus(const char* variable, int count) {
  std::vector<std::string> names;
  std::istringstream listed(variable == nullptr ? "" : variable);
  for (int i = 0; i < count; ++i) {
    std::string name = std::to_string(i);
    if (variable != nullptr && !std::getline(listed >> std::ws, name, ',')) break;
    names.push_back(name.substr(0, name.find_last_not_of(" \t") + 1));
  }
  return names;
}

namespace {

int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  SLUICE_CHECK_CUDA(cudaGetDevice(&device));
  SLUICE_CHECK_CUDA(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace

int multiprocessors() { return attribute_of_device(cudaDevAttrMultiProcessorCount); }

bool is_gpu_shared() { return attribute_of_device(cudaDevAttrMpsEnabled) != 0; }

}  // namespace sluice::cuda
