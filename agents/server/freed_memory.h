#pragma once

namespace sluice {

/// Gives memory that was freed back to the system, which the allocator would keep in each of its arenas for as long as the
/// process lives. Takes some milliseconds: for the end of something dear.
void give_back_freed_memory();

}  // namespace sluice
