#pragma once

namespace sluice {

/// Gives memory that was freed back to the system, which the allocator would keep in each of its arenas for as long as the
/// process lives. Takes some milliseconds: for the end of something dear.
void give_back_freed_memory();

/// Has the allocator keep little of what this process frees: few arenas however many cores there are, and pages of their own for
/// whatever is large. To be called before there are other threads. Programs that allocate little while they are busy lose
/// nothing.
void keep_little_freed_memory();

}  // namespace sluice
