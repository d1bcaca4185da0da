#pragma once

#include <memory>
#include <string>

#include "kernels/profile/kernel_profile.h"

namespace sluice {

/// Records what a device does while it goes on as it would, but for a microsecond or two of the host at every launch. One
/// recording at a time.
class KernelRecorder {
 public:
  virtual ~KernelRecorder() = default;
  /// Waits for the device, then records from here on; what a recording that has begun already holds is dropped.
  virtual void start() = 0;
  /// Waits for the device. Throws InternalError if anything was lost.
  virtual DeviceRecording stop() = 0;
};

/// Of the device "cpu" or "cuda"; null where there are no kernels to record. Throws InputError where they cannot be recorded.
std::unique_ptr<KernelRecorder> create_kernel_recorder(const std::string& device);

}  // namespace sluice
