#include "scripting/base/control_groups.h"

#include <fstream>
#include <string>

namespace sluice {
namespace {

namespace fs = std::filesystem;

void append_up_from(fs::path group, const fs::path& mount, int version, std::vector<ControlGroup>& groups) {
  for (group = group.relative_path();; group = group.parent_path()) {
    groups.push_back({mount / group, version});
    if (group.empty()) return;
  }
}

bool names(std::string_view controllers, std::string_view controller) {
  const auto within_commas = [](std::string_view text) { return "," + std::string(text) + ","; };
  return within_commas(controllers).find(within_commas(controller)) != std::string::npos;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::vector<ControlGroup> groups;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // number:controllers:path; of version 2 there are no controllers
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      append_up_from(group, mounts, 2, groups);
      append_up_from(group, mounts / "unified", 2, groups);
    } else if (names(controllers, controller)) {
      append_up_from(group, mounts / controller, 1, groups);
    }
  }
  return groups;
}

}  // namespace sluice
