#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cuda/runtime/nvrtc.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::testing {

/// What a test lacks where `required` throws InputError: it is skipped, or fails if SLUICE_NEEDS_GPU is set. Where tests run for
/// the GPU's sake, a machine that cannot is no success.
template <class Required>
void need(const Required& required) {
  try {
    required();
  } catch (const InputError& error) {
    if (std::getenv("SLUICE_NEEDS_GPU") != nullptr) FAIL() << error.what();
    GTEST_SKIP() << error.what();
  }
}

/// Tests that need a GPU.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override { need(cuda::require_device); }
  /// Whether there is all that was needed so far.
  static bool runs() { return !IsSkipped() && !HasFatalFailure(); }
};

/// A stream as a device has one, on which kernels may begin while those before them end.
class OwnStream {
 public:
  OwnStream() { SLUICE_CHECK_CUDA(cudaStreamCreate(&stream_)); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  cuda::Stream get() const { return stream_; }
  void wait() const { SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Tests that need CUDA's run-time compiler, and no GPU.
class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override { need(cuda::nvrtc_version); }
};

}  // namespace sluice::testing
