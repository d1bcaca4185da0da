#pragma once

#include <cstdint>

#include "kernels/device/pass_batch.h"

/// Masks of lists of pages: a bit a token, one page behind the other, each 8, 16 or a multiple of 32 of them.
namespace sluice::cuda {

/// Writes that of the page at place `place` of a list: word_of(i) has its 32 tokens from the 32 * i-th on, and more bits where it
/// has fewer.
template <class WordOf>
__device__ __forceinline__ void write_page_mask(uint32_t* masks, int page, int place, const WordOf& word_of) {
  if (page == 8) {
    reinterpret_cast<uint8_t*>(masks)[place] = static_cast<uint8_t>(word_of(0));
  } else if (page == 16) {
    reinterpret_cast<uint16_t*>(masks)[place] = static_cast<uint16_t>(word_of(0));
  } else {
    for (int i = 0; i < page / 32; ++i) masks[int64_t{place} * (page / 32) + i] = word_of(i);
  }
}

/// What it wrote, as word_of gives it.
__device__ __forceinline__ uint32_t read_page_mask(const uint32_t* masks, int page, int place, int i) {
  if (page == 8) return reinterpret_cast<const uint8_t*>(masks)[place];
  if (page == 16) return reinterpret_cast<const uint16_t*>(masks)[place];
  return masks[int64_t{place} * (page / 32) + i];
}

}  // namespace sluice::cuda
