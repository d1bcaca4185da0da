#pragma once

#include <gtest/gtest.h>

#include "kernels/cuda/nvrtc.h"
#include "kernels/cuda/runtime.h"
#include "scripting/graph/error.h"

namespace sluice::testing {

/// Tests that need a GPU; without one they are skipped, and the reason is said.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      cuda::require_device();
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
  }
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
