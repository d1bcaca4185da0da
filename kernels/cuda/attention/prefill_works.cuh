#pragma once

#include <type_traits>

#include "kernels/cuda/attention/attention_device.cuh"

/// What a call of prefill attention is cut into.
namespace sluice::cuda::prefill {

inline constexpr int kTileRows = 128;  // (row, head of the group) pairs of a block, 64 for each warpgroup that multiplies
inline constexpr int kGroupRows = 64;
inline constexpr int kThreads = 384;            // the warpgroup that copies, then two that multiply
inline constexpr int kBoxTokens = 8;            // of a tensor copy
inline constexpr int kFewestStrides = 4;        // that rows reach over which are put in order
inline constexpr int kLeastStride = 16;         // of theirs
inline constexpr float kCacheBytes = 32 << 20;  // K and V that blocks share in the second-level cache

/// Shared memory of one head size. Q: panels of 64 channels; in a panel a row of 128 bytes for each row, its 16-byte chunks
/// permuted by the row (the 128-byte swizzle). A slot of a K or V ring: boxes of 8 tokens, as the tensor copies lay them out: in
/// a box, panels of 64 channels, a row of 128 bytes a token.
template <int Dim>
struct Shape {
  static constexpr int kTokens = Dim == 256 ? 64 : 128;  // of a tile
  static constexpr int kStages = Dim == 256 ? 2 : Dim == 128 ? 3 : 4;
  static constexpr int kBoxes = kTokens / kBoxTokens;
  static constexpr int kBoxBytes = kBoxTokens * Dim * 2;
  static constexpr int kSlotBytes = kTokens * Dim * 2;
  static constexpr int kQueryPanel = kTileRows * 128;
  static constexpr int kQueryBytes = kTileRows * Dim * 2;
  static constexpr size_t kSharedBytes = 1024 + kQueryBytes + 2 * kStages * kSlotBytes + 256;  // the last for barriers and works
  static constexpr int kOutputChannels = Dim < 128 ? Dim : 128;                                // of one product with V
};

/// One of a list: a tile of tokens of which rows of a tile see some, of which warpgroups not all rows see all of it, and which
/// number that has among the tiles of whose tokens the list has a bit for each row. The tokens of a tile follow each other, or
/// its boxes are gathered from anywhere, and all of it is partial.
struct Entry {
  static constexpr int kGathered = 1 << 30;
  static constexpr int kNumberBits = 14;
  static constexpr int kMostTiles = 1 << kNumberBits;  // of a sequence
  static constexpr int kNoBits = kMostTiles - 1;
  int bits = 0;

  Entry() = default;
  __device__ __forceinline__ explicit Entry(int bits) : bits(bits) {}
  __device__ __forceinline__ Entry(int tile, int partial, int seen) : bits(seen << (kNumberBits + 2) | tile << 2 | partial) {}
  static __device__ __forceinline__ Entry gathered(int number) { return Entry(Entry(number, 3, number).bits | kGathered); }
  /// Among the tiles of all tokens, or among those that are gathered.
  __device__ __forceinline__ int tile() const { return bits >> 2 & (kMostTiles - 1); }
  /// Among the tiles that have bits; kNoBits: it has none.
  __device__ __forceinline__ int seen() const { return bits >> (kNumberBits + 2) & (kMostTiles - 1); }
  __device__ __forceinline__ bool is_gathered() const { return (bits & kGathered) != 0; }
  __device__ __forceinline__ bool is_partial() const { return (bits & 3) != 0; }
  __device__ __forceinline__ bool is_partial(int warpgroup) const { return (bits >> warpgroup & 1) != 0; }
};

/// What rows see where they do not follow each other, or have masks.
struct Sights {
  const int32_t* slots = nullptr;        // [rows] a row sees the tokens up to this one
  const int32_t* mask_indptr = nullptr;  // [sequences + 1] or those of its mask, as GroupPages has them; null: nobody has one
  const uint32_t* masks = nullptr;
  bool masks_of_call = false;  // `masks` begin with those of the call's first sequence, as those of the far part do
  int mask_heads = 1;          // masks of a row, and so lists, which heads of K and V have in turn
  /// [tiles of rows][mask_heads][list_stride] tiles of tokens that their rows see (prefill_lists.cuh): how many they are, an
  /// entry each, and at box_place the boxes of those that are gathered: tokens [8 * box, 8 * box + 8); -1: none.
  const int32_t* lists = nullptr;
  int list_stride = 0;
  int box_place = 0;
  int most_gathered = 0;  // tiles that a list has room for
  /// In a list, of what its rows see of tiles: [tiles][kTileRows][tokens / 32] words of bits, those of gathered tiles first.
  int seen_place = 0;
  int most_seen = 0;  // tiles whose bits there is room for

  /// Which of the masks is that of a head of K and V.
  __device__ __forceinline__ int mask_head(int head) const { return mask_heads == 1 ? 0 : head % mask_heads; }
  /// Where the list of a tile of rows is among all.
  __device__ __forceinline__ int64_t list_place(int row_tile, int head) const {
    return (int64_t{row_tile} * mask_heads + mask_head(head)) * list_stride;
  }
  __device__ __forceinline__ const int32_t* list(int row_tile, int head) const { return lists + list_place(row_tile, head); }

  /// Where a sequence has its words; null: it has none.
  __device__ __forceinline__ const uint32_t* mask(int sequence) const {
    if (mask_indptr == nullptr) return nullptr;
    const int first = __ldg(mask_indptr + sequence);
    if (__ldg(mask_indptr + sequence + 1) == first) return nullptr;
    return masks + first - (masks_of_call ? __ldg(mask_indptr) : 0);
  }
};

/// Of attention in two parts (prefill_lists.cuh): the near one first, which leaves what the far one adds to.
struct Parts {
  int stride = 0;         // of the far part's rows (RowOrder); 0: rows are as they come
  float* logs = nullptr;  // [rows of the call][kv_heads * group] base-2 logarithms of the near part's sums

  __device__ __forceinline__ bool are_far() const { return stride > 0; }
};

/// What rows make of splits of their lists, to be merged (prefill_splits.cuh).
struct Splits {
  int count = 1;                 // of a list
  int rows = 0;                  // that there is room for in a split: the tables may hold fewer
  __nv_bfloat16* out = nullptr;  // [count][rows][kv_heads * group][Dim]
  float* logs = nullptr;         // [count][rows][kv_heads * group] base-2 logarithms of sums; -inf: of nothing
};

/// The places of a sequence's rows in the works: as they come, or eight neighbours beside those that lie a stride, two, three ...
/// further, which see much of the same distant tokens.
struct RowOrder {
  int rows;
  int stride;
  int strides;  // that the rows reach over; 1: they are as they come

  /// `stride` 0: as they come, as are too few rows.
  __device__ __forceinline__ RowOrder(int rows, int stride)
      : rows(rows), stride(stride), strides(stride > 0 && rows / kFewestStrides >= stride ? (rows + stride - 1) / stride : 1) {}

  /// Places, some of which have no row.
  __device__ __forceinline__ int places() const { return strides == 1 ? rows : strides * ((stride + 7) / 8 * 8); }
  /// The row at a place; `rows` or more where there is none.
  __device__ __forceinline__ int row(int place) const {
    if (strides == 1) return place;
    const int eight = place / (8 * strides);
    const int of_eights = place - eight * 8 * strides;
    const int residue = 8 * eight + of_eights % 8;
    return residue < stride ? of_eights / 8 * stride + residue : rows;
  }
};

struct Arguments {
  const int32_t* query_indptr;
  const int32_t* lengths;
  const int32_t* page_indptr;
  const int32_t* page_indices;
  int first_page;  // of page_indptr that page_indices begins with
  const __nv_bfloat16* q;
  __nv_bfloat16* out;
  unsigned* taken;  // works, of those that blocks do not begin with
  int64_t q_stride;
  int64_t out_stride;
  int sequences;
  int kv_heads;
  int group;
  Divisor by_group;
  int page;
  float scale;  // of q . k, in base 2
};
/// Of rows that do not follow each other, or have masks.
struct ListedArguments : Arguments {
  Sights sights;

  /// The row of a place in a sequence.
  __device__ __forceinline__ int row_at(int /*sequence*/, int place) const { return place; }
};
/// Of such rows in two parts.
struct PartArguments : ListedArguments {
  Parts parts;

  /// `rows of the sequence` or more where there is no row.
  __device__ __forceinline__ int row_at(int sequence, int place) const {
    return parts.are_far() ? RowOrder(rows_of(sequence), parts.stride).row(place) : place;
  }
  __device__ __forceinline__ int rows_of(int sequence) const {
    return __ldg(query_indptr + sequence + 1) - __ldg(query_indptr + sequence);
  }
};

/// Of rows whose lists are split, since there are fewer tiles of rows than multiprocessors take.
struct SplitArguments : ListedArguments {
  Splits splits;
};

/// Of calls.
enum class Kind : uint8_t {
  kDense,   // rows follow each other and see all up to themselves
  kListed,  // lists say which tiles of tokens a tile of rows has
  kSplit,   // the same, by splits of the lists
  kNear,    // the first of two parts
  kFar,     // the second
};
template <Kind kKind>
struct ArgumentsOfKind {
  using Type = PartArguments;
};
template <>
struct ArgumentsOfKind<Kind::kDense> {
  using Type = Arguments;
};
template <>
struct ArgumentsOfKind<Kind::kListed> {
  using Type = ListedArguments;
};
template <>
struct ArgumentsOfKind<Kind::kSplit> {
  using Type = SplitArguments;
};
template <Kind kKind>
using ArgumentsOf = typename ArgumentsOfKind<kKind>::Type;

/// A piece of work. Pairs (row, head of the group) of a sequence are numbered with the heads side by side.
struct Work {
  int sequence = -1;  // none
  int head = 0;       // of K and V
  int pair = 0;       // the first
  int pairs = 0;
  int query = 0;     // row of pair 0
  int place = 0;     // tokens before the first row's own; with lists the number of that tile of rows, all sequences together
  int length = 0;    // tokens that rows of the sequence may see
  int tiles = 0;     // of tokens: those up to the last that a pair sees, or those of a list
  Entry entries[2];  // the first of a list
};
/// The tiles of a split of a list.
struct SplitWork : Work {
  int split = 0;
  int first = 0;  // entry of the list

  /// Of a list of `all` tiles. There are none where the others have them all.
  __device__ __forceinline__ void take_split(int all, int splits) {
    const int most = (all + splits - 1) / splits;
    first = split * most;
    tiles = min(most, all - first);
  }
};
/// Where a pair of a split lies among those of all: a row of the call, of a head of Q.
__device__ __forceinline__ int64_t place_of(const SplitArguments& a, const SplitWork& work, int pair) {
  const int row = work.query + a.by_group.quotient(pair) - __ldg(a.query_indptr);
  const int head = work.head * a.group + a.by_group.remainder(pair);
  return (int64_t{work.split} * a.splits.rows + row) * (a.kv_heads * a.group) + head;
}

template <Kind kKind>
using WorkOf = std::conditional_t<kKind == Kind::kSplit, SplitWork, Work>;

/// The works of a sequence, and the sum of those of the lanes up to this one. `rows` are the places of its rows.
struct LaneWorks {
  int query, rows, length, tiles, sum;

  template <class AnyArguments>
  __device__ __forceinline__ LaneWorks(const AnyArguments& a, int base) {
    const int lane = threadIdx.x % 32;
    const int s = base + lane;
    const bool valid = s < a.sequences;
    query = valid ? __ldg(a.query_indptr + s) : 0;
    rows = valid ? __ldg(a.query_indptr + s + 1) - query : 0;
    length = valid ? __ldg(a.lengths + s) : 0;
    if constexpr (std::is_same_v<AnyArguments, PartArguments>) {
      // Without masks all is near.
      if (valid && a.parts.are_far()) rows = a.sights.mask(s) == nullptr ? 0 : RowOrder(rows, a.parts.stride).places();
    }
    tiles = (rows * a.group + kTileRows - 1) / kTileRows;
    sum = tiles * a.kv_heads;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffU, sum, step);
      if (lane >= step) sum += other;
    }
  }
};

template <class AnyArguments>
__device__ int count_works(const AnyArguments& a) {
  int works = 0;
  for (int base = 0; base < a.sequences; base += 32) works += __shfl_sync(0xffffffffU, LaneWorks(a, base).sum, 31);
  return works;
}

/// Work number `number`, found by a whole warp. Sequences lie end to end; in one, first the heads whose K and V the cache holds
/// together; in those, the last rows, which see the most tokens, first. Where there are lists, they tell its tiles of tokens.
/// Splits of a list follow each other, and those of all heads: few works are even only if the longest come first.
template <int Dim, Kind kKind>
__device__ WorkOf<kKind> find_work(const ArgumentsOf<kKind>& a, int number) {
  [[maybe_unused]] int split = 0;
  if constexpr (kKind == Kind::kSplit) {
    split = number % a.splits.count;
    number /= a.splits.count;
  }
  [[maybe_unused]] const int asked = number;
  for (int base = 0; base < a.sequences; base += 32) {
    const LaneWorks lane(a, base);
    const unsigned after = __ballot_sync(0xffffffffU, number < lane.sum);
    if (after == 0) {
      number -= __shfl_sync(0xffffffffU, lane.sum, 31);
      continue;
    }
    const int owner = __ffs(static_cast<int>(after)) - 1;
    number -= __shfl_sync(0xffffffffU, lane.sum - lane.tiles * a.kv_heads, owner);
    [[maybe_unused]] const int of_sequence = number;
    const int rows = __shfl_sync(0xffffffffU, lane.rows, owner);
    const int tiles = __shfl_sync(0xffffffffU, lane.tiles, owner);
    WorkOf<kKind> work;
    if constexpr (kKind == Kind::kSplit) work.split = split;
    work.sequence = base + owner;
    work.query = __shfl_sync(0xffffffffU, lane.query, owner);
    work.length = __shfl_sync(0xffffffffU, lane.length, owner);
    work.place = max(0, work.length - rows);
    const float fit = kCacheBytes / (4.0f * Dim * static_cast<float>(max(1, work.length)));
    const int together = kKind == Kind::kSplit ? a.kv_heads : min(a.kv_heads, max(1, static_cast<int>(fit)));
    const int section = number / (tiles * together);
    const int heads = min(together, a.kv_heads - section * together);
    number -= section * tiles * together;
    work.head = section * together + number % heads;
    work.pair = (tiles - 1 - number / heads) * kTileRows;
    work.pairs = min(kTileRows, rows * a.group - work.pair);
    if constexpr (kKind != Kind::kDense) {
      work.place = (asked - of_sequence) / a.kv_heads + work.pair / kTileRows;
    } else {
      work.tiles = (work.place + a.by_group.quotient(work.pair + work.pairs - 1)) / Shape<Dim>::kTokens + 1;
    }
    return work;
  }
  return {};
}

}  // namespace sluice::cuda::prefill
