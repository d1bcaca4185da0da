#include <fmt/format.h>

#include "kernels/device.h"

namespace sluice {

Matrix Matrix::slice_rows(int64_t first, int64_t count) const {
  if (first < 0 || count < 0 || first + count > rows) {
    throw InternalError(fmt::format("rows [{}, {}) of a matrix of {} rows", first, first + count, rows));
  }
  Matrix slice = *this;
  slice.data = static_cast<std::byte*>(data) + first * stride * static_cast<int64_t>(size_of(type));
  slice.rows = count;
  return slice;
}

Matrix Matrix::slice_columns(int64_t first, int64_t count) const {
  if (first < 0 || count < 0 || first + count > columns) {
    throw InternalError(fmt::format("columns [{}, {}) of a matrix of {} columns", first, first + count, columns));
  }
  Matrix slice = *this;
  slice.data = static_cast<std::byte*>(data) + first * static_cast<int64_t>(size_of(type));
  slice.columns = count;
  return slice;
}

}  // namespace sluice
