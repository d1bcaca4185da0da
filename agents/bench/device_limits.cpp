#include "agents/bench/device_limits.h"

#include <unistd.h>

#include <fstream>

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

size_t free_bytes_of(const std::string& device) {
#if SLUICE_CUDA
  if (device == "cuda") {
    size_t free = 0;
    size_t total = 0;
    SLUICE_CHECK_CUDA(cudaMemGetInfo(&free, &total));
    return free;
  }
#endif
  (void)device;
  std::ifstream file("/proc/meminfo");
  for (std::string key, unit; file >> key;) {
    size_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) return kib << 10;
    std::getline(file, unit);
  }
  return static_cast<size_t>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace sluice
