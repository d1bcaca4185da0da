// What the kernel shares that takes rows from scores to attention without a word to device memory in between. A block has several
// rows. Most of its warps, the attenders, read memory without a pause: fields of the pages of all its rows, row by row, then K
// and V of the selected pages of all its rows. The others, the selectors, split the queries of a row before it is scored, and
// select from it while the next ones are. Text behind that of row_selection.cuh and of the decode_*.cuh files.

namespace sluice::cuda {

using Selectors = PartOfBlock<2, kSelectorThreads>;  // the first threads of a block
using Attenders = PartOfBlock<3, kAttenderThreads>;  // those behind them

/// How selectors and attenders of a block wait for each other: barriers of each row.
struct RowSignals {
  static constexpr int kBarriers = 2 * kMostOwnRows;

  uint32_t barriers;
  uint32_t listed;  // shared address of the number of rows whose lists are there

  /// By one thread, before a barrier of the block.
  __device__ __forceinline__ void begin() const {
#pragma unroll
    for (int own = 0; own < kMostOwnRows; ++own) {
      barrier_init(queries(own), 1);
      barrier_init(scores(own), kAttenderThreads / 32);
    }
    asm volatile("st.shared.u32 [%0], 0;" ::"r"(listed) : "memory");
  }

  /// The queries of a row are there: by one selector behind a barrier of all of them.
  __device__ __forceinline__ void give_queries(int own) const { barrier_arrive(queries(own)); }
  __device__ __forceinline__ void wait_for_queries(int own) const { barrier_wait(queries(own), 0); }
  /// All scores of a row that a warp computes are there: by one lane, behind a barrier of the warp.
  __device__ __forceinline__ void give_scores(int own) const { barrier_arrive(scores(own)); }
  __device__ __forceinline__ void wait_for_scores(int own) const { barrier_wait(scores(own), 0); }
  /// The lists of so many rows are there: by one selector behind a barrier of all of them.
  __device__ __forceinline__ void give_lists(int rows) const {
    asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(listed), "r"(rows) : "memory");
  }
  /// Rows whose lists are there; the same for all lanes of a warp.
  __device__ __forceinline__ int lists() const {
    int there;
    asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(there) : "r"(listed) : "memory");
    there = __shfl_sync(~0U, there, 0);
    __syncwarp();  // what lane 0 has seen, all see
    return there;
  }
  __device__ __forceinline__ void wait_for_lists(int rows) const {
    while (lists() < rows) {
    }
  }

 private:
  __device__ __forceinline__ uint32_t queries(int own) const { return barriers + 16 * own; }
  __device__ __forceinline__ uint32_t scores(int own) const { return barriers + 16 * own + 8; }
};

/// The rows of a block: some KV heads of one sequence, which have the same pages.
struct OwnRows {
  int count;
  int sequence;
  int head;  // the first

  // After `look_up`:
  int length;
  int pages;

  // In shared memory:
  int* ids;     // [pages] in the pool: of the pages with fields, where these are others than those with K and V
  int* lists;   // [count][room] those that each row selects
  int* tokens;  // [count] in them
  int room;

  /// Asks for what `look_up` waits for.
  __device__ __forceinline__ OwnRows(const FlowArguments& a, const AttentionArguments& attention)
      : count(attention.own_rows),
        sequence(static_cast<int>(blockIdx.y)),
        head(static_cast<int>(blockIdx.x) * count),
        length(load_kept(a.lengths + sequence)),
        room(attention.list_room),
        first_id_(load_kept((kFieldPages ? a.field_indptr : a.page_indptr) + sequence)),
        token_ids_(kFieldPages ? a.page_indices + load_kept(a.page_indptr + sequence) : nullptr) {}

  /// Looks the pages up, so that nobody who comes to them waits for device memory: nothing is copied before, which takes two such
  /// waits. By the block, whose barrier is to follow.
  __device__ __forceinline__ void look_up(const FlowArguments& a, int page_tokens) {
    length = min(max(length, 0), a.most_pages * page_tokens);
    pages = (length + page_tokens - 1) / page_tokens;
    const int* const from = (kFieldPages ? a.field_indices : a.page_indices) + first_id_;
    constexpr int kAtOnce = 4;  // of a thread
#pragma unroll 1
    for (int begin = threadIdx.x; begin < pages; begin += kAtOnce * kAttendingThreads) {
      int some[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) some[i] = load_kept(from + min(begin + i * kAttendingThreads, pages - 1));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i * kAttendingThreads < pages) ids[begin + i * kAttendingThreads] = some[i];
      }
    }
  }
  /// Pages that are scored: all but the newest.
  __device__ __forceinline__ int scored() const { return max(0, pages - 1); }
  /// Of the pages with K and V, and with fields (null: of the same).
  __device__ __forceinline__ const int* token_ids() const { return kFieldPages ? token_ids_ : ids; }
  __device__ __forceinline__ const int* field_ids() const { return kFieldPages ? ids : nullptr; }

 private:
  int first_id_;
  const int* token_ids_;
};

/// Copies the queries of all rows to shared memory at once: kNumbers of each, `stride` apart. By the selectors, whose barrier is
/// to follow.
template <int kNumbers>
__device__ __forceinline__ void copy_queries(const Row& first, int rows, float* to, int stride) {
  constexpr int kAtOnce = 8;  // of a thread, which device memory takes as long for as for one
#pragma unroll 1
  for (int begin = threadIdx.x; begin < rows * kNumbers; begin += kAtOnce * kSelectorThreads) {
    float numbers[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) numbers[i] = first.query(min(begin + i * kSelectorThreads, rows * kNumbers - 1));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = begin + i * kSelectorThreads;
      if (at < rows * kNumbers) to[at / kNumbers * stride + at % kNumbers] = numbers[i];
    }
  }
}

/// The tile of pages to be scored that a warp asks for next: every kWarps-th of those of all rows, laid end to end.
template <int kTilePages, int kWarps>
class UpcomingTile {
 public:
  __device__ __forceinline__ UpcomingTile(const FlowArguments& a, const OwnRows& rows, int warp)
      : rows_(rows),
        tile_(warp),
        left_(rows.count),
        blocks_(kFieldPages ? a.fields + rows.head * a.field_block_bytes : a.pages + rows.head * a.block_bytes) {
    find(a);
  }
  __device__ __forceinline__ bool exists() const { return left_ > 0; }
  __device__ __forceinline__ void next(const FlowArguments& a) {
    tile_ += kWarps;
    find(a);
  }
  __device__ __forceinline__ int pages() const { return min(kTilePages, rows_.scored() - tile_ * kTilePages); }
  /// The block of the tile's page `i`, where fields lie.
  __device__ __forceinline__ const uint8_t* block(const FlowArguments& a, int i) const {
    const auto id = static_cast<uint32_t>(rows_.ids[tile_ * kTilePages + i]);
    return blocks_ + static_cast<uint64_t>(static_cast<uint32_t>(kFieldPages ? a.field_page_stride : a.page_stride)) * id;
  }
  /// And where K and V lie, if that is elsewhere.
  __device__ __forceinline__ const uint8_t* token_block(const FlowArguments& a, int i) const {
    const auto id = static_cast<uint32_t>(rows_.token_ids()[tile_ * kTilePages + i]);
    return a.pages + (rows_.head + rows_.count - left_) * a.block_bytes +
           static_cast<uint64_t>(static_cast<uint32_t>(a.page_stride)) * id;
  }

 private:
  __device__ __forceinline__ void find(const FlowArguments& a) {
    const int tiles = (rows_.scored() + kTilePages - 1) / kTilePages;
    while (left_ > 0 && tile_ >= tiles) {
      tile_ -= tiles;
      --left_;
      blocks_ += kFieldPages ? a.field_block_bytes : a.block_bytes;
    }
  }

  const OwnRows& rows_;
  int tile_;
  int left_;  // rows, this one included
  const uint8_t* blocks_;
};

/// Copies tile number `tile` of the listed pages of a KV head, which hold so many tokens, to shared memory. By one lane.
template <class Tile, int kBox, int kPageTokens>
__device__ __forceinline__ void copy_listed_tile(const FlowArguments& a, const AttentionArguments& attention, const int* list,
                                                 int tokens, int head, int tile, uint32_t target, uint32_t barrier) {
  constexpr int kBoxes = decode::kTileTokens / kBox;
  constexpr int kPageBoxes = kPageTokens / kBox;
  const int last_box = (tokens - 1) / kBox;
  barrier_expect(barrier, Tile::kTileBytes);
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    // Past the end: the last one once more, since its scores are masked.
    const int at = min(tile * kBoxes + box, last_box);
    decode::copy_box(attention.map, target + box * (Tile::kTileBytes / kBoxes), barrier, at % kPageBoxes * kBox,
                     list[at / kPageBoxes] * a.kv_heads + head);
  }
}

/// Tiles of K and V as they come to a warp's ring: every kWarps-th of a row, or of several laid end to end.
template <class Tile>
class ComingTiles {
 public:
  /// From tile `first` on; `ring` has slots whose barriers are `filled`.
  __device__ __forceinline__ ComingTiles(int first, uint8_t* ring, uint32_t filled)
      : tile_(first), ring_(ring), filled_(filled) {}

  /// Attends to those before `end`, of a row of so many tokens. copy(slot) asks for what comes there next, if anything does.
  template <class AttendedRow, class Copy>
  __device__ __forceinline__ void attend(AttendedRow& mine, int end, int tokens, const Copy& copy) {
    for (; tile_ < end; tile_ += Tile::kWarps) {
      barrier_wait(filled_ + 8 * slot_.index, slot_.parity);
      const int left = tokens - tile_ * decode::kTileTokens;
      mine.attend(ring_ + slot_.index * Tile::kTileBytes, left);
      // The copy engine writes here next: after what this warp wrote, and after all its lanes have read.
      if (left < decode::kTileTokens) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      copy(slot_.index);
      slot_.next(Tile::kStages);
    }
  }
  /// Tiles are counted from the next row on, behind so many of the last one.
  __device__ __forceinline__ void pass(int tiles) { tile_ -= tiles; }

 private:
  int tile_;
  uint8_t* ring_;
  uint32_t filled_;
  Turn slot_;
};

/// Copies tiles of K and V of listed pages to a warp's ring: its share of those of all rows, laid end to end.
template <class Tile, int kBox, int kPageTokens>
class ListedTiles {
 public:
  __device__ __forceinline__ explicit ListedTiles(int warp) : tile_(warp) {}

  /// Asks for the next tile of the first `most` rows, whose lists it waits for; returns whether there was one. For all lanes of a
  /// warp that has given its scores of those rows, or knows that their lists are there.
  __device__ __forceinline__ bool copy(const FlowArguments& a, const AttentionArguments& attention, const OwnRows& rows,
                                       const RowSignals& signals, int most, uint32_t target, uint32_t barrier) {
    while (true) {
      if (own_ >= most) return false;
      if (own_ >= listed_) signals.wait_for_lists(listed_ = own_ + 1);
      const int tiles = decode::tiles_of(rows.tokens[own_]);
      if (tile_ < tiles) break;
      tile_ -= tiles;
      ++own_;
    }
    if (threadIdx.x % 32 == 0) {
      copy_listed_tile<Tile, kBox, kPageTokens>(a, attention, rows.lists + own_ * rows.room, rows.tokens[own_], rows.head + own_,
                                                tile_, target, barrier);
    }
    tile_ += Tile::kWarps;
    return true;
  }

 private:
  int own_ = 0;
  int tile_;
  int listed_ = 0;  // rows whose lists are known to be there
};

/// Writes the list of the pages that a row has selected, ascending, of which ids[] tells the places in the pool; returns their
/// number. By the first kThreads threads, whose barrier is to follow.
template <int kThreads>
__device__ __forceinline__ int write_ids(PageSet& set, const int* ids, int* list) {
  const int all = set.count();
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int word = threadIdx.x / 32; word < set.words(); word += kThreads / 32) {
    const uint32_t bits = set.word(word);
    const int at = set.rank_of_word(word) + __popc(bits & ((1U << lane) - 1));
    if ((bits >> lane & 1) != 0) list[at] = ids[32 * word + lane];
  }
  return all;
}

/// Tokens in so many selected pages of a row, the newest among them; adds the pages to the totals if `counts`.
__device__ __forceinline__ int count_selected(const Row& row, int selected, int page_tokens, bool counts) {
  const FlowArguments& a = row.arguments;
  if (counts && a.attended != nullptr) atomicAdd(a.attended, static_cast<unsigned long long>(selected));
  if (counts && a.available != nullptr) atomicAdd(a.available, static_cast<unsigned long long>(row.pages));
  return selected * page_tokens - (row.pages > 0 ? page_tokens - row.last_tokens : 0);
}

/// A warp's ring of shared memory, which holds tiles of fields until the last has been scored, and tiles of K and V from then on.
/// The latter come where all of the former have left.
template <class Tile, int kStages, int kStageBytes, int kBytes>
struct SharedRing {
  static_assert(kStages * kStageBytes <= kBytes && Tile::kStages * Tile::kTileBytes <= kBytes);
  static constexpr int kBarriers = kStages + Tile::kStages;

  uint32_t at;
  uint32_t barriers;
  uint32_t taken = 0;  // by tiles of fields: a bit for each stage

  __device__ __forceinline__ SharedRing(uint32_t rings, uint32_t all_barriers, int warp)
      : at(rings + warp * kBytes), barriers(all_barriers + warp * kBarriers * 8) {}
  /// Makes the barriers of so many warps: by one thread, before a barrier of the block.
  static __device__ __forceinline__ void begin(uint32_t all_barriers, int warps) {
#pragma unroll 1
    for (int warp = 0; warp < warps; ++warp) {
#pragma unroll
      for (int i = 0; i < kBarriers; ++i) barrier_init(all_barriers + (warp * kBarriers + i) * 8, i < kStages ? 32 : 1);
    }
    publish_barriers();
  }
  __device__ __forceinline__ uint32_t stage(int i) const { return at + i * kStageBytes; }
  __device__ __forceinline__ uint32_t stage_filled(int i) const { return barriers + 8 * i; }
  __device__ __forceinline__ uint32_t slot(int i) const { return at + i * Tile::kTileBytes; }
  __device__ __forceinline__ uint32_t slot_filled(int i) const { return barriers + 8 * (kStages + i); }
  /// Whether no tile of fields is in the way of a tile of K and V.
  __device__ __forceinline__ bool is_free(int slot) const {
    const int first = slot * Tile::kTileBytes / kStageBytes;
    const int last = ((slot + 1) * Tile::kTileBytes - 1) / kStageBytes;
    return (taken >> first & ((2U << (last - first)) - 1)) == 0;
  }
};

}  // namespace sluice::cuda
