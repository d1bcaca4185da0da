#include "kernels/cuda/pages/paged_kv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/runtime/driver.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

void check_layout(const PageLayout& layout) {
  if (layout.kv == DataType::kF32) throw InputError("CUDA attention takes bf16, e4m3 or e5m2 KV, not f32");
  if (layout.head_dim != 64 && layout.head_dim != 128 && layout.head_dim != 256) {
    throw InputError(fmt::format("CUDA attention takes heads of 64, 128 or 256 channels, not {}", layout.head_dim));
  }
  if (layout.page < 8 || layout.page > 128 || layout.page % 8 != 0) {
    throw InputError(fmt::format("CUDA attention takes pages of 8 to 128 tokens, not {}", layout.page));
  }
  if (layout.value_offset <= layout.key_offset || layout.bytes % 16 != 0) throw InternalError("V must follow K in a page");
}

}  // namespace

TensorMap map_blocks(const PagedKv& kv, int tokens, bool both) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  const PageLayout& layout = kv.layout;
  check_layout(layout);
  // Channels in panels, tokens, panels, K and V, blocks.
  const size_t row_bytes = layout.head_dim * size_of(layout.kv);
  const size_t panel_bytes = std::min<size_t>(128, row_bytes);
  const auto panel = static_cast<cuuint32_t>(panel_bytes / size_of(layout.kv));
  const auto panels = static_cast<cuuint32_t>(row_bytes / panel_bytes);
  const cuuint64_t sizes[5] = {panel, static_cast<cuuint64_t>(layout.page), panels, 2,
                               static_cast<cuuint64_t>(kv.pages) * kv.kv_heads};
  const cuuint64_t strides[4] = {row_bytes, panel_bytes, layout.value_offset - layout.key_offset, layout.bytes};
  const cuuint32_t box[5] = {panel, static_cast<cuuint32_t>(tokens), panels, both ? 2U : 1U, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const auto type = layout.kv == DataType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const auto swizzle = panel_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
  CUtensorMap map;
  const CUresult result = encode_tiled()(&map, type, 5, const_cast<std::byte*>(kv.base + layout.key_offset), sizes, strides, box,
                                         steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw InternalError(fmt::format("cuTensorMapEncodeTiled failed with {}", static_cast<int>(result)));
  TensorMap opaque;
  std::memcpy(opaque.bytes, &map, sizeof(map));
  return opaque;
}

}  // namespace sluice::cuda
