#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/source_path.h"

namespace sluice::testing {

/// A file of the real model (SmolLM2-135M-Instruct and what it must say), which is no part of the source tree: in the folder that
/// the environment variable SLUICE_REAL_MODEL_DIR names, or ../shared/models beside the tree. It may not be there.
inline std::filesystem::path real_model_file(const std::string& name) {
  const char* named = std::getenv("SLUICE_REAL_MODEL_DIR");
  return (named != nullptr ? std::filesystem::path(named) : source_path("../shared/models")) / name;
}

inline bool has_real_model() {
  return std::filesystem::exists(real_model_file("SmolLM2-135M-Instruct.Q4_1.gguf")) &&
         std::filesystem::exists(real_model_file("smollm2.json"));
}

/// Skips a test where the real model is not there.
#define SLUICE_SKIP_WITHOUT_REAL_MODEL()    \
  if (!::sluice::testing::has_real_model()) \
  GTEST_SKIP() << "the real model is not there: " << ::sluice::testing::real_model_file("")

}  // namespace sluice::testing
