#include "kernels/profile/clock_reader.h"

#ifdef SLUICE_CUDA
#include "kernels/cuda/runtime/nvml.h"
#endif

namespace sluice {

std::unique_ptr<ClockReader> create_clock_reader(const std::string& device) {
#ifdef SLUICE_CUDA
  if (device == "cuda") return cuda::create_nvml_reader();
#endif
  (void)device;
  return nullptr;
}

}  // namespace sluice
