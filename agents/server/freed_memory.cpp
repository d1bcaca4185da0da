#include "agents/server/freed_memory.h"

#include <malloc.h>

namespace sluice {

void give_back_freed_memory() { ::malloc_trim(0); }

}  // namespace sluice
