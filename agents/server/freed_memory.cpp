#include "agents/server/freed_memory.h"

#include <malloc.h>

namespace sluice {

void give_back_freed_memory() { ::malloc_trim(0); }

void keep_little_freed_memory() {
  constexpr int kArenas = 4;
  constexpr int kLarge = 256 << 10;  // bytes
  ::mallopt(M_ARENA_MAX, kArenas);
  ::mallopt(M_MMAP_THRESHOLD, kLarge);
  ::mallopt(M_TRIM_THRESHOLD, kLarge);
}

}  // namespace sluice
