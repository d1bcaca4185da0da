#include "scripting/base/freed_memory.h"

#include <features.h>  // __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sluice {

#ifdef __GLIBC__

void give_back_freed_memory() { ::malloc_trim(0); }

void keep_little_freed_memory() {
  constexpr int kArenas = 4;
  constexpr int kLarge = 256 << 10;  // bytes
  ::mallopt(M_ARENA_MAX, kArenas);
  ::mallopt(M_MMAP_THRESHOLD, kLarge);
  ::mallopt(M_TRIM_THRESHOLD, kLarge);
}

#else

void give_back_freed_memory() {}
void keep_little_freed_memory() {}

#endif

}  // namespace sluice
