#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/source_path.h"

namespace sluice::testing {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// Compares `text` with tests/goldens/`name`. With SLUICE_ACCEPT=1 in the environment the golden is written instead.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = source_path("tests/goldens/" + name);
  const char* accept = std::getenv("SLUICE_ACCEPT");
  if (accept && std::string(accept) == "1") {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  ASSERT_TRUE(std::filesystem::exists(path)) << path << " does not exist; SLUICE_ACCEPT=1 writes it";
  EXPECT_EQ(read_text(path), text) << "golden " << path << "; SLUICE_ACCEPT=1 refreshes it";
}

}  // namespace sluice::testing
