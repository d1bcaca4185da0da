#include "kernels/cpu/runtime/free_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "scripting/base/control_groups.h"

namespace sluice::cpu {
namespace {

namespace fs = std::filesystem;

/// How a version of control groups names what it knows of memory.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* unused_cache;  // a line of memory.stat
};
constexpr GroupFiles kFirstVersion = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kSecondVersion = {"memory.max", "memory.current", "inactive_file"};

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

}  // namespace

std::optional<size_t> memory_left_by_groups(const fs::path& root) {
  std::optional<size_t> least;
  for (const ControlGroup& group : control_groups("memory", root)) {
    const auto left = left_in(group.folder, group.version == 1 ? kFirstVersion : kSecondVersion);
    if (left) least = std::min(least.value_or(*left), *left);
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
