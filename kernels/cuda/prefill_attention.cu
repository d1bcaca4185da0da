#include <cuda.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/wgmma.h"
#include "scripting/graph/error.h"

namespace sluice::cuda {
namespace {

constexpr int kTileRows = 128;  // (row, head of the group) pairs of a block, 64 for each warpgroup that multiplies
constexpr int kGroupRows = 64;
constexpr int kThreads = 384;            // the warpgroup that copies, then two that multiply
constexpr int kBoxTokens = 8;            // of a tensor copy
constexpr float kCacheBytes = 32 << 20;  // K and V that blocks share in the second-level cache
constexpr float kLog2E = 1.44269504088896341f;

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

struct Arguments {
  const int32_t* query_indptr;
  const int32_t* lengths;
  const int32_t* page_indptr;
  const int32_t* page_indices;
  const __nv_bfloat16* q;
  __nv_bfloat16* out;
  unsigned* taken;  // works, of those that blocks do not begin with
  int64_t q_stride;
  int64_t out_stride;
  int sequences;
  int kv_heads;
  int group;
  int page;
  float scale;  // of q . k, in base 2
};

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Copies K (V if `value`) of tokens [token, token + 8) of one block to shared memory.
__device__ __forceinline__ void copy_box(const CUtensorMap* map, uint32_t target, uint32_t barrier, int token, int value,
                                         int block) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %3, %5, %6}], [%2];" ::"r"(
          target),
      "l"(map), "r"(barrier), "r"(0), "r"(token), "r"(value), "r"(block)
      : "memory");
}

/// A barrier of one warpgroup.
__device__ __forceinline__ void warpgroup_sync(int barrier) { asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory"); }

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ float power(float exponent) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

/// Largest of the four threads that hold a row.
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffU, value, 1);
  return value + __shfl_xor_sync(0xffffffffU, value, 2);
}

/// A piece of work. Pairs (row, head of the group) of a sequence are numbered with the heads side by side.
struct Work {
  int sequence = -1;  // none
  int head = 0;       // of K and V
  int pair = 0;       // the first
  int pairs = 0;
  int query = 0;   // row of pair 0
  int seen = 0;    // tokens before the first row's own
  int length = 0;  // tokens of the sequence
  int tiles = 0;   // of tokens that the last pair sees
};

/// The works of a sequence, and the sum of those of the lanes up to this one.
struct LaneWorks {
  int query, rows, length, tiles, sum;

  __device__ __forceinline__ LaneWorks(const Arguments& a, int base) {
    const int lane = threadIdx.x % 32;
    const int s = base + lane;
    const bool valid = s < a.sequences;
    query = valid ? __ldg(a.query_indptr + s) : 0;
    rows = valid ? __ldg(a.query_indptr + s + 1) - query : 0;
    length = valid ? __ldg(a.lengths + s) : 0;
    tiles = (rows * a.group + kTileRows - 1) / kTileRows;
    sum = tiles * a.kv_heads;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffU, sum, step);
      if (lane >= step) sum += other;
    }
  }
};

__device__ int count_works(const Arguments& a) {
  int works = 0;
  for (int base = 0; base < a.sequences; base += 32) works += __shfl_sync(0xffffffffU, LaneWorks(a, base).sum, 31);
  return works;
}

/// Work number `number`, found by a whole warp. Sequences lie end to end; in one, first the heads whose K and V the cache holds
/// together; in those, the last rows, which see the most tokens, first.
template <int Dim>
__device__ Work find_work(const Arguments& a, int number) {
  for (int base = 0; base < a.sequences; base += 32) {
    const LaneWorks lane(a, base);
    const unsigned after = __ballot_sync(0xffffffffU, number < lane.sum);
    if (after == 0) {
      number -= __shfl_sync(0xffffffffU, lane.sum, 31);
      continue;
    }
    const int owner = __ffs(static_cast<int>(after)) - 1;
    number -= __shfl_sync(0xffffffffU, lane.sum - lane.tiles * a.kv_heads, owner);
    const int rows = __shfl_sync(0xffffffffU, lane.rows, owner);
    const int tiles = __shfl_sync(0xffffffffU, lane.tiles, owner);
    Work work;
    work.sequence = base + owner;
    work.query = __shfl_sync(0xffffffffU, lane.query, owner);
    work.length = __shfl_sync(0xffffffffU, lane.length, owner);
    work.seen = max(0, work.length - rows);
    const float fit = kCacheBytes / (4.0f * Dim * static_cast<float>(max(1, work.length)));
    const int together = min(a.kv_heads, max(1, static_cast<int>(fit)));
    const int section = number / (tiles * together);
    const int heads = min(together, a.kv_heads - section * together);
    number -= section * tiles * together;
    work.head = section * together + number % heads;
    work.pair = (tiles - 1 - number / heads) * kTileRows;
    work.pairs = min(kTileRows, rows * a.group - work.pair);
    const int last = work.seen + (work.pair + work.pairs - 1) / a.group;
    work.tiles = last / Shape<Dim>::kTokens + 1;
    return work;
  }
  return {};
}

/// What lies in shared memory, by shared address.
template <int Dim>
struct Places {
  uint32_t query;
  uint32_t slots;     // [K and V][stages]
  uint32_t barriers;  // [K and V][stages][filled, emptied], then [two works][filled, emptied]
  Work* works;        // [two]

  __device__ __forceinline__ uint32_t slot(int value, int stage) const {
    return slots + (value * Shape<Dim>::kStages + stage) * Shape<Dim>::kSlotBytes;
  }
  __device__ __forceinline__ uint32_t filled(int value, int stage) const {
    return barriers + (value * Shape<Dim>::kStages + stage) * 16;
  }
  __device__ __forceinline__ uint32_t emptied(int value, int stage) const { return filled(value, stage) + 8; }
  __device__ __forceinline__ uint32_t work_filled(int stage) const { return filled(2, stage); }
  __device__ __forceinline__ uint32_t work_emptied(int stage) const { return emptied(2, stage); }
};

/// A place in a ring: the slot of the next tile and which turn it is.
template <int Stages>
struct Turn {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// The next work that the copying warp has set out, for one warp.
template <int Dim>
__device__ __forceinline__ Work take_work(const Places<Dim>& places, Turn<2>& turn) {
  barrier_wait(places.work_filled(turn.stage), turn.parity);
  const Work work = places.works[turn.stage];
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(places.work_emptied(turn.stage));
  turn.next();
  return work;
}

template <int Dim>
__device__ __forceinline__ void set_out_work(const Places<Dim>& places, Turn<2>& turn, const Work& work) {
  barrier_wait(places.work_emptied(turn.stage), turn.parity ^ 1);
  if (threadIdx.x % 32 == 0) {
    places.works[turn.stage] = work;
    barrier_arrive(places.work_filled(turn.stage));
  }
  __syncwarp();
  turn.next();
}

/// One warp copies the K tiles (V tiles) of a work, in order; a lane a box.
template <int Dim>
__device__ __forceinline__ void copy_tiles(const CUtensorMap* map, const Arguments& a, const Work& work,
                                           const Places<Dim>& places, int value, Turn<Shape<Dim>::kStages>& turn) {
  using S = Shape<Dim>;
  const int lane = threadIdx.x % 32;
  const int box = lane % S::kBoxes;
  const int32_t* pages = a.page_indices + __ldg(a.page_indptr + work.sequence);
  const int last_page = (work.length - 1) / a.page;
  // Past the end: any page, since its scores are masked and its values cleared.
  const auto block_of = [&](int token) { return __ldg(pages + min(token / a.page, last_page)) * a.kv_heads + work.head; };
  int token = box * kBoxTokens;
  int block = block_of(token);
  for (int tile = 0; tile < work.tiles; ++tile) {
    const int next = block_of(token + S::kTokens);
    barrier_wait(places.emptied(value, turn.stage), turn.parity ^ 1);
    const uint32_t barrier = places.filled(value, turn.stage);
    if (lane == 0) barrier_expect(barrier, S::kSlotBytes);
    __syncwarp();
    if (lane < S::kBoxes) {
      copy_box(map, places.slot(value, turn.stage) + box * S::kBoxBytes, barrier, token % a.page, value, block);
    }
    token += S::kTokens;
    block = next;
    turn.next();
  }
}

/// The warp that hands the block its works, and copies their K.
template <int Dim>
__device__ void copy_keys(const CUtensorMap* map, const Arguments& a, const Places<Dim>& places) {
  const int works = count_works(a);
  Turn<2> work_turn;
  Turn<Shape<Dim>::kStages> turn;
  int number = static_cast<int>(blockIdx.x);
  while (number < works) {
    const Work work = find_work<Dim>(a, number);
    set_out_work(places, work_turn, work);
    // Blocks ask `works` times in all (each once in vain), after which the counter is zero again.
    unsigned next = 0;
    if (threadIdx.x % 32 == 0) next = atomicInc(a.taken, static_cast<unsigned>(works) - 1);
    copy_tiles(map, a, work, places, 0, turn);
    number = static_cast<int>(gridDim.x + __shfl_sync(0xffffffffU, next, 0));
  }
  set_out_work(places, work_turn, {});
}

template <int Dim>
__device__ void copy_values(const CUtensorMap* map, const Arguments& a, const Places<Dim>& places) {
  Turn<2> work_turn;
  Turn<Shape<Dim>::kStages> turn;
  for (Work work = take_work(places, work_turn); work.sequence >= 0; work = take_work(places, work_turn)) {
    copy_tiles(map, a, work, places, 1, turn);
  }
}

/// Asks for a warpgroup's 64 rows of Q; zeros past the last pair.
template <int Dim>
__device__ __forceinline__ void ask_queries(const Arguments& a, const Work& work, uint32_t target, int first) {
  constexpr int kChunks = Dim / 8;
#pragma unroll 4
  for (int i = threadIdx.x % 128; i < kGroupRows * kChunks; i += 128) {
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    const int bytes = first + row < work.pairs ? 16 : 0;
    const int pair = work.pair + (bytes > 0 ? first + row : 0);
    const int64_t at = (work.query + pair / a.group) * a.q_stride + (work.head * a.group + pair % a.group) * Dim + chunk * 8;
    const uint32_t address = target + chunk / 8 * Shape<Dim>::kQueryPanel + row * 128 + (((chunk % 8) ^ (row % 8)) << 4);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(a.q + at), "r"(bytes) : "memory");
  }
}

/// The softmax attention of a warpgroup's rows; a thread holds two of them (eight apart), of every eight columns two.
template <int Dim>
class Rows {
 public:
  using S = Shape<Dim>;
  static constexpr int kTokens = S::kTokens;

  /// scores = Q K^T, asked for.
  __device__ __forceinline__ void ask_scores(uint32_t query, uint32_t keys) {
    products_begin();
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
      const uint64_t q = matrix(query + k / 4 * S::kQueryPanel + k % 4 * 32, 16, 1024);
      const uint64_t b = matrix(keys + k / 4 * 1024 + k % 4 * 32, 16, S::kBoxBytes);
      if (k == 0) {
        multiply_keys<false>(scores_, q, b);
      } else {
        multiply_keys<true>(scores_, q, b);
      }
    }
    products_commit();
  }

  /// output += weights V, asked for.
  __device__ __forceinline__ void ask_output(uint32_t values) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kTokens / 16; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        multiply_values(output_[part], weights_ + 4 * k, matrix(values + part * 2048 + 2 * k * S::kBoxBytes, 1024, S::kBoxBytes));
      }
    }
    products_commit();
  }

  __device__ __forceinline__ void pin_scores() { pin(scores_); }
  __device__ __forceinline__ void pin_output() {
#pragma unroll
    for (int part = 0; part < kParts; ++part) pin(output_[part]);
    pin(weights_);
  }

  /// Scores become powers; tokens from limits[] on (of the tile) vanish if `Masked`.
  template <bool Masked>
  __device__ __forceinline__ void soften(float scale, const int (&limits)[2]) {
    float highest[2] = {maximum_[0], maximum_[1]};
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      const int half = i / 2 % 2;
      if constexpr (Masked) {
        const int column = 8 * (i / 4) + i % 2 + 2 * (static_cast<int>(threadIdx.x) % 4);
        if (column >= limits[half]) scores_[i] = -INFINITY;
      }
      highest[half] = fmaxf(highest[half], scores_[i]);
    }
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = quad_max(highest[half]);
      rescale_[half] = power((maximum_[half] - highest[half]) * scale);
      maximum_[half] = highest[half];
      shift[half] = highest[half] * scale;
      sum_[half] *= rescale_[half];
    }
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      const int half = i / 2 % 2;
      scores_[i] = power(__fmaf_rn(scores_[i], scale, -shift[half]));
      sum_[half] += scores_[i];
    }
  }

  __device__ __forceinline__ void rescale_output() {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < S::kOutputChannels / 2; ++i) output_[part][i] *= rescale_[i / 2 % 2];
    }
  }

  __device__ __forceinline__ void take_weights() {
#pragma unroll
    for (int i = 0; i < kTokens / 4; ++i) weights_[i] = pack(scores_[2 * i], scores_[2 * i + 1]);
  }

  /// Writes row `half` of this thread's in bf16, with the three other threads that hold it: they exchange their pairs of channels
  /// so that each has eight side by side. All threads of a warp call this; `target` is null for rows that are none.
  __device__ __forceinline__ void store(int half, __nv_bfloat16* target) {
    const int lane = threadIdx.x % 4;
    const float inverse = 1 / quad_sum(sum_[half]);
#pragma unroll
    for (int chunk = 0; chunk < Dim / 8; chunk += 4) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = output_[(chunk + i) / 16] + 4 * ((chunk + i) % 16) + 2 * half;
        pairs[i] = pack(pair[0] * inverse, pair[1] * inverse);
      }
      // Transposes four by four: first the halves, then within them.
      exchange(pairs[0], pairs[2], 2, lane & 2);
      exchange(pairs[1], pairs[3], 2, lane & 2);
      exchange(pairs[0], pairs[1], 1, lane & 1);
      exchange(pairs[2], pairs[3], 1, lane & 1);
      if (target != nullptr) {
        *reinterpret_cast<uint4*>(target + (chunk + lane) * 8) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
  }

 private:
  static constexpr int kParts = Dim / S::kOutputChannels;

  /// Thread `other` away takes b of the lower one and gives it a.
  static __device__ __forceinline__ void exchange(uint32_t& a, uint32_t& b, int other, bool upper) {
    const uint32_t taken = __shfl_xor_sync(0xffffffffU, upper ? a : b, other);
    if (upper) {
      a = taken;
    } else {
      b = taken;
    }
  }

  float scores_[kTokens / 2];
  uint32_t weights_[kTokens / 4];  // those of 16 tokens are operand A of a product
  float output_[kParts][S::kOutputChannels / 2] = {};
  float maximum_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {0, 0};
  float rescale_[2];
};

/// Clears a V tile from token `left` on: what lies past the last token may be anything, and 0 * NaN would be NaN. Both
/// warpgroups do so.
template <int Dim>
__device__ __forceinline__ void clear_values(uint32_t values, int left) {
  using S = Shape<Dim>;
  constexpr int kChunks = Dim / 8;
  for (int i = threadIdx.x % 128; i < (S::kTokens - left) * kChunks; i += 128) {
    const int token = left + i / kChunks;
    const int chunk = i % kChunks;
    const uint32_t address = values + token / kBoxTokens * S::kBoxBytes + chunk / 8 * 1024 + token % 8 * 128 + chunk % 8 * 16;
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
  }
}

/// A warpgroup's rows of one work after the other.
template <int Dim>
__device__ void attend(const Arguments& a, const Places<Dim>& places) {
  using S = Shape<Dim>;
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

  Work work = take_work(places, work_turn);
  if (work.sequence >= 0) ask_queries<Dim>(a, work, query, first);
  while (work.sequence >= 0) {
    // This thread's two rows among the work's, and the tokens that they see.
    int row[2];
    int limits[2];
    for (int half = 0; half < 2; ++half) {
      row[half] = first + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4 + 8 * half;
      limits[half] = work.seen + (work.pair + min(row[half], work.pairs - 1)) / a.group + 1;
    }
    const int whole_tiles = (work.seen + (work.pair + min(first, work.pairs - 1)) / a.group + 1) / S::kTokens;
    Rows<Dim> rows;
    const auto soften_masked = [&](int tile) {
      const int left[2] = {limits[0] - tile * S::kTokens, limits[1] - tile * S::kTokens};
      rows.template soften<true>(a.scale, left);
    };
    const auto step = [&](int tile, auto masked) {
      barrier_wait(places.filled(0, key_turn.stage), key_turn.parity);
      rows.ask_scores(query, places.slot(0, key_turn.stage));
      barrier_wait(places.filled(1, value_turn.stage), value_turn.parity);
      rows.ask_output(places.slot(1, value_turn.stage));
      products_wait<1>();
      rows.pin_scores();
      release(0, key_turn.stage);
      key_turn.next();
      if constexpr (decltype(masked)::value) {
        soften_masked(tile);
      } else {
        rows.template soften<false>(a.scale, limits);
      }
      products_wait<0>();
      rows.pin_output();
      release(1, value_turn.stage);
      value_turn.next();
      rows.rescale_output();
      rows.take_weights();
    };

    asm volatile("cp.async.wait_all;\n fence.proxy.async.shared::cta;" ::: "memory");
    warpgroup_sync(1 + warpgroup);
    barrier_wait(places.filled(0, key_turn.stage), key_turn.parity);
    rows.ask_scores(query, places.slot(0, key_turn.stage));
    products_wait<0>();
    rows.pin_scores();
    release(0, key_turn.stage);
    key_turn.next();
    soften_masked(0);
    rows.take_weights();

    int tile = 1;
    for (; tile < min(whole_tiles, work.tiles); ++tile) step(tile, std::false_type{});
    for (; tile < work.tiles; ++tile) step(tile, std::true_type{});

    // All scores are there: the next queries may take the place of these.
    warpgroup_sync(1 + warpgroup);
    const Work next = take_work(places, work_turn);
    if (next.sequence >= 0) ask_queries<Dim>(a, next, query, first);
    barrier_wait(places.filled(1, value_turn.stage), value_turn.parity);
    const uint32_t values = places.slot(1, value_turn.stage);
    const int left = work.length - (work.tiles - 1) * S::kTokens;
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
    for (int half = 0; half < 2; ++half) {
      const int pair = work.pair + row[half];
      const int64_t at = (work.query + pair / a.group) * a.out_stride + (work.head * a.group + pair % a.group) * Dim;
      rows.store(half, row[half] < work.pairs ? a.out + at : nullptr);
    }
    work = next;
  }
}

template <int Dim>
__global__ void __launch_bounds__(kThreads, 1) prefill_kernel(const __grid_constant__ CUtensorMap map, const Arguments a) {
  using S = Shape<Dim>;
  extern __shared__ std::byte raw[];
  const uint32_t padding = (1024 - shared_address(raw) % 1024) % 1024;
  const uint32_t query = shared_address(raw) + padding;
  const uint32_t slots = query + S::kQueryBytes;
  const uint32_t barriers = slots + 2 * S::kStages * S::kSlotBytes;
  constexpr int kBarriersBytes = (4 * S::kStages + 4) * 8;
  static_assert(kBarriersBytes + 2 * sizeof(Work) <= 256);
  const Places<Dim> places{query, slots, barriers,
                           reinterpret_cast<Work*>(raw + (barriers + kBarriersBytes - shared_address(raw)))};
  if (threadIdx.x == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
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
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    const int warp = __shfl_sync(0xffffffffU, threadIdx.x / 32, 0);
    if (warp == 0) {
      copy_keys<Dim>(&map, a, places);
    } else if (warp == 1) {
      copy_values<Dim>(&map, a, places);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    attend<Dim>(a, places);
  }
}

template <int Dim>
void launch(const CUtensorMap& map, const Arguments& a, int blocks, Stream stream) {
  constexpr size_t kBytes = Shape<Dim>::kSharedBytes;
  static_assert(kBytes <= 227 * 1024);
  SLUICE_CHECK_CUDA(
      cudaFuncSetAttribute(prefill_kernel<Dim>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)));
  prefill_kernel<Dim><<<blocks, kThreads, kBytes, stream>>>(map, a);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, without linking the driver: machines that only build have none.
EncodeTiled encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  SLUICE_CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) throw InternalError("the CUDA driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<EncodeTiled>(function);
}

}  // namespace

PrefillAttention::PrefillAttention(const PagedKv& kv) : kv_(kv), blocks_(multiprocessors()), taken_(sizeof(unsigned)) {
  taken_.clear();
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  const PageLayout& layout = kv.layout;
  if (layout.kv != DataType::kBF16) throw InputError("CUDA attention takes bf16 KV, not " + std::string(name_of(layout.kv)));
  if (layout.head_dim != 64 && layout.head_dim != 128 && layout.head_dim != 256) {
    throw InputError("CUDA attention takes heads of 64, 128 or 256 channels, not " + std::to_string(layout.head_dim));
  }
  if (layout.page < 8 || layout.page > 128 || layout.page % 8 != 0) {
    throw InputError("CUDA attention takes pages of 8 to 128 tokens, not " + std::to_string(layout.page));
  }
  if (layout.value_offset <= layout.key_offset || layout.bytes % 16 != 0) throw InternalError("V must follow K in a page");
  // Channels in panels of 64, tokens, panels, K and V, blocks.
  const cuuint32_t panels = static_cast<cuuint32_t>(layout.head_dim / 64);
  const cuuint64_t sizes[5] = {64, static_cast<cuuint64_t>(layout.page), panels, 2,
                               static_cast<cuuint64_t>(kv.pages) * kv.kv_heads};
  const cuuint64_t strides[4] = {static_cast<cuuint64_t>(layout.head_dim) * 2, 128, layout.value_offset - layout.key_offset,
                                 layout.bytes};
  const cuuint32_t box[5] = {64, kBoxTokens, panels, 1, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const CUresult result = encode_tiled()(reinterpret_cast<CUtensorMap*>(&map_), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5,
                                         const_cast<std::byte*>(kv.base + layout.key_offset), sizes, strides, box, steps,
                                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw InternalError("cuTensorMapEncodeTiled failed with " + std::to_string(static_cast<int>(result)));
}

void PrefillAttention::run(const PrefillShape& shape, const PrefillTables& tables, HeadRows<const void> q, HeadRows<void> out,
                           Stream stream) const {
  if (shape.group < 1 || shape.group > 16) throw InternalError("a group of " + std::to_string(shape.group) + " query heads");
  if (q.stride % 8 != 0 || out.stride % 8 != 0) throw InternalError("rows of Q and of the output must lie 16 bytes apart");
  if (shape.sequences == 0 || shape.rows == 0) return;
  const Arguments a{.query_indptr = tables.query_indptr,
                    .lengths = tables.lengths,
                    .page_indptr = tables.page_indptr,
                    .page_indices = tables.page_indices,
                    .q = static_cast<const __nv_bfloat16*>(q.data),
                    .out = static_cast<__nv_bfloat16*>(out.data),
                    .taken = taken_.as<unsigned>(),
                    .q_stride = q.stride,
                    .out_stride = out.stride,
                    .sequences = shape.sequences,
                    .kv_heads = kv_.kv_heads,
                    .group = shape.group,
                    .page = kv_.layout.page,
                    .scale = shape.scale * kLog2E};
  // Every sequence may leave a tile unfilled.
  const int64_t works = (static_cast<int64_t>(shape.rows) * shape.group / kTileRows + shape.sequences) * kv_.kv_heads;
  const int blocks = static_cast<int>(std::min<int64_t>(blocks_, works));
  CUtensorMap map;
  std::memcpy(&map, &map_, sizeof(map));
  switch (kv_.layout.head_dim) {
    case 64:
      launch<64>(map, a, blocks, stream);
      break;
    case 128:
      launch<128>(map, a, blocks, stream);
      break;
    default:
      launch<256>(map, a, blocks, stream);
  }
}

}  // namespace sluice::cuda
