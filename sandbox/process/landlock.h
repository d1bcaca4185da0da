#pragma once

namespace sluice {

/// Denies this process every further access to files, TCP ports, abstract sockets and signals to others, as far as the kernel's
/// Landlock can; descriptors that are open stay usable. Wants no_new_privs. Returns the version of the kernel's interface: from 1
/// files are covered, from 4 TCP, from 6 the rest. 0 where the kernel has no Landlock or it is switched off. Throws InternalError
/// where the kernel has it and refuses.
int deny_with_landlock();

}  // namespace sluice
