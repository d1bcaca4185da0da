#include "kernels/cuda/attention/prefill_attention.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "kernels/cuda/attention/prefill_copies.cuh"
#include "kernels/cuda/attention/prefill_lists.cuh"
#include "kernels/cuda/attention/prefill_rows.cuh"
#include "kernels/cuda/attention/prefill_splits.cuh"
#include "kernels/cuda/attention/prefill_widen.cuh"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

using namespace prefill;

/// Where the output of a thread's rows goes, and the logarithms of their sums.
template <int Dim>
struct Ends {
  __nv_bfloat16* rows[2];  // null: there is no row
  float* logs[2];

  __device__ __forceinline__ Ends(const PartArguments& a, const Work& work, int row) {
    for (int half = 0; half < 2; ++half) {
      const int pair = work.pair + row + 8 * half;
      const int own = a.row_at(work.sequence, a.by_group.quotient(pair));
      const bool is_there = row + 8 * half < work.pairs && (!a.parts.are_far() || own < a.rows_of(work.sequence));
      const int head = work.head * a.group + a.by_group.remainder(pair);
      rows[half] = is_there ? a.out + (work.query + own) * a.out_stride + head * Dim : nullptr;
      const int64_t of_call = work.query + own - __ldg(a.query_indptr);
      logs[half] = is_there ? a.parts.logs + of_call * (a.kv_heads * a.group) + head : nullptr;
    }
  }
};

/// Of the far part: what the near one has left for a thread's rows. Where a row sees nothing far, its end becomes null: what is
/// there stays.
template <int Dim>
struct NearRows {
  typename Rows<Dim>::Others first;
  typename Rows<Dim>::Others second;
  float logs[2];

  __device__ __forceinline__ NearRows(const Rows<Dim>& rows, Ends<Dim>& ends, float scale)
      : first(of(rows, 0, ends, scale)), second(of(rows, 1, ends, scale)) {
    for (int half = 0; half < 2; ++half) logs[half] = ends.rows[half] == nullptr ? 0 : __ldg(ends.logs[half]);
  }

 private:
  static __device__ __forceinline__ const __nv_bfloat16* of(const Rows<Dim>& rows, int half, Ends<Dim>& ends, float scale) {
    if (rows.log_of_sum(half, scale) == -INFINITY) ends.rows[half] = nullptr;
    return ends.rows[half];
  }
};

/// Writes a thread's rows: those of the near part with the logarithms of their sums, those of the far one with what the near one
/// has left.
template <int Dim, Kind kKind>
__device__ __forceinline__ void finish(const PartArguments& a, const Work& work, int row, Rows<Dim>& rows) {
  Ends<Dim> ends(a, work, row);
  if constexpr (kKind == Kind::kFar) {
    const NearRows<Dim> near(rows, ends, a.scale);
    rows.store_with(0, ends.rows[0], near.first, near.logs[0], a.scale);
    rows.store_with(1, ends.rows[1], near.second, near.logs[1], a.scale);
  } else {
    for (int half = 0; half < 2; ++half) {
      const float log = rows.log_of_sum(half, a.scale);
      if (ends.rows[half] != nullptr && threadIdx.x % 4 == 0) *ends.logs[half] = log;
      rows.store(half, ends.rows[half], true);
    }
  }
}

/// Writes what a thread's rows make of a split.
template <int Dim>
__device__ __forceinline__ void finish_split(const SplitArguments& a, const SplitWork& work, int row, Rows<Dim>& rows) {
  for (int half = 0; half < 2; ++half) {
    const bool is_there = row + 8 * half < work.pairs;
    const int64_t place = place_of(a, work, work.pair + row + 8 * half);
    const float log = rows.log_of_sum(half, a.scale);
    if (is_there && threadIdx.x % 4 == 0) a.splits.logs[place] = log;
    rows.store(half, is_there ? a.splits.out + place * Dim : nullptr, true);
  }
}

/// A warpgroup's rows of one work after the other.
template <int Dim, Kind kKind>
__device__ void attend(const ArgumentsOf<kKind>& a, const Places<Dim, kKind>& places) {
  using S = Shape<Dim>;
  constexpr bool kListed = kKind != Kind::kDense;
  using MaskedSight = std::conditional_t<kListed, SeesMasked<S::kTokens>, SeesUpTo>;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;
  const int lane = threadIdx.x % 32;
  const int first = warpgroup * kGroupRows;
  const uint32_t query = places.query + first * 128;
  Turn<S::kStages> key_turn;
  Turn<S::kStages> value_turn;
  Turn<2> work_turn;
  const auto release = [&](int value, int stage) {
    if (lane == 0) barrier_arrive(places.emptied(value, stage));
  };

  WorkOf<kKind> work = take_work(places, work_turn);
  if (work.sequence >= 0) ask_queries<Dim, kKind>(a, work, query, first);
  while (work.sequence >= 0) {
    int row[2];  // this thread's among the work's
    for (int half = 0; half < 2; ++half) row[half] = first + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4 + 8 * half;
    const auto tokens_seen = [&](int pair) {
      return work.place + a.by_group.quotient(work.pair + min(pair, work.pairs - 1)) + 1;
    };
    [[maybe_unused]] const int32_t* entries = nullptr;  // of the work's tiles
    [[maybe_unused]] const uint32_t* seen = nullptr;    // what the thread's first row sees of tiles
    [[maybe_unused]] int limits[2] = {0, 0};
    if constexpr (kListed) {
      const int32_t* const list = a.sights.list(work.place, work.head);
      entries = entries_of<kKind>(list, work);
      seen = reinterpret_cast<const uint32_t*>(list + a.sights.seen_place) + row[0] * (S::kTokens / 32);
    } else {
      for (int half = 0; half < 2; ++half) limits[half] = tokens_seen(row[half]);
    }
    // Of a tile, which a list names by its entry.
    using Tile = std::conditional_t<kListed, Entry, int>;
    const auto sight_of = [&](Tile tile) -> MaskedSight {
      if constexpr (kListed) {
        return MaskedSight(a, work, row[0], seen, tile);
      } else {
        return MaskedSight(limits, tile * S::kTokens);
      }
    };
    Rows<Dim> rows;
    const auto step = [&](Tile tile, auto masked) {
      [[maybe_unused]] const auto words = [&] {
        if constexpr (kListed && decltype(masked)::value) {
          return sight_of(tile);
        } else {
          return SeesAll{};
        }
      }();
      barrier_wait(places.filled(0, key_turn.stage), key_turn.parity);
      rows.ask_scores(query, places.slot(0, key_turn.stage));
      barrier_wait(places.filled(1, value_turn.stage), value_turn.parity);
      rows.ask_output(places.slot(1, value_turn.stage));
      products_wait<1>();
      rows.pin_scores();
      release(0, key_turn.stage);
      key_turn.next();
      if constexpr (!kListed && decltype(masked)::value) {
        rows.soften(a.scale, sight_of(tile));
      } else {
        rows.soften(a.scale, words.taken());
      }
      products_wait<0>();
      rows.pin_output();
      release(1, value_turn.stage);
      value_turn.next();
      rows.rescale_output();
      rows.take_weights();
    };

    Tile tile(0);
    [[maybe_unused]] int whole_tiles = 0;
    if constexpr (kListed) {
      tile = work.entries[0];
    } else {
      whole_tiles = tokens_seen(first) / S::kTokens;
    }
    [[maybe_unused]] const auto first_words = [&] {
      if constexpr (kListed) {
        return sight_of(tile);
      } else {
        return SeesAll{};
      }
    }();
    asm volatile("cp.async.wait_all;\n fence.proxy.async.shared::cta;" ::: "memory");
    warpgroup_sync(1 + warpgroup);
    barrier_wait(places.filled(0, key_turn.stage), key_turn.parity);
    rows.ask_scores(query, places.slot(0, key_turn.stage));
    products_wait<0>();
    rows.pin_scores();
    release(0, key_turn.stage);
    key_turn.next();
    if constexpr (kListed) {
      rows.soften(a.scale, first_words.taken());
    } else {
      rows.soften(a.scale, sight_of(tile));
    }
    rows.take_weights();

    if constexpr (kListed) {
      const auto entry_at = [&](int number) { return Entry(__ldg(entries + min(number, work.tiles - 1))); };
      int number = 1;
      Entry entry = work.entries[1];
      const auto run = [&](auto masked) {
        while (number < work.tiles && entry.is_partial(warpgroup) == decltype(masked)::value) {
          tile = entry;
          entry = entry_at(++number);
          step(tile, masked);
        }
      };
      while (number < work.tiles) {
        run(std::false_type{});
        run(std::true_type{});
      }
    } else {
      for (tile = 1; tile < min(whole_tiles, work.tiles); ++tile) step(tile, std::false_type{});
      for (; tile < work.tiles; ++tile) step(tile, std::true_type{});
      tile = work.tiles - 1;
    }

    // All scores are there: the next queries may take the place of these.
    warpgroup_sync(1 + warpgroup);
    const WorkOf<kKind> next = take_work(places, work_turn);
    if (next.sequence >= 0) ask_queries<Dim, kKind>(a, next, query, first);
    barrier_wait(places.filled(1, value_turn.stage), value_turn.parity);
    const uint32_t values = places.slot(1, value_turn.stage);
    int left = work.length;  // tokens of the last tile
    if constexpr (kListed) {
      if (!tile.is_gathered()) left -= tile.tile() * S::kTokens;  // those that are gathered lie before the last
    } else {
      left -= tile * S::kTokens;
    }
    if (left < S::kTokens) {
      clear_values<Dim>(values, left);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      warpgroup_sync(1 + warpgroup);
    }
    rows.ask_output(values);
    products_wait<0>();
    rows.pin_output();
    release(1, value_turn.stage);
    value_turn.next();
    if constexpr (kKind == Kind::kNear || kKind == Kind::kFar) {
      finish<Dim, kKind>(a, work, row[0], rows);
    } else if constexpr (kKind == Kind::kSplit) {
      finish_split<Dim>(a, work, row[0], rows);
    } else {
      for (int half = 0; half < 2; ++half) {
        const int pair = work.pair + row[half];
        const int64_t at =
            (work.query + a.by_group.quotient(pair)) * a.out_stride + (work.head * a.group + a.by_group.remainder(pair)) * Dim;
        rows.store(half, row[half] < work.pairs ? a.out + at : nullptr, kListed);
      }
    }
    work = next;
  }
}

template <int Dim, Kind kKind>
__global__ void __launch_bounds__(kThreads, 1)
    prefill_kernel(const __grid_constant__ CUtensorMap map, const ArgumentsOf<kKind> a) {
  using S = Shape<Dim>;
  extern __shared__ std::byte raw[];
  const uint32_t padding = (1024 - shared_address(raw) % 1024) % 1024;
  const uint32_t query = shared_address(raw) + padding;
  const uint32_t slots = query + S::kQueryBytes;
  const uint32_t barriers = slots + 2 * S::kStages * S::kSlotBytes;
  constexpr int kBarriersBytes = (4 * S::kStages + 4) * 8;
  static_assert(kBarriersBytes + 2 * sizeof(WorkOf<kKind>) <= 256);
  const Places<Dim, kKind> places{query, slots, barriers,
                                  reinterpret_cast<WorkOf<kKind>*>(raw + (barriers + kBarriersBytes - shared_address(raw)))};
  if (threadIdx.x == 0) {
    prefetch_map(&map);
    for (int stage = 0; stage < S::kStages; ++stage) {
      for (int value = 0; value < 2; ++value) {
        barrier_init(places.filled(value, stage), 1);
        barrier_init(places.emptied(value, stage), 8);  // warps that multiply
      }
    }
    for (int stage = 0; stage < 2; ++stage) {
      barrier_init(places.work_filled(stage), 1);
      barrier_init(places.work_emptied(stage), 9);  // those and the one that copies V
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    const int warp = __shfl_sync(0xffffffffU, threadIdx.x / 32, 0);
    if (warp == 0) {
      copy_keys<Dim, kKind>(&map, a, places);
    } else if (warp == 1) {
      copy_values<Dim, kKind>(&map, a, places);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    attend<Dim, kKind>(a, places);
  }
}

template <int Dim, Kind kKind>
void launch(const CUtensorMap& map, const ArgumentsOf<kKind>& a, int blocks, Stream stream) {
  constexpr size_t kBytes = Shape<Dim>::kSharedBytes;
  static_assert(kBytes <= 227 * 1024);
  auto* const kernel = prefill_kernel<Dim, kKind>;
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)));
  kernel<<<blocks, kThreads, kBytes, stream>>>(map, a);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

template <Kind kKind>
void launch(int dim, const CUtensorMap& map, const ArgumentsOf<kKind>& a, int blocks, Stream stream) {
  switch (dim) {
    case 64:
      return launch<64, kKind>(map, a, blocks, stream);
    case 128:
      return launch<128, kKind>(map, a, blocks, stream);
    default:
      return launch<256, kKind>(map, a, blocks, stream);
  }
}

/// Of lists that are split. Logarithms lie behind the rows.
void attend_splits(int dim, const CUtensorMap& map, SplitArguments a, int blocks, Stream stream) {
  a.splits.logs = reinterpret_cast<float*>(a.splits.out + int64_t{a.splits.count} * a.splits.rows * a.kv_heads * a.group * dim);
  launch<Kind::kSplit>(dim, map, a, blocks, stream);
  switch (dim) {
    case 64:
      return merge_splits<64>(a, stream);
    case 128:
      return merge_splits<128>(a, stream);
    default:
      return merge_splits<256>(a, stream);
  }
}

/// Bytes of a list of pages, so that what follows is aligned for tensor copies.
size_t page_list_bytes(int pages) { return (static_cast<size_t>(pages) * sizeof(int32_t) + 255) / 256 * 256; }

}  // namespace

PrefillAttention::PrefillAttention(const PagedKv& kv)
    : kv_(kv),
      widened_(page_layout({kv.layout.head_dim, 1, kv.layout.page, DataType::kBF16}, {})),
      blocks_(multiprocessors()),
      taken_(sizeof(unsigned)),
      map_(map_blocks(kv, prefill::kBoxTokens, false)) {
  taken_.clear();
}

size_t PrefillAttention::widened_bytes(int pages) const {
  return widens() ? page_list_bytes(pages) + static_cast<size_t>(pages) * kv_.kv_heads * widened_.bytes : 0;
}

size_t PrefillAttention::workspace_bytes(const PrefillShape& shape, const PrefillTables& tables) const {
  const size_t logs = static_cast<size_t>(shape.rows) * kv_.kv_heads * shape.group * sizeof(float);
  const int dim = kv_.layout.head_dim;
  const int splits = splits_of(shape, tables, dim, kv_.kv_heads, blocks_);
  return widened_bytes(shape.pages) + (has_two_parts(shape, tables) ? logs : 0) +
         (splits > 1 ? splits * split_bytes(shape, dim, kv_.kv_heads) : 0);
}

const int32_t* PrefillAttention::widen(const PrefillShape& shape, const PrefillTables& tables, void* workspace,
                                       Stream stream) const {
  auto* const positions = static_cast<int32_t*>(workspace);
  const WidenArguments a{.base = kv_.base,
                         .block_bytes = kv_.layout.bytes,
                         .key_offset = kv_.layout.key_offset,
                         .value_offset = kv_.layout.value_offset,
                         .pages = tables.page_indices + shape.first_page,
                         .kv_heads = kv_.kv_heads,
                         .numbers = kv_.layout.page * kv_.layout.head_dim,
                         .widened = static_cast<std::byte*>(workspace) + page_list_bytes(shape.pages),
                         .widened_bytes = widened_.bytes,
                         .widened_value = widened_.value_offset,
                         .positions = positions};
  constexpr int kWidenThreads = 256;
  const dim3 grid(shape.pages, kv_.kv_heads);
  if (kv_.layout.kv == DataType::kE4M3) {
    widen_kernel<DataType::kE4M3><<<grid, kWidenThreads, 0, stream>>>(a);
  } else {
    widen_kernel<DataType::kE5M2><<<grid, kWidenThreads, 0, stream>>>(a);
  }
  SLUICE_CHECK_CUDA(cudaGetLastError());
  return positions;
}

void PrefillAttention::run(const PrefillShape& shape, const PrefillTables& tables, HeadRows<const void> q, HeadRows<void> out,
                           void* workspace, Stream stream) const {
  if (shape.group < 1 || shape.group > 16) throw InternalError("a group of " + std::to_string(shape.group) + " query heads");
  if (q.stride % 8 != 0 || out.stride % 8 != 0) throw InternalError("rows of Q and of the output must lie 16 bytes apart");
  if ((tables.slots != nullptr) != (tables.lists != nullptr)) throw InternalError("rows with slots need lists of tiles");
  if (shape.sequences == 0 || shape.rows == 0) return;
  const int32_t* pages = tables.page_indices;
  TensorMap map = map_;
  if (widens()) {
    if (shape.pages < 1) throw InternalError("prefill over 8-bit K and V was not told of its pages");
    pages = widen(shape, tables, workspace, stream);
    const std::byte* blocks = static_cast<const std::byte*>(workspace) + page_list_bytes(shape.pages);
    map = map_blocks({blocks, widened_, shape.pages, kv_.kv_heads}, prefill::kBoxTokens, false);
  }
  PartArguments a{{{.query_indptr = tables.query_indptr,
                    .lengths = tables.lengths,
                    .page_indptr = tables.page_indptr,
                    .page_indices = pages,
                    .first_page = widens() ? shape.first_page : 0,
                    .q = static_cast<const __nv_bfloat16*>(q.data),
                    .out = static_cast<__nv_bfloat16*>(out.data),
                    .taken = taken_.as<unsigned>(),
                    .q_stride = q.stride,
                    .out_stride = out.stride,
                    .sequences = shape.sequences,
                    .kv_heads = kv_.kv_heads,
                    .group = shape.group,
                    .by_group = Divisor(shape.group),
                    .page = kv_.layout.page,
                    .scale = shape.scale * kLog2E},
                   sights_of(shape, tables, kv_.layout.head_dim)},
                  {}};
  const CUtensorMap cuda_map = to_cuda(map);
  const int dim = kv_.layout.head_dim;
  const auto blocks_for = [&](int64_t tiles) { return static_cast<int>(std::min<int64_t>(blocks_, tiles * kv_.kv_heads)); };
  const int blocks = blocks_for(most_row_tiles(shape));
  if (tables.lists == nullptr) return launch<Kind::kDense>(dim, cuda_map, a, blocks, stream);
  std::byte* const rest = static_cast<std::byte*>(workspace) + widened_bytes(shape.pages);
  const int splits = splits_of(shape, tables, dim, kv_.kv_heads, blocks_);
  if (splits > 1) {
    const SplitArguments split{a, {splits, shape.rows, reinterpret_cast<__nv_bfloat16*>(rest), nullptr}};
    return attend_splits(dim, cuda_map, split, blocks_for(most_row_tiles(shape) * splits), stream);
  }
  if (!has_two_parts(shape, tables)) return launch<Kind::kListed>(dim, cuda_map, a, blocks, stream);
  a.parts.logs = reinterpret_cast<float*>(rest);
  launch<Kind::kNear>(dim, cuda_map, a, blocks, stream);
  a.sights = far_sights_of(shape, tables, dim, tables.lists);
  a.parts.stride = tables.stride;
  launch<Kind::kFar>(dim, cuda_map, a, blocks_for(most_far_tiles(shape, tables.stride)), stream);
}

}  // namespace sluice::cuda
