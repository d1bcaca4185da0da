#include "kernels/cuda/gang.h"

#include <mutex>
#include <shared_mutex>

#include "kernels/cuda/runtime.h"

namespace sluice::cuda {
namespace {

/// Of this process; turns share it.
std::shared_mutex gangs_mutex;
int gangs = 0;
bool shares_gpu = false;

bool is_gpu_shared() {
  int device = 0;
  int shared = 0;
  SLUICE_CHECK_CUDA(cudaGetDevice(&device));
  SLUICE_CHECK_CUDA(cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, device));
  return shared != 0;
}

}  // namespace

void Gang::join() {
  const std::unique_lock lock(gangs_mutex);
  shares_gpu = is_gpu_shared();
  if (gangs > 0) wait_for_device();
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

Gang::Turn::Turn(Gang& gang) : gang_(gang) {
  if (gang_.turns_ == 0) {
    if (!gang_.counts_) gang_.join();
    gangs_mutex.lock_shared();
  }
  ++gang_.turns_;
}

Gang::Turn::~Turn() {
  if (--gang_.turns_ == 0) gangs_mutex.unlock_shared();
}

bool Gang::cooperative() const { return gangs > 1 || shares_gpu; }

}  // namespace sluice::cuda
