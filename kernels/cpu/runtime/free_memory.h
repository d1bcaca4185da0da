#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace sluice::cpu {

/// Bytes of main memory that this process may still take: what the machine has left, and no more than the control groups that the
/// process is in (of containers and services) leave it.
size_t free_memory();

/// The part of the control groups, of version 1 or 2 (Linux, Documentation/admin-guide): the least that the limit of any of them
/// leaves, counting as free what is cached of files and not in use. Nothing: no limit is known (of version 1 a group without one
/// has one beyond any machine). `root` is where proc and sys/fs/cgroup are looked for.
std::optional<size_t> memory_left_by_groups(const std::filesystem::path& root = "/");

}  // namespace sluice::cpu
