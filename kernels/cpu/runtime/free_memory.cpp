#include "kernels/cpu/runtime/free_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace sluice::cpu {
namespace {

namespace fs = std::filesystem;

/// How a version of control groups names what it knows of memory.
struct GroupFiles {
  fs::path mount;
  const char* limit;
  const char* used;
  const char* unused_cache;  // a line of memory.stat
};

/// The number that the file holds; nothing if there is no such file, or no number ("max").
std::optional<size_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  size_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// The number behind `key` in a file of lines "key number".
std::optional<size_t> number_behind(const std::string& key, const fs::path& path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    size_t number = 0;
    if (word == key && file >> number) return number;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return {};
}

/// What a group's own limit leaves.
std::optional<size_t> left_in(const fs::path& group, const GroupFiles& files) {
  const std::optional<size_t> limit = number_in(group / files.limit);
  const std::optional<size_t> used = number_in(group / files.used);
  if (!limit || !used) return {};
  const size_t cached = number_behind(files.unused_cache, group / "memory.stat").value_or(0);
  const size_t taken = *used - std::min(*used, cached);
  return *limit - std::min(*limit, taken);
}

/// The least that the limits of a group and of those around it leave. In a container the path may be that of the machine, whose
/// groups are not all there.
std::optional<size_t> left_up_from(fs::path group, const GroupFiles& files) {
  std::optional<size_t> least;
  for (group = group.relative_path();; group = group.parent_path()) {
    if (const auto left = left_in(files.mount / group, files)) least = std::min(least.value_or(*left), *left);
    if (group.empty()) return least;
  }
}

bool names_memory(const std::string& controllers) { return ("," + controllers + ",").find(",memory,") != std::string::npos; }

}  // namespace

std::optional<size_t> memory_left_by_groups(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  const GroupFiles unified{mounts, "memory.max", "memory.current", "inactive_file"};
  const GroupFiles hybrid{mounts / "unified", "memory.max", "memory.current", "inactive_file"};
  const GroupFiles legacy{mounts / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
  std::optional<size_t> least;
  const auto take = [&](const std::string& group, const GroupFiles& files) {
    if (const auto left = left_up_from(group, files)) least = std::min(least.value_or(*left), *left);
  };
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // number:controllers:path; of version 2 there are no controllers
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      take(group, unified);
      take(group, hybrid);
    } else if (names_memory(controllers)) {
      take(group, legacy);
    }
  }
  return least;
}

size_t free_memory() {
  const auto kib = number_behind("MemAvailable:", "/proc/meminfo");
  const size_t of_machine =
      kib ? *kib << 10 : static_cast<size_t>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return std::min(of_machine, memory_left_by_groups().value_or(of_machine));
}

}  // namespace sluice::cpu
