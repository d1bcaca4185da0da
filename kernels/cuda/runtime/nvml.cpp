#include "kernels/cuda/runtime/nvml.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/runtime/shared_library.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

// Clock domains.
constexpr int kSm = 1;
constexpr int kMemory = 2;

constexpr Nvml::Status kInsufficientSize = 7;
constexpr unsigned long long kIdle = 0x1;

struct Reason {
  unsigned long long bit;
  const char* name;
};
constexpr std::array<Reason, 8> kReasons = {{{0x2, "applications_clocks"},
                                             {0x4, "power_cap"},
                                             {0x8, "hw_slowdown"},
                                             {0x10, "sync_boost"},
                                             {0x20, "thermal_slowdown"},
                                             {0x40, "hw_thermal_slowdown"},
                                             {0x80, "hw_power_brake"},
                                             {0x100, "display_clocks"}}};

/// Throws InputError where there is none, or it lacks a function.
Nvml load_nvml() {
  const SharedLibrary library("NVML, which knows clocks of GPUs,", {"libnvidia-ml.so.1"}, "install NVIDIA's driver");
  Nvml nvml;
  library.find("nvmlInit_v2", nvml.init);
  library.find("nvmlDeviceGetHandleByPciBusId_v2", nvml.gpu_at);
  library.find("nvmlDeviceGetClockInfo", nvml.clock);
  library.find("nvmlDeviceGetMaxClockInfo", nvml.most_clock);
  library.find("nvmlDeviceGetCurrentClocksEventReasons", nvml.reasons);
  library.find("nvmlDeviceGetComputeRunningProcesses_v3", nvml.processes);
  return nvml;
}

/// Where the list lacks this process, which computes on the GPU, its numbers are those of another namespace: one of them is ours.
std::optional<int> other_processes(const Nvml& nvml, Nvml::Gpu gpu, unsigned own) {
  constexpr unsigned kMost = 64;
  std::array<Nvml::Process, kMost> found{};
  unsigned count = kMost;
  const Nvml::Status status = nvml.processes(gpu, &count, found.data());
  if (status == kInsufficientSize) return static_cast<int>(count) - 1;
  if (status != 0 || count == 0) return {};
  const auto end = found.begin() + std::min(count, kMost);
  const auto ours = std::count_if(found.begin(), end, [&](const Nvml::Process& process) { return process.pid == own; });
  return static_cast<int>(count - std::max<ptrdiff_t>(1, ours));
}

class NvmlReader final : public ClockReader {
 public:
  NvmlReader(const Nvml& nvml, Nvml::Gpu gpu) : nvml_(nvml), gpu_(gpu) {}

  std::optional<DeviceClocks> read() override { return clocks_of(nvml_, gpu_, static_cast<unsigned>(::getpid())); }

 private:
  const Nvml nvml_;
  const Nvml::Gpu gpu_;
};

}  // namespace

std::vector<std::string> reasons_of(unsigned long long bits) {
  std::vector<std::string> names;
  bits &= ~kIdle;
  for (const Reason& reason : kReasons) {
    if ((bits & reason.bit) != 0) names.emplace_back(reason.name);
    bits &= ~reason.bit;
  }
  if (bits != 0) names.push_back(fmt::format("reason_{:#x}", bits));
  return names;
}

std::optional<DeviceClocks> clocks_of(const Nvml& nvml, Nvml::Gpu gpu, unsigned own) {
  unsigned sm = 0;
  unsigned most_sm = 0;
  unsigned memory = 0;
  unsigned long long reasons = 0;
  if (nvml.clock(gpu, kSm, &sm) != 0 || nvml.most_clock(gpu, kSm, &most_sm) != 0 || nvml.clock(gpu, kMemory, &memory) != 0 ||
      nvml.reasons(gpu, &reasons) != 0) {
    return {};
  }
  DeviceClocks clocks;
  clocks.sm_mhz = static_cast<int>(sm);
  clocks.sm_limit_mhz = static_cast<int>(most_sm);
  clocks.memory_mhz = static_cast<int>(memory);
  clocks.is_idle = (reasons & kIdle) != 0;
  clocks.held_by = reasons_of(reasons);
  clocks.other_processes = other_processes(nvml, gpu, own);
  return clocks;
}

std::unique_ptr<ClockReader> create_nvml_reader() {
  try {
    const Nvml nvml = load_nvml();
    constexpr int kAddressBytes = 32;  // "00000000:3B:00.0" and an end
    std::array<char, kAddressBytes> address{};
    int device = 0;
    SLUICE_CHECK_CUDA(cudaGetDevice(&device));
    SLUICE_CHECK_CUDA(cudaDeviceGetPCIBusId(address.data(), kAddressBytes, device));
    Nvml::Gpu gpu = nullptr;
    if (nvml.init() != 0 || nvml.gpu_at(address.data(), &gpu) != 0) return nullptr;
    return std::make_unique<NvmlReader>(nvml, gpu);
  } catch (const InputError&) {  // a figure less, and no reason not to measure
    return nullptr;
  }
}

}  // namespace sluice::cuda
