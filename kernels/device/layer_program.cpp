#include "kernels/device/layer_program.h"

#include <algorithm>

namespace sluice {

std::span<const LayerPart> parts_before_attention(std::span<const LayerPart> parts) {
  const auto attention =
      std::find_if(parts.begin(), parts.end(), [](const LayerPart& part) { return std::holds_alternative<AttentionPart>(part); });
  return parts.first(static_cast<size_t>(attention - parts.begin()));
}

}  // namespace sluice
