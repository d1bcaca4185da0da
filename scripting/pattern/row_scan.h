#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "scripting/pattern/pattern.h"

namespace sluice {

/// What rows of a pattern say that are looked at one by one.
struct RowScan {
  std::vector<int32_t> last;  // by token: the last query that reads it; -1: none does
  int blind = 0;              // queries that see nothing
};

/// Of `length` queries. The last scans are remembered, up to 16 MiB of them, since engines, plans and checks ask for the same.
/// Threads may call this.
std::shared_ptr<const RowScan> scan_rows(const Pattern& pattern, int length);

}  // namespace sluice
