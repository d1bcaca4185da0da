#pragma once

#include <cstddef>
#include <span>

#include "host/weights/stored_type.h"

namespace sluice {

/// Whether `decode_blocks` knows the type: F32, F16, BF16, F64 and GGML's blocks.
bool holds_real_numbers(StoredType type);

/// The numbers that blocks stand for. `bytes` are whole blocks, of as many elements as `values` has room for. Bit for bit what
/// GGML's own reference gives. Layouts of blocks: https://github.com/ggml-org/ggml, ggml-common.h. Throws InternalError for a
/// type that holds no real numbers.
void decode_blocks(StoredType type, std::span<const std::byte> bytes, std::span<float> values);

}  // namespace sluice
