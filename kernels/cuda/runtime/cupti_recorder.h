#pragma once

#include "kernels/profile/kernel_recorder.h"

namespace sluice::cuda {

/// Records kernels, copies and fills of this process through CUPTI, launches of graphs kernel by kernel. CUPTI is part of the
/// toolkit and loaded for the first recorder.
class CuptiRecorder final : public KernelRecorder {
 public:
  /// Throws InputError where CUPTI is missing or refuses.
  CuptiRecorder();

  void start() override;
  DeviceRecording stop() override;

 private:
  uint64_t started_ = 0;  // nanoseconds of CUPTI's clock
};

}  // namespace sluice::cuda
