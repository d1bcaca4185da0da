#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "scripting/lua/trace.h"
#include "tests/support/golden.h"

namespace sluice::testing {

/// The flows of a folder of the repository, in alphabetical order.
inline std::vector<std::filesystem::path> flows_in(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(source_path(folder))) {
    if (entry.path().extension() == ".lua") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Traces a file under its bare name, so that diagnostics do not depend on where the repository lies.
inline FlowGraph trace_by_name(const std::filesystem::path& path, const TraceOptions& options = {}) {
  return trace(read_text(path), path.filename().string(), options);
}

inline std::vector<std::filesystem::path> valid_flows() {
  std::vector<std::filesystem::path> paths = flows_in("scripting/flows");
  const std::vector<std::filesystem::path> okay = flows_in("tests/flows/okay");
  paths.insert(paths.end(), okay.begin(), okay.end());
  return paths;
}

inline std::string name_of_flow(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.stem().string();
}

}  // namespace sluice::testing
