#pragma once

namespace sluice::cpu {

/// Floating-point operations a second (in GFLOP/s, a multiply-add counts two) that `threads` threads reach on float32
/// registers alone: the limit of every kernel that multiplies float32. 0: all cores that this process may use.
double measure_peak_gflops(int threads);

}  // namespace sluice::cpu
