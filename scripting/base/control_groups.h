#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace sluice {

/// A control group: a container or a service is one (Linux, Documentation/admin-guide).
struct ControlGroup {
  std::filesystem::path folder;  // of its files
  int version = 2;               // by which they are named
};

/// Those that may limit what this process has of `controller` ("memory", "cpu"): the groups that it is in and those around them,
/// inner ones first. In a container the path of a group may be that of the machine, whose groups are not all there: not every
/// folder exists. `root` is where proc and sys/fs/cgroup are looked for.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace sluice
