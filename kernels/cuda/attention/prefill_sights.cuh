#pragma once

#include "kernels/cuda/attention/prefill_works.cuh"

/// What rows of a prompt see where they do not follow each other, or have masks.
namespace sluice::cuda::prefill {

/// A word whose first `count` bits are set: none if it is not positive, all from 32 on.
__device__ __forceinline__ uint32_t first_bits(int count) { return count >= 32 ? ~0U : (1U << max(count, 0)) - 1; }

/// What some rows of a work see, those of one thread.
template <int Count>
struct OwnSights {
  int limits[Count];             // tokens up to which they see, ...
  const uint32_t* masks[Count];  // ... or those whose bits are set; null: they have none
  int words = 0;                 // of a mask

  /// Row `index` is that of the pair `pair` behind the work's first; past its last pair, or where there is no row, the last one
  /// stands for it.
  template <class AnyArguments>
  __device__ __forceinline__ void take(const AnyArguments& a, const Work& work, int index, int pair) {
    int row = a.row_at(work.sequence, a.by_group.quotient(work.pair + min(pair, work.pairs - 1)));
    if constexpr (std::is_same_v<AnyArguments, PartArguments>) row = min(row, a.rows_of(work.sequence) - 1);
    const uint32_t* const mask = a.sights.mask(work.sequence);
    words = (work.length + 31) / 32;
    limits[index] = __ldg(a.sights.slots + work.query + row) + 1;
    masks[index] =
        mask == nullptr ? nullptr : mask + (int64_t{row} * a.sights.mask_heads + a.sights.mask_head(work.head)) * words;
  }
  /// Bits of the tokens [8 * box, 8 * box + 8) that the first row sees, which has a mask, and all of which are there; none where
  /// there is no box.
  __device__ __forceinline__ uint32_t box(int box) const {
    return box < 0 ? 0 : __ldg(reinterpret_cast<const uint8_t*>(masks[0]) + box);
  }
  /// Bits of the tokens [32 * number, 32 * number + 32) that a row sees.
  __device__ __forceinline__ uint32_t word(int index, int number) const {
    if (masks[index] != nullptr) return number < words ? __ldg(masks[index] + number) : 0;
    return first_bits(limits[index] - 32 * number);
  }
};

}  // namespace sluice::cuda::prefill
