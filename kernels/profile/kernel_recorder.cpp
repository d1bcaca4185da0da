#include "kernels/profile/kernel_recorder.h"

#ifdef SLUICE_CUDA
#include "kernels/cuda/runtime/cupti_recorder.h"
#endif

namespace sluice {

std::unique_ptr<KernelRecorder> create_kernel_recorder(const std::string& device) {
#ifdef SLUICE_CUDA
  if (device == "cuda") return std::make_unique<cuda::CuptiRecorder>();
#endif
  (void)device;
  return nullptr;
}

}  // namespace sluice
