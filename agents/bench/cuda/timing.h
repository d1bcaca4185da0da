#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cuda/runtime/runtime.h"

namespace sluice {

/// Terabytes a second (read plus written) of a device copy of 2 GiB: the best of several.
double measure_device_copy();

/// The rate of the tensor cores (bf16) at the highest clock, which they do not hold under load: 512 multiplications and additions
/// a clock in each of the four of a multiprocessor (compute capability 9.0).
double tensor_gflop_per_s();

/// Median time in microseconds of one `call(number, stream)`: calls are captured in graphs of 20, as a decode step would be, and
/// the graphs are replayed for about `seconds` (at least ten times).
double time_device_call(double seconds, const std::function<void(int64_t, CUstream_st*)>& call);

}  // namespace sluice
