#include "kernels/cuda/codegen/attended_tiles.h"

#include <fmt/format.h>

namespace sluice::cuda::codegen {

int box_tokens(const PageLayout& layout) { return layout.page % 16 == 0 ? 16 : 8; }

std::string tile_type(const PageLayout& layout) {
  const char* type = layout.kv == DataType::kBF16 ? "kBF16" : layout.kv == DataType::kE4M3 ? "kE4M3" : "kE5M2";
  return fmt::format("DataType::{}, {}, {}", type, layout.head_dim, box_tokens(layout));
}

bool has_tiles(const PageLayout& layout) {
  const int64_t token_bytes = layout.head_dim * static_cast<int64_t>(size_of(layout.kv));
  return layout.kv != DataType::kF32 && token_bytes >= 128 && layout.head_dim <= 128;
}

}  // namespace sluice::cuda::codegen
