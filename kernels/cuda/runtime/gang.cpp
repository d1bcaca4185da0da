#include "kernels/cuda/runtime/gang.h"

#include <mutex>

#include "kernels/cuda/runtime/runtime.h"

namespace sluice::cuda {
namespace {

std::shared_mutex gangs_mutex;  // shared by those that launch
int gangs = 0;                  // that count

}  // namespace

Gang::Gang() : shares_gpu_(is_gpu_shared()) {}

void Gang::join() {
  const std::unique_lock lock(gangs_mutex);
  if (gangs == 1) wait_for_device();
  ++gangs;
  counts_ = true;
}

Gang::~Gang() {
  if (!counts_) return;
  const std::unique_lock lock(gangs_mutex);
  const NoRecording outside;
  cudaDeviceSynchronize();  // nothing can be done about an error here
  --gangs;
}

Gang::Launches::Launches(Gang& gang) : gang_(gang) {
  if (gang_.depth_ == 0) {
    if (!gang_.counts_) gang_.join();
    lock_ = std::shared_lock(gangs_mutex);
  }
  ++gang_.depth_;
}

Gang::Launches::~Launches() { --gang_.depth_; }

bool Gang::cooperative() const { return gangs > 1 || shares_gpu_; }

}  // namespace sluice::cuda
