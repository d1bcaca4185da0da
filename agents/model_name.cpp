#include "agents/model_name.h"

#include <filesystem>

namespace sluice {

std::string model_name(const std::string& directory) {
  if (directory.empty()) return {};
  const std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace sluice
