#include "agents/bench/device_limits.h"

#include "agents/bench/bench.h"
#if SLUICE_CUDA
#include "agents/bench/cuda/timing.h"
#endif

namespace sluice {

double measure_copy_of(const std::string& device, int threads) {
#if SLUICE_CUDA
  if (device == "cuda") return measure_device_copy();
#endif
  (void)device;
  return measure_copy_bandwidth(threads);
}

}  // namespace sluice
