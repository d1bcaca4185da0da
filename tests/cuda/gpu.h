#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cuda/nvrtc.h"
#include "kernels/cuda/runtime.h"
#include "scripting/graph/error.h"

namespace sluice::testing {

/// Tests that need a GPU; without one they are skipped, or fail if SLUICE_NEEDS_GPU is set, and the reason is said.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      cuda::require_device();
    } catch (const InputError& error) {
      // Where tests run for the GPU's sake, a machine without one is no success.
      if (std::getenv("SLUICE_NEEDS_GPU") != nullptr) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }
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
  void SetUp() override {
    try {
      cuda::nvrtc_version();
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

}  // namespace sluice::testing
