#pragma once

#include <gtest/gtest.h>

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

}  // namespace sluice::testing
