#include "kernels/cuda/runtime/side_stream.h"

#include <cuda_runtime.h>

#include "kernels/cuda/runtime/runtime.h"

namespace sluice::cuda {

void SideStream::DestroyStream::operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
void SideStream::DestroyEvent::operator()(CUevent_st* event) const { cudaEventDestroy(event); }

SideStream::Event SideStream::create_event() {
  cudaEvent_t event = nullptr;
  SLUICE_CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

SideStream::SideStream() : begun_(create_event()), ended_(create_event()) {
  cudaStream_t stream = nullptr;
  SLUICE_CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.reset(stream);
}

void SideStream::begin(Stream main) {
  SLUICE_CHECK_CUDA(cudaEventRecord(begun_.get(), main));
  SLUICE_CHECK_CUDA(cudaStreamWaitEvent(stream_.get(), begun_.get()));
  is_busy_ = true;
}

void SideStream::join(Stream main) noexcept {
  if (!is_busy_) return;
  is_busy_ = false;
  cudaEventRecord(ended_.get(), stream_.get());  // where this fails, so does whatever is asked of the device next
  cudaStreamWaitEvent(main, ended_.get());
}

}  // namespace sluice::cuda
