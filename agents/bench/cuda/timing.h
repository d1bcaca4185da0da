#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cuda/runtime/runtime.h"

namespace sluice {

/// Terabytes a second (read plus written) of a device copy of 2 GiB: the best of several.
double measure_device_copy();

/// Median time in microseconds of one `call(number, stream)`: calls are captured in graphs of 20, as a decode step would be, and
/// the graphs are replayed for about `seconds` (at least ten times).
double time_device_call(double seconds, const std::function<void(int64_t, CUstream_st*)>& call);

}  // namespace sluice
