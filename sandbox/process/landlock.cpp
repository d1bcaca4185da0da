#include "sandbox/process/landlock.h"

#include <fmt/format.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "sandbox/process/file_descriptor.h"
#include "scripting/base/error.h"

namespace sluice {

namespace {

// What each version of the interface added (Documentation/userspace-api/landlock.rst). Distributions' headers lag behind.
constexpr uint64_t kFileRights = (1ULL << 13) - 1;            // 1
constexpr uint64_t kMoveRight = 1ULL << 13;                   // 2
constexpr uint64_t kTruncateRight = 1ULL << 14;               // 3
constexpr uint64_t kTcpRights = (1ULL << 2) - 1;              // 4
constexpr uint64_t kDeviceRight = 1ULL << 15;                 // 5
constexpr uint64_t kSocketAndSignalScopes = (1ULL << 2) - 1;  // 6

/// struct landlock_ruleset_attr of version 6; older kernels accept what they do not know where it is zero.
struct RulesetAttributes {
  uint64_t handled_access_fs = kFileRights;
  uint64_t handled_access_net = 0;
  uint64_t scoped = 0;
};

RulesetAttributes attributes_for(int version) {
  RulesetAttributes attributes;
  if (version >= 2) attributes.handled_access_fs |= kMoveRight;
  if (version >= 3) attributes.handled_access_fs |= kTruncateRight;
  if (version >= 4) attributes.handled_access_net = kTcpRights;
  if (version >= 5) attributes.handled_access_fs |= kDeviceRight;
  if (version >= 6) attributes.scoped = kSocketAndSignalScopes;
  return attributes;
}

}  // namespace

int deny_with_landlock() {
  const auto version = static_cast<int>(syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION));
  if (version < 1) return 0;
  const RulesetAttributes attributes = attributes_for(version);
  // No rule is added: nothing is allowed.
  const FileDescriptor ruleset(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0)));
  if (!ruleset.is_open() || syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) {
    throw InternalError(fmt::format("Landlock: {}", std::strerror(errno)));
  }
  return version;
}

}  // namespace sluice
