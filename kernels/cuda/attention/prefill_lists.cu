#include "kernels/cuda/attention/prefill_lists.cuh"

#include "kernels/cuda/attention/prefill_attention.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::cuda {

using namespace prefill;

namespace {

template <int Dim>
void list(const ListedArguments& a, int blocks, int32_t* lists, Stream stream) {
  list_kernel<Dim><<<blocks, kListThreads, 0, stream>>>(a, lists);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace

size_t PrefillAttention::list_bytes(const PrefillShape& shape, const PrefillTables& tables) const {
  return static_cast<size_t>(most_row_tiles(shape)) * tables.mask_heads * ListExtents(shape, kv_.layout.head_dim).stride *
         sizeof(int32_t);
}

void PrefillAttention::list_tiles(const PrefillShape& shape, const PrefillTables& tables, int32_t* lists, Stream stream) const {
  if (tables.slots == nullptr) throw InternalError("lists of tiles are for rows with slots");
  if (shape.sequences == 0 || shape.rows == 0) return;
  const ListedArguments a{{.query_indptr = tables.query_indptr,
                           .lengths = tables.lengths,
                           .sequences = shape.sequences,
                           .kv_heads = tables.mask_heads,
                           .group = shape.group},
                          sights_of(shape, tables, kv_.layout.head_dim)};
  const int blocks = static_cast<int>(most_row_tiles(shape)) * tables.mask_heads;
  if (kv_.layout.head_dim == 256) {
    list<256>(a, blocks, lists, stream);
  } else {
    list<128>(a, blocks, lists, stream);
  }
}

}  // namespace sluice::cuda
