#include "sandbox/process/confinement.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sandbox/process/landlock.h"
#include "sandbox/process/system_calls.h"
#include "scripting/base/error.h"

namespace sluice {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;  // sanitizers reserve terabytes of address space
#else
constexpr bool kIsSanitized = false;
#endif

/// Lowers a limit, a hard one to `beyond` more; one that is lower already stays.
void limit(__rlimit_resource resource, rlim_t most, rlim_t beyond = 0) {
  rlimit both = {};
  if (getrlimit(resource, &both) != 0) throw InternalError(fmt::format("a resource limit: {}", std::strerror(errno)));
  both.rlim_max = std::min(both.rlim_max, most + beyond);
  both.rlim_cur = std::min(both.rlim_max, most);
  if (setrlimit(resource, &both) != 0) throw InternalError(fmt::format("a resource limit: {}", std::strerror(errno)));
}

}  // namespace

void limit_resources(const ChildLimits& limits) {
  constexpr rlim_t kStandardStreams = 3;
  if (!kIsSanitized) limit(RLIMIT_AS, limits.memory);
  limit(RLIMIT_CPU, static_cast<rlim_t>(limits.cpu_seconds), 1);  // SIGXCPU, which says why, comes before SIGKILL
  limit(RLIMIT_NOFILE, kStandardStreams);
  limit(RLIMIT_NPROC, 0);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_CORE, 0);
}

SandboxLayers confine(const ChildLimits& limits) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) throw InternalError(fmt::format("no_new_privs: {}", std::strerror(errno)));
  // Landlock's rules need a descriptor for a moment, which the limits would refuse.
  SandboxLayers layers;
  layers.landlock = deny_with_landlock();
  limit_resources(limits);
  allow_only_tracing();
  layers.seccomp = true;
  return layers;
}

}  // namespace sluice
