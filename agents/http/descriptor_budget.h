#pragma once

#include <cstddef>

#include "agents/http/http_server.h"

namespace sluice {

/// Lets this process have as many descriptors as the system grants it. Returns how many that are.
size_t allow_many_files();

/// Bounds connections and streams so that, of `all` descriptors, `kept` stay for everything else: readers must not keep workers
/// and the sandbox from theirs. A few connections there are in any case.
void leave_descriptors(HttpServerOptions& options, size_t all, size_t kept);

}  // namespace sluice
