#include "agents/http/descriptor_budget.h"

#include <sys/resource.h>

#include <algorithm>

namespace sluice {

size_t allow_many_files() {
  constexpr rlim_t kEnough = 1 << 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur < kEnough) {
    const rlim_t granted = limit.rlim_cur;
    limit.rlim_cur = std::min(limit.rlim_max, kEnough);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = granted;
  }
  return static_cast<size_t>(std::min(limit.rlim_cur, kEnough));
}

void leave_descriptors(HttpServerOptions& options, size_t all, size_t kept) {
  constexpr size_t kOfOne = 3;  // a connection's own, and those of a store while it is answered: the database and its log
  constexpr size_t kLeast = 8;
  const size_t connections = std::max(kLeast, (all - std::min(all, kept)) / kOfOne);
  options.most_connections = static_cast<int>(std::min<size_t>(static_cast<size_t>(options.most_connections), connections));
  options.most_streams = std::min(options.most_streams, options.most_connections / 2);
}

}  // namespace sluice
