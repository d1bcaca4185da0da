#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace sluice::testing {

/// A file of the source tree, which is where the tests were built, or the folder that the environment variable
/// SLUICE_SOURCE_DIR names.
inline std::filesystem::path source_path(const std::string& relative) {
  const char* named = std::getenv("SLUICE_SOURCE_DIR");
  return std::filesystem::path(named != nullptr ? named : SLUICE_SOURCE_DIR) / relative;
}

}  // namespace sluice::testing
