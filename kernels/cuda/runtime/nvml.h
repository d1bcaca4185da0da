#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/profile/clock_reader.h"

namespace sluice::cuda {

/// The functions of NVIDIA's management library (NVML API Reference) that are needed, by their binary interface: the library
/// comes with the driver, its header is in few toolkits.
struct Nvml {
  using Status = int;  // 0: success
  using Gpu = struct NvmlGpu*;
  struct Process {  // nvmlProcessInfo_t of version 3
    unsigned pid = 0;
    unsigned long long bytes = 0;
    unsigned gpu_instance = 0;
    unsigned compute_instance = 0;
  };

  Status (*init)() = nullptr;
  Status (*gpu_at)(const char* pci_address, Gpu* gpu) = nullptr;
  Status (*clock)(Gpu gpu, int domain, unsigned* mhz) = nullptr;
  Status (*most_clock)(Gpu gpu, int domain, unsigned* mhz) = nullptr;
  Status (*reasons)(Gpu gpu, unsigned long long* bits) = nullptr;
  Status (*processes)(Gpu gpu, unsigned* count, Process* found) = nullptr;
};

/// What holds clocks down, from the bits that NVML gives. A GPU that is idle is not held down.
std::vector<std::string> reasons_of(unsigned long long bits);

/// What `nvml` says of a GPU; `own` is the number of this process. Nothing where it does not tell the clocks.
std::optional<DeviceClocks> clocks_of(const Nvml& nvml, Nvml::Gpu gpu, unsigned own);

/// Of the GPU that is current; null where there is no NVML, or an old one, or it does not know the GPU.
std::unique_ptr<ClockReader> create_nvml_reader();

}  // namespace sluice::cuda
