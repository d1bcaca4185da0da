#include "kernels/device.h"

#include <fmt/format.h>

#ifdef SLUICE_CUDA
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/runtime/runtime.h"
#endif

namespace sluice {

void Device::repeat(Repetition* /*repetition*/, std::span<const int32_t> /*tokens*/,
                    std::span<const CompiledFlow* const> /*flows*/, const std::function<void()>& operations) {
  operations();
}

void require_device_name(const std::string& name) {
  if (name == "cpu" || name == "cuda") return;
  throw InputError(fmt::format("there is no device \"{}\"", name), "devices are cpu and cuda");
}

void require_device(const std::string& name) {
  require_device_name(name);
  if (name == "cpu") return;
#ifdef SLUICE_CUDA
  cuda::require_device();
#else
  throw InputError("device \"cuda\" is not available: this program was built without the CUDA toolkit",
                   "use --device cpu, or build where CMake finds nvcc 13.0 or later");
#endif
}

std::unique_ptr<Device> create_device(const std::string& name, int threads) {
  require_device(name);
#ifdef SLUICE_CUDA
  if (name == "cuda") return create_cuda_device();
#endif
  return create_cpu_device({.threads = threads});
}

std::vector<std::string> visible_gpus() {
#ifdef SLUICE_CUDA
  return cuda::visible_gpus();
#else
  return {};
#endif
}

}  // namespace sluice
