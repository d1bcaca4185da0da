#include "kernels/device/attention_operations.h"

#include "scripting/base/error.h"

namespace sluice {

void AttentionOperations::add_row_masses(const RowMasses& /*call*/, Matrix /*q*/, std::span<float> /*masses*/) {
  throw InternalError("this device does not sum what single rows give");
}

}  // namespace sluice
