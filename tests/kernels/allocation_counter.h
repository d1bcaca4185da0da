#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::testing {

/// Calls of operator new in this test program since it began; allocation_test.cpp counts them.
extern std::atomic<int64_t> allocations;

}  // namespace sluice::testing
