#include <gtest/gtest.h>

#include "sandbox/process/child.h"

// Instead of GoogleTest's own: a test that traces a flow file becomes the child that traces it (sandbox/sandboxed_trace.h).
int main(int argc, char** argv) {
  if (sluice::is_sandbox_child(argc, argv)) sluice::run_sandbox_child(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
