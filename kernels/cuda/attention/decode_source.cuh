#pragma once

#include "kernels/cuda/attention/decode_stretch.cuh"

/// Where the tiles of a warp lie, and how they reach shared memory.
namespace sluice::cuda::decode {

/// The pages of a lane's first tile, if all rows are as long as the first one was: they are asked for together with the lengths
/// that tell whether they are. Flows take the same number of pages of every row unless some are short.
template <class Shape, int Box>
struct Guess {
  static constexpr int kBoxes = kTileTokens / Box;

  int row = -1;       // of the tile; -1: none
  int place[kBoxes];  // of its pages in the row's list
  int page[kBoxes];

  /// Before earlier kernels have ended: the first row's length may be that of an earlier selection, or, before any, whatever lies
  /// there.
  __device__ __forceinline__ Guess(const Arguments& a, int rows, int warp) {
    const int tokens = a.list_stride > 0 ? __ldcg(a.tokens) : 0;
    if (tokens <= 0) return;
    const int tiles = (tokens - 1) / kTileTokens + 1;
    if (a.by_page_boxes.quotient(tiles * kBoxes - 1) >= a.list_stride || tiles > INT_MAX / 2 / rows) return;
    const Stretch stretch = even_stretch(a, rows, tiles);
    const int tile = stretch.first + warp + static_cast<int>(threadIdx.x) % 32 * Shape::kWarps;
    if (tile >= stretch.last) return;
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) place[box] = a.by_page_boxes.quotient(tile % tiles * kBoxes + box);
    row = tile / tiles;
  }

  __device__ __forceinline__ void ask(const Arguments& a) {
    if (row < 0) return;
    const int32_t* pages = a.pages + list_of(a, row) * a.list_stride;
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      asm volatile("ld.global.s32 %0, [%1];" : "=r"(page[box]) : "l"(pages + place[box]) : "memory");
    }
  }
};

/// Where the tiles of a warp lie in the pool. Its lanes look 32 tiles up at a time, each its own, and later copy them.
template <class Shape, int Box>
class Source {
 public:
  static constexpr int kBoxes = kTileTokens / Box;

  __device__ __forceinline__ Source(const Arguments& a, const Stretch& stretch, int warp, const Guess<Shape, Box>& guess)
      : tile_(stretch.first + warp + static_cast<int>(threadIdx.x) % 32 * Shape::kWarps),
        row_(stretch.row),
        row_begin_(stretch.row_begin),
        row_end_(stretch.row_begin + tiles_of(row_tokens(a, stretch.row))) {
    look_up(a, stretch, [&](const int32_t* pages, int box, int place) {
      return row_ == guess.row && place == guess.place[box] ? guess.page[box] : pages[place];
    });
  }

  /// Whether tile number `index` of this warp, which is to be copied next, has a row's last token, or is none. For all lanes.
  __device__ __forceinline__ bool is_last(const Stretch& stretch, int index) const {
    return __shfl_sync(0xffffffffU, tile_ + 1 >= min(row_end_, stretch.last) ? 1 : 0, index % 32) != 0;
  }

  /// Copies tile number `index` of this warp to shared memory, if there is one. Called for 0, 1, 2 and so on, by all lanes.
  __device__ __forceinline__ void copy(const CUtensorMap* map, const Arguments& a, const Stretch& stretch, int index,
                                       uint32_t target, uint32_t barrier) {
    if (static_cast<int>(threadIdx.x) % 32 == index % 32 && tile_ < stretch.last) {
      barrier_expect(barrier, Shape::kTileBytes);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        copy_box(map, target + box * (Shape::kTileBytes / kBoxes), barrier, token_[box], block_[box]);
      }
    }
    if (index % 32 == 31) {
      tile_ += 32 * Shape::kWarps;
      look_up(a, stretch, [](const int32_t* pages, int, int place) { return pages[place]; });
    }
  }

 private:
  template <class PageAt>
  __device__ __forceinline__ void look_up(const Arguments& a, const Stretch& stretch, const PageAt& page_at) {
    if (tile_ >= stretch.last) return;
#pragma unroll 1
    while (tile_ >= row_end_) {
      ++row_;
      row_begin_ = row_end_;
      row_end_ += tiles_of(row_tokens(a, row_));
    }
    const int list = list_of(a, row_);
    const int last_box = (a.tokens[list] - 1) / Box;
    const int32_t* pages = a.pages + start_of(a, list);
    const int head = a.by_kv_heads.remainder(row_);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      // Past the end: the last one once more, since its scores are masked.
      const int at = min((tile_ - row_begin_) * kBoxes + box, last_box);
      block_[box] = page_at(pages, box, a.by_page_boxes.quotient(at)) * a.kv_heads + head;
      token_[box] = a.by_page_boxes.remainder(at) * Box;
    }
  }

  int tile_;
  int row_;
  int row_begin_;
  int row_end_;
  int block_[kBoxes];
  int token_[kBoxes];
};

}  // namespace sluice::cuda::decode
