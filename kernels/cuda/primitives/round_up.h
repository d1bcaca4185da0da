#pragma once

namespace sluice::cuda {

/// The least multiple of `step` that is not less than `number`.
template <class T>
constexpr T round_up(T number, T step) {
  return (number + step - 1) / step * step;
}

}  // namespace sluice::cuda
