#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "host/weights/safetensors.h"

namespace sluice::testing {

/// The elements of a tensor of I32.
inline std::vector<int32_t> integers_of(const StoredTensor& tensor) {
  if (tensor.type != StoredType::kI32) throw std::logic_error("integers_of: the tensor is not I32");
  std::vector<int32_t> values(static_cast<size_t>(tensor.elements()));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

}  // namespace sluice::testing
