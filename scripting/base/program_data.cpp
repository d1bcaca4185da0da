#include "scripting/base/program_data.h"

#include <filesystem>
#include <system_error>

namespace sluice {

std::string find_program_data(const std::vector<std::string>& places) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  for (fs::path folder = program.parent_path();; folder = folder.parent_path()) {
    for (const std::string& place : places) {
      if (fs::exists(folder / place, error)) return (folder / place).string();
    }
    if (folder == folder.root_path()) return {};
  }
}

}  // namespace sluice
