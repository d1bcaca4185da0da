#include "kernels/cuda/attention/prefill_lists.cuh"

#include <string>

#include "kernels/cuda/attention/prefill_attention.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::cuda {

using namespace prefill;

namespace {

template <int Dim>
void list(const PartArguments& a, int64_t tiles, int32_t* lists, const FarMasks& far, Stream stream) {
  list_kernel<Dim><<<static_cast<unsigned>(tiles * a.kv_heads), kListThreads, 0, stream>>>(a, lists, far);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace

size_t PrefillAttention::list_bytes(const PrefillShape& shape, const PrefillTables& tables) const {
  return static_cast<size_t>(ListPlaces(shape, tables, kv_.layout.head_dim).end) * sizeof(int32_t);
}

void PrefillAttention::list_tiles(const PrefillShape& shape, const PrefillTables& tables, int32_t* lists, Stream stream) const {
  if (tables.slots == nullptr) throw InternalError("lists of tiles are for rows with slots");
  if (shape.sequences == 0 || shape.rows == 0) return;
  const int dim = kv_.layout.head_dim;
  if (shape.most_tokens > Entry::kMostTiles * tile_tokens(dim))
    throw InternalError("lists of tiles for " + std::to_string(shape.most_tokens) + " tokens");
  const auto write = [&](const PartArguments& a, int64_t tiles, int32_t* to, const FarMasks& far) {
    if (dim == 256) {
      list<256>(a, tiles, to, far, stream);
    } else {
      list<128>(a, tiles, to, far, stream);
    }
  };
  const ListPlaces places(shape, tables, dim);
  const bool two_parts = has_two_parts(shape, tables);
  PartArguments a{{{.query_indptr = tables.query_indptr,
                    .lengths = tables.lengths,
                    .sequences = shape.sequences,
                    .kv_heads = tables.mask_heads,
                    .group = shape.group,
                    .by_group = Divisor(shape.group)},
                   sights_of(shape, tables, dim)},
                  {}};
  FarMasks far;
  if (two_parts) {
    far = {reinterpret_cast<uint32_t*>(lists + places.far_masks), (tile_tokens(dim) + tables.stride - 1) / tables.stride};
  }
  write(a, most_row_tiles(shape), lists, far);
  if (!two_parts) return;
  a.sights = far_sights_of(shape, tables, dim, lists);
  a.parts.stride = tables.stride;
  write(a, most_far_tiles(shape, tables.stride), lists + places.far_lists, {});
}

}  // namespace sluice::cuda
