#pragma once

#include <algorithm>

#include "kernels/cuda/attention/prefill_attention.h"
#include "kernels/cuda/attention/prefill_sights.cuh"

/// Which tiles of tokens the rows of a tile see, so that others are neither read nor multiplied, and which of them need a mask.
///
/// Of strided patterns tiles of consecutive rows see much, but each row little of it: of what it sees every 512th token of, a
/// tile of 128 rows reads a quarter, of which a 128th counts. Such calls have two parts. Near are the tiles of tokens that
/// consecutive rows share; of what is left the rows are put in another order, so that those beside each other see the same boxes
/// of 8 tokens (RowOrder). A softmax over both is made of theirs, as the logarithms of their sums weigh them.
namespace sluice::cuda::prefill {

inline constexpr int kListThreads = 256;
inline constexpr int kListedAtOnce = 1024;  // tiles of tokens

/// What rows see of a tile of tokens: a bit for each box of which some row sees a token, and the bits of its entry.
struct Found {
  uint32_t boxes = 0;
  int partial = 0;
  bool is_far = false;  // each row sees a few tokens at most, and they are left to the far part

  static __device__ __forceinline__ Found of(uint32_t packed) {
    return {packed & 0xffff, static_cast<int>(packed >> 16 & 3), packed >> 18 != 0};
  }
  __device__ __forceinline__ uint32_t packed() const {
    return boxes | static_cast<uint32_t>(partial) << 16 | static_cast<uint32_t>(is_far) << 18;
  }
};

/// What the near part leaves to the far one.
struct FarMasks {
  uint32_t* words = nullptr;  // masks of the call's sequences without what is near; null: there is one part
  int most_seen = 0;          // tokens that a row sees of a tile that is left to the far part
};

/// For a whole warp whose lanes hold four rows each, two of either warpgroup. Tiles are far of which no row sees more than
/// `most_far` tokens.
template <int Tokens>
__device__ __forceinline__ Found look_at(const OwnSights<4>& own, int tile, int most_far) {
  Found found{};
  uint32_t any[Tokens / 32] = {};
  int most_seen = 0;
  for (int warpgroup = 0; warpgroup < 2; ++warpgroup) {
    uint32_t all = ~0U;
    for (int half = 0; half < 2; ++half) {
      int seen = 0;
#pragma unroll
      for (int i = 0; i < Tokens / 32; ++i) {
        const uint32_t word = own.word(2 * warpgroup + half, tile * (Tokens / 32) + i);
        any[i] |= word;
        all &= word;
        seen += __popc(word);
      }
      most_seen = max(most_seen, seen);
    }
    found.partial |= __all_sync(0xffffffffU, all == ~0U) != 0 ? 0 : 1 << warpgroup;
  }
#pragma unroll
  for (int i = 0; i < Tokens / 32; ++i) {
    const uint32_t seen = __reduce_or_sync(0xffffffffU, any[i]);
#pragma unroll
    for (int box = 0; box < 4; ++box) found.boxes |= (seen >> (8 * box) & 255) != 0 ? 1U << (4 * i + box) : 0;
  }
  found.is_far = found.boxes != 0 && __all_sync(0xffffffffU, most_seen <= most_far) != 0;
  return found;
}

/// Writes the list of a tile of rows: one warp, of whose lanes each brings the next tile of tokens.
template <int Dim>
class ListWriter {
 public:
  __device__ __forceinline__ ListWriter(const Sights& sights, int32_t* list, int last_tile)
      : list_(list),
        boxes_(list + sights.box_place),
        most_boxes_(sights.most_gathered * S::kBoxes),
        last_tile_(last_tile),
        seen_(sights.most_gathered),
        most_seen_(sights.most_seen) {}

  /// A lane's is tile `tile`. A row without a mask sees a beginning: of its tiles one at most is seen in part, and one alone is
  /// not gathered, so rows of gathered tiles have masks.
  __device__ __forceinline__ void add(int tile, Found found) {
    const int lane = threadIdx.x % 32;
    const unsigned before = (1U << lane) - 1;
    // Few boxes are gathered from several tiles. The last tile may have tokens that are none, which are cleared at the list's
    // end.
    const int boxes = __popc(found.boxes);
    const bool has_few = boxes > 0 && boxes <= S::kBoxes / 2 && tile != last_tile_;
    int end = has_few ? boxes : 0;  // of the boxes up to this lane's
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffU, end, step);
      if (lane >= step) end += other;
    }
    // What there is no room for is taken whole: lanes up to some have room, those behind them have none.
    const bool is_sparse = has_few && gathered_ + end <= most_boxes_;
    const bool is_dense = boxes > 0 && !is_sparse;
    const unsigned dense = __ballot_sync(0xffffffffU, is_dense);
    const unsigned partial = __ballot_sync(0xffffffffU, is_dense && found.partial != 0);
    if (is_dense) list_[1 + dense_ + __popc(dense & before)] = entry(tile, found, seen_ + __popc(partial & before)).bits;
    dense_ += __popc(dense);
    seen_ += __popc(partial);
    const unsigned sparse = __ballot_sync(0xffffffffU, is_sparse);
    if (sparse == 0) return;
    int32_t* to = boxes_ + gathered_ + end - boxes;
    for (uint32_t left = is_sparse ? found.boxes : 0; left != 0; left &= left - 1)
      *to++ = tile * S::kBoxes + __ffs(static_cast<int>(left)) - 1;
    gathered_ += __shfl_sync(0xffffffffU, end, 31 - __clz(static_cast<int>(sparse)));
    sparse_ += __popc(sparse);
    const int first_sparse = __ffs(static_cast<int>(sparse)) - 1;
    only_tile_ = __shfl_sync(0xffffffffU, tile, first_sparse);
    only_ = Found::of(__shfl_sync(0xffffffffU, found.packed(), first_sparse));
  }

  /// Rows that see nothing get a tile of no boxes.
  __device__ __forceinline__ void end() {
    __syncwarp();
    const int lane = threadIdx.x % 32;
    const int tiles = sparse_ > 1 ? (gathered_ + S::kBoxes - 1) / S::kBoxes : sparse_;
    for (int box = gathered_ + lane; box < max(1, tiles) * S::kBoxes; box += 32) boxes_[box] = -1;
    if (lane != 0) return;
    // The last of those that follow each other stays last.
    const int32_t last = dense_ > 0 ? list_[dense_] : 0;
    const int first = max(0, dense_ - 1);
    for (int i = 0; i < tiles; ++i)
      list_[1 + first + i] = (sparse_ > 1 ? Entry::gathered(i) : entry(only_tile_, only_, seen_)).bits;
    if (dense_ > 0) list_[dense_ + tiles] = last;
    if (dense_ + tiles == 0) list_[1] = Entry::gathered(0).bits;
    list_[0] = max(dense_ + tiles, 1);
  }

 private:
  using S = Shape<Dim>;

  /// `seen`: the next number of a tile that has bits.
  __device__ __forceinline__ Entry entry(int tile, Found found, int seen) const {
    return Entry(tile, found.partial, found.partial != 0 && seen < most_seen_ ? seen : Entry::kNoBits);
  }

  int32_t* list_;
  int32_t* boxes_;
  int most_boxes_;
  int last_tile_;
  int dense_ = 0;      // tiles
  int sparse_ = 0;     // those of few boxes
  int gathered_ = 0;   // their boxes
  int only_tile_ = 0;  // one of them
  Found only_;
  int seen_;  // numbers of tiles with bits that are taken
  int most_seen_;
};

/// A block writes what the far part sees of tiles of tokens [begin, end), of which `found` tells.
template <int Dim>
__device__ __forceinline__ void write_far_masks(const PartArguments& a, const Work& work, const FarMasks& far,
                                                const uint32_t* found, int begin, int end) {
  constexpr int kWords = Shape<Dim>::kTokens / 32;
  const int words = (work.length + 31) / 32;
  const uint32_t* const masks = a.sights.mask(work.sequence);
  uint32_t* const to = far.words + (masks - a.sights.masks) - __ldg(a.sights.mask_indptr);
  const int count = min(end * kWords, words) - begin * kWords;
  const int first = a.by_group.quotient(work.pair);
  for (int i = threadIdx.x; i < a.by_group.quotient(work.pairs) * count; i += kListThreads) {
    const int word = i % count;
    const int64_t at = (int64_t{first + i / count} * a.sights.mask_heads + work.head) * words + begin * kWords + word;
    to[at] = Found::of(found[word / kWords]).is_far ? __ldg(masks + at) : 0;
  }
}

/// A block writes what the rows of a tile see of the tiles of their list, as far as these have bits.
template <int Dim>
__device__ __forceinline__ void write_seen(const PartArguments& a, const Work& work, int32_t* list) {
  constexpr int kWords = Shape<Dim>::kTokens / 32;
  const int tiles = list[0];
  for (int i = threadIdx.x; i < kTileRows * kWords; i += kListThreads) {
    const int word = i % kWords;
    OwnSights<1> own;
    own.take(a, work, 0, i / kWords);
    for (int number = 1; number <= tiles; ++number) {
      const Entry entry(list[number]);
      if (entry.seen() == Entry::kNoBits) continue;
      uint32_t seen;
      if (entry.is_gathered()) {
        // The boxes of a word: four.
        const int4 boxes = *reinterpret_cast<const int4*>(list + a.sights.box_place + 4 * (entry.tile() * kWords + word));
        seen = own.box(boxes.x) | own.box(boxes.y) << 8 | own.box(boxes.z) << 16 | own.box(boxes.w) << 24;
      } else {
        seen = own.word(0, entry.tile() * kWords + word);
      }
      list[a.sights.seen_place + entry.seen() * kTileRows * kWords + i] = static_cast<int>(seen);
    }
  }
}

/// A block lists the tiles of one tile of rows, but for the last in order, writes the bits of those that have some, and what is
/// left to the far part. `a.kv_heads` is how many heads see something else.
template <int Dim>
__global__ void __launch_bounds__(kListThreads) list_kernel(const PartArguments a, int32_t* lists, const FarMasks far) {
  constexpr int kTokens = Shape<Dim>::kTokens;
  __shared__ uint32_t found[kListedAtOnce];
  const int number = static_cast<int>(blockIdx.x);
  if (number >= count_works(a)) return;
  const Work work = find_work<Dim, Kind::kNear>(a, number);
  const int lane = threadIdx.x % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  OwnSights<4> own;
  for (int i = 0; i < 4; ++i) own.take(a, work, i, lane + 32 * i);
  const bool leaves_far = far.words != nullptr && own.masks[0] != nullptr;
  const int tiles = (work.length + kTokens - 1) / kTokens;
  int32_t* const list = lists + a.sights.list_place(work.place, work.head);
  ListWriter<Dim> writer(a.sights, list, tiles - 1);
  for (int begin = 0; begin < tiles; begin += kListedAtOnce) {
    const int end = min(tiles, begin + kListedAtOnce);
    for (int tile = begin + warp; tile < end; tile += kListThreads / 32) {
      const uint32_t packed = look_at<kTokens>(own, tile, leaves_far ? far.most_seen : 0).packed();
      if (lane == 0) found[tile - begin] = packed;
    }
    __syncthreads();
    for (int tile = begin + lane; warp == 0 && tile - lane < end; tile += 32) {
      const Found here = Found::of(tile < end ? found[tile - begin] : 0);
      writer.add(tile, here.is_far ? Found{} : here);
    }
    if (leaves_far) write_far_masks<Dim>(a, work, far, found, begin, end);
    __syncthreads();
  }
  if (warp == 0) writer.end();
  __syncthreads();
  write_seen<Dim>(a, work, list);
}

/// Tokens of a tile, for heads of `dim`.
inline int tile_tokens(int dim) {
  static_assert(Shape<64>::kTokens == Shape<128>::kTokens);
  return dim == 256 ? Shape<256>::kTokens : Shape<128>::kTokens;
}

/// Every sequence may leave a tile unfilled.
inline int64_t most_row_tiles(const PrefillShape& shape) {
  return static_cast<int64_t>(shape.rows) * shape.group / kTileRows + shape.sequences;
}

/// Whether a call has two parts: where the boxes that a tile of rows is spared outweigh that its rows come a second time. Rows of
/// a tile that are as they come have the boxes of all its tokens in each stride, those in order the boxes of eight; so there is
/// little to spare under narrow strides, in short prompts, and where a group leaves few tokens to a tile.
inline bool has_two_parts(const PrefillShape& shape, const PrefillTables& tables) {
  constexpr int kDearest = 96;  // boxes that take as long as a second time
  const int stride = tables.stride;
  if (tables.mask_indptr == nullptr || stride < kLeastStride || shape.rows / kFewestStrides < stride) return false;
  if (kTileRows % shape.group != 0) return false;
  const int tokens = kTileRows / shape.group;
  const int boxes = std::min(tokens / kBoxTokens + 1, (stride + kBoxTokens - 1) / kBoxTokens);
  const int boxes_in_order = std::max(1, tokens / kBoxTokens / (shape.rows / stride));
  const int seen = shape.most_tokens - std::min(shape.rows, shape.most_tokens) / 2;
  return (boxes - boxes_in_order) * (seen / stride) > kDearest;
}

/// Of the far part: the last stride is incomplete, and so are the last eight rows of each.
inline int64_t most_far_tiles(const PrefillShape& shape, int stride) {
  const int64_t padded = (int64_t{stride} + 7) / 8 * 8;
  const int64_t places = (int64_t{shape.rows} / stride + shape.sequences) * padded;
  return places * shape.group / kTileRows + shape.sequences;
}

/// Numbers from the list of a tile of rows, which lies at 16 bytes, to its boxes, to what its rows see of tiles, which do so,
/// too, and to the next list. `row_tiles`: lists of a call, of each mask.
struct ListExtents {
  static constexpr int64_t kMostWords = int64_t{64} << 20;  // of all lists of a call, but for one gathered tile of each
  static constexpr int kMostPartial = 8;                    // tiles that are not gathered and have bits
  int box_place = 0;
  int most_gathered = 1;
  int seen_place = 0;
  int most_seen = 1;
  int stride = 0;

  ListExtents(const PrefillShape& shape, const PrefillTables& tables, int dim, int64_t row_tiles) {
    const int tokens = tile_tokens(dim);
    const int tiles = (std::max(1, shape.most_tokens) + tokens - 1) / tokens;
    const int boxes = tokens / kBoxTokens;
    const int words = kTileRows * (tokens / 32);
    box_place = (1 + tiles + 3) / 4 * 4;
    const int64_t room = kMostWords / std::max<int64_t>(1, row_tiles * tables.mask_heads);  // of a list
    const auto partial = std::clamp<int64_t>(room / words, 0, std::min(tiles, kMostPartial));
    // Of a tile half of the boxes are gathered at most. Where rows have no masks none are.
    if (tables.mask_indptr != nullptr)
      most_gathered = static_cast<int>(std::clamp<int64_t>((room - partial * words) / (boxes + words), 1, (tiles + 1) / 2));
    seen_place = box_place + most_gathered * boxes;
    most_seen = std::min(most_gathered + static_cast<int>(partial), Entry::kNoBits);
    stride = seen_place + most_seen * words;
  }
};

/// What `list_bytes` are made of: numbers to the lists of the far part, and to its masks.
struct ListPlaces {
  ListExtents extents;  // of all lists of the call
  int64_t far_lists = 0;
  int64_t far_masks = 0;
  int64_t end = 0;

  ListPlaces(const PrefillShape& shape, const PrefillTables& tables, int dim)
      : extents(shape, tables, dim, row_tiles_of(shape, tables)) {
    const int64_t of_tile = int64_t{tables.mask_heads} * extents.stride;
    far_lists = far_masks = end = most_row_tiles(shape) * of_tile;
    if (!has_two_parts(shape, tables)) return;
    far_masks = far_lists + most_far_tiles(shape, tables.stride) * of_tile;
    end = far_masks + int64_t{shape.rows} * tables.mask_heads * ((shape.most_tokens + 31) / 32);
  }

 private:
  static int64_t row_tiles_of(const PrefillShape& shape, const PrefillTables& tables) {
    return most_row_tiles(shape) + (has_two_parts(shape, tables) ? most_far_tiles(shape, tables.stride) : 0);
  }
};

inline Sights sights_of(const PrefillShape& shape, const PrefillTables& tables, int dim) {
  const ListExtents extents = ListPlaces(shape, tables, dim).extents;
  return {.slots = tables.slots,
          .mask_indptr = tables.mask_indptr,
          .masks = tables.masks,
          .mask_heads = tables.mask_heads,
          .lists = tables.lists,
          .list_stride = extents.stride,
          .box_place = extents.box_place,
          .most_gathered = extents.most_gathered,
          .seen_place = extents.seen_place,
          .most_seen = extents.most_seen};
}

/// Those of the far part of a call with the lists `lists`.
inline Sights far_sights_of(const PrefillShape& shape, const PrefillTables& tables, int dim, const int32_t* lists) {
  const ListPlaces places(shape, tables, dim);
  Sights sights = sights_of(shape, tables, dim);
  sights.lists = lists + places.far_lists;
  sights.masks = reinterpret_cast<const uint32_t*>(lists + places.far_masks);
  sights.masks_of_call = true;
  return sights;
}

}  // namespace sluice::cuda::prefill
