#pragma once

#include <cstddef>

#include "kernels/device.h"

namespace sluice::cuda {

/// How tensor copies see memory: a CUtensorMap, without CUDA's header.
struct alignas(64) TensorMap {
  std::byte bytes[128] = {};
};

/// For copies of `rows` rows by 64 columns of a bf16 matrix in device memory, whose data and rows are aligned to 16 bytes;
/// coordinates are (column, row). In shared memory a row has 128 bytes, its 16-byte chunks permuted by the row (the 128-byte
/// swizzle), so that eight rows of one chunk lie in different banks. What lies past the end of the matrix is zero.
TensorMap map_matrix(const Matrix& matrix, int rows);

/// The same in groups of 16 rows, of which a copy has `groups`: 8 rows and the 8 that lie half of the matrix behind them;
/// coordinates are (column, 0, 0, group). Throws InternalError unless rows are a multiple of 16.
TensorMap map_row_pairs(const Matrix& matrix, int groups);

/// The same in tiles of 16 rows, of which a copy has 4 times 64 columns, one behind the other; coordinates are (0, 0, 0, column /
/// 64, tile). A tile has 16 rows that follow each other or, of `pairs`, 8 rows and the 8 that lie half of the matrix behind them.
/// Throws InternalError unless rows are a multiple of 16 and columns of 64.
TensorMap map_tiles(const Matrix& matrix, bool pairs);

}  // namespace sluice::cuda
