#pragma once

namespace sluice {

/// From now on this process may compute, allocate memory, read standard input, write standard output and end. Any other system
/// call kills it with SIGSYS. Sets no_new_privs. Throws InternalError if the kernel refuses the filter.
void allow_only_tracing();

}  // namespace sluice
