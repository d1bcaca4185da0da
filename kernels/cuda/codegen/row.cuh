// What the kernels share that keep a whole row on chip, from scores to the list of selected pages. The row belongs to a block, or
// to the blocks of a cluster, each with a stretch of its pages. Text behind that of prelude.cuh; selection follows in
// row_selection.cuh.

namespace sluice::cuda {

constexpr int kFieldThreads = 128;  // that compute the newest page's fields, while the others go on

// Copies of pages to shared memory, a ring of stages for each warp.

__device__ __forceinline__ void copy_bytes(uint32_t shared, const uint8_t* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}

// Pieces of 16 bytes on their way to shared memory: where lines are short, all lanes ask for them sooner than a few do for
// copies of whole lines.

__device__ __forceinline__ void copy_piece(uint32_t shared, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
/// This thread arrives once all pieces that it has asked for are there.
__device__ __forceinline__ void arrive_with_pieces(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// What this thread has written to pages is seen by copies that are asked for behind the next barrier.
__device__ __forceinline__ void publish_fields() {
  __threadfence();
  asm volatile("fence.proxy.async;" ::: "memory");
}
/// Brings part of a page nearer while it may still change: L2 has whatever is written meanwhile. By the whole block.
__device__ __forceinline__ void prefetch(const uint8_t* from, int bytes) {
  constexpr int kLine = 128;
#pragma unroll 1
  for (int at = threadIdx.x * kLine; at < bytes; at += blockDim.x * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at) : "memory");
  }
}
/// The same by one thread; `from` and `bytes` are multiples of 16.
__device__ __forceinline__ void prefetch_whole(const uint8_t* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
/// Waits for the threads that compute fields.
__device__ __forceinline__ void sync_field_threads() { asm volatile("bar.sync 1, %0;" ::"n"(kFieldThreads) : "memory"); }

// Sums of products on tensor cores: lines of channels in shared memory, bf16 or 8 bits, times numbers of the query, which are
// split into bf16 parts that add up to them. Products are exact and sums float32. Infinities and NaN spoil a sum that should be
// finite, never the reverse, so whoever gets a number that is not finite computes it anew.

enum class Bound { kNone, kUpper, kLower };  // sums of q * a, of max(q * a, q * b) or of min(q * a, q * b)

/// The second operand of a product: for 16 * kSteps channels and kResults results, [kMostParts][kSteps][kTiles][kLanes] pairs.
/// Lanes of results that there are not have zeros or, if kCompact and there is but one tile, are left out. All parts of one or
/// two results fit one tile: then it is [kSteps][kMostParts][kLanes], and products with all parts are one. Of 16 channels a lane
/// has four that lie side by side (kSideBySide), as loading a matrix of 8-bit numbers gives them, or two and two 8 further on.
template <int kStepCount, int kNumber, bool kCompact, bool kSideBySide = false>
struct QueryShape {
  static constexpr bool kBySide = kSideBySide;
  static constexpr int kSteps = kStepCount;
  static constexpr int kResults = kNumber;
  static constexpr int kTiles = (kResults + 7) / 8;
  static constexpr bool kJoinsParts = kResults <= 2;
  static constexpr int kLanes = kTiles == 1 && (kCompact || kJoinsParts) ? 4 * kResults : 32;
  static constexpr int kFragments = kSteps * kTiles * kLanes;

  /// Where fragment `i` of a part is.
  static __device__ __forceinline__ int place(int part, int i) {
    return kJoinsParts ? (i / kLanes * kMostParts + part) * kLanes + i % kLanes : part * kFragments + i;
  }
};

/// Writes kMostParts parts of pairs of value(result, channel) for each sign. By the first kThreads threads, which are the crew;
/// returns the number of parts that are not all zero, 1 or 3. A barrier of the crew, behind which all are there.
template <int kThreads, class Crew, class Shape, Bound kBound, class Value>
__device__ int write_query_parts(uint2* to, const Value& value) {
  constexpr int kFragments = Shape::kFragments;
  bool rest = false;
#pragma unroll 1
  for (int i = threadIdx.x; i < kFragments; i += kThreads) {
    const int result = i / Shape::kLanes % Shape::kTiles * 8 + i % Shape::kLanes / 4;
    const int channel = i / (Shape::kLanes * Shape::kTiles) * 16 + i % 4 * (Shape::kBySide ? 4 : 2);
    float numbers[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      numbers[j] = result < Shape::kResults ? value(result, channel + (Shape::kBySide ? j : j % 2 + j / 2 * 8)) : 0.0F;
    }
#pragma unroll
    for (int sign = 0; sign < (kBound == Bound::kNone ? 1 : 2); ++sign) {
      float left[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) left[j] = kBound == Bound::kNone || (numbers[j] >= 0) == (sign == 0) ? numbers[j] : 0.0F;
#pragma unroll
      for (int part = 0; part < kMostParts; ++part) {
        uint32_t halves[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          halves[j] = BF16::narrow(left[j]);
          left[j] -= BF16::widen(halves[j]);
          rest |= part == 0 && left[j] != 0;
        }
        to[sign * kMostParts * kFragments + Shape::place(part, i)] = {halves[0] | halves[1] << 16, halves[2] | halves[3] << 16};
      }
    }
  }
  return Crew::count(rest) > 0 ? kMostParts : 1;
}

/// 16 lines of 16 channels; each lane gives where a line of the first or the last eight channels begins.
__device__ __forceinline__ void load_lines(uint32_t address, uint32_t (&numbers)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(numbers[0]), "=r"(numbers[1]), "=r"(numbers[2]), "=r"(numbers[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t (&lines)[4], const uint2& query) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(lines[0]), "r"(lines[1]), "r"(lines[2]), "r"(lines[3]), "r"(query.x), "r"(query.y));
}
__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b) {
  uint32_t larger;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
__device__ __forceinline__ uint32_t smaller_pair(uint32_t a, uint32_t b) {
  uint32_t smaller;
  asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(smaller) : "r"(a), "r"(b));
  return smaller;
}

/// Makes `lines` what channels are multiplied with where q is positive, and `others` where it is not.
template <Bound kBound>
__device__ __forceinline__ void order_pairs(uint32_t (&lines)[4], uint32_t (&others)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t larger = larger_pair(lines[i], others[i]);
    const uint32_t smaller = smaller_pair(lines[i], others[i]);
    lines[i] = kBound == Bound::kUpper ? larger : smaller;
    others[i] = kBound == Bound::kUpper ? smaller : larger;
  }
}

/// Two numbers of 8 bits as bf16, which holds them exactly.
template <class Type>
__device__ __forceinline__ uint32_t widen_to_bf16(uint32_t codes) {
  const uint32_t halves = Type::Format::widen_pair(static_cast<uint16_t>(codes));
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
      : "=r"(pair)
      : "f"(Type::Format::from_half(halves >> 16)), "f"(Type::Format::from_half(halves)));
  return pair;
}

/// 16 lines of 16 channels as they are multiplied: of step `first + i` from address + 32 * (first + i) on, or of 8-bit numbers,
/// of which a matrix has two steps, from half of that on.
template <class Type, int kBatch>
__device__ __forceinline__ void load_steps(uint32_t address, int first, int steps, uint32_t (&lines)[kBatch][4]) {
  if constexpr (sizeof(typename Type::Stored) == 2) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < steps) load_lines(address + 32 * (first + i), lines[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kBatch; i += 2) {
      if (first + i >= steps) break;
      uint32_t numbers[4];
      load_lines(address + 16 * (first + i), numbers);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        lines[i + j / 2][j % 2] = widen_to_bf16<Type>(numbers[j] & 0xffffU);
        lines[i + j / 2][2 + j % 2] = widen_to_bf16<Type>(numbers[j] >> 16);
      }
    }
  }
}

/// Gives use(step, lines, others) what 16 channels of the lines are multiplied with where q is positive, and where it is not.
template <class Shape, Bound kBound, class Type, class Use>
__device__ __forceinline__ void for_each_step(uint32_t a, uint32_t b, const Use& use) {
  constexpr int kBatch = kBound == Bound::kNone ? 4 : 2;  // steps whose lines are read before the first is used
#pragma unroll(8 / kBatch)
  for (int first = 0; first < Shape::kSteps; first += kBatch) {
    uint32_t lines[kBatch][4];
    uint32_t others[kBatch][4];
    load_steps<Type>(a, first, Shape::kSteps, lines);
    if constexpr (kBound != Bound::kNone) load_steps<Type>(b, first, Shape::kSteps, others);
#pragma unroll
    for (int i = 0; i < kBatch && first + i < Shape::kSteps; ++i) {
      if constexpr (kBound != Bound::kNone) order_pairs<kBound>(lines[i], others[i]);
      use(first + i, lines[i], others[i]);
    }
  }
}

/// sums[tile]: of lines lane / 4 (+ 8) and results 8 * tile + 2 * (lane % 4) (+ 1), as mma.m16n8k16 has them.
template <class Shape, Bound kBound, int kParts, class Type = BF16>
__device__ __forceinline__ void multiply_lines(float (&sums)[Shape::kTiles][4], uint32_t a, uint32_t b, const uint2* query) {
  constexpr int kOtherSign = kMostParts * Shape::kFragments;
  const int lane = threadIdx.x % 32;
  // What lanes of results or parts that there are not get goes to sums that nobody reads.
  if constexpr (Shape::kJoinsParts) {
    query += min(lane / 8, kMostParts - 1) * Shape::kLanes + lane % 8 % Shape::kLanes;
    float joined[4] = {};  // columns 2 * part (+ 1)
    for_each_step<Shape, kBound, Type>(a, b, [&](int step, const uint32_t(&lines)[4], const uint32_t(&others)[4]) {
      const uint2* const from = query + step * kMostParts * Shape::kLanes;
      multiply(joined, lines, from[0]);
      if constexpr (kBound != Bound::kNone) multiply(joined, others, from[kOtherSign]);
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float second = __shfl_down_sync(~0U, joined[i], 1);
      sums[0][i] = __shfl_down_sync(~0U, joined[i], 2) + second + joined[i];
    }
  } else {
    float part_sums[kParts][Shape::kTiles][4] = {};
    query += lane % Shape::kLanes;
    for_each_step<Shape, kBound, Type>(a, b, [&](int step, const uint32_t(&lines)[4], const uint32_t(&others)[4]) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int tile = 0; tile < Shape::kTiles; ++tile) {
          const uint2* const from = query + part * Shape::kFragments + (step * Shape::kTiles + tile) * Shape::kLanes;
          multiply(part_sums[part][tile], lines, from[0]);
          if constexpr (kBound != Bound::kNone) multiply(part_sums[part][tile], others, from[kOtherSign]);
        }
      }
    });
#pragma unroll
    for (int tile = 0; tile < Shape::kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[tile][i] = part_sums[kParts - 1][tile][i];
#pragma unroll
        for (int part = kParts - 2; part >= 0; --part) sums[tile][i] += part_sums[part][tile][i];
      }
    }
  }
}

/// Combines the sums of a product (multiply_lines), `divisor` times what they are to be, over the kLines lines of each page, and
/// if kOfResults over its results. counts(line): whether a line is there; give(page of the tile, result, x), by one lane for
/// each. Returns, by lane, whether a sum that counts is not finite: then nothing that was given does. By all lanes of a warp.
template <class Op, int kLines, int kResults, bool kOfResults, int kTiles, class Counts, class Give>
__device__ __forceinline__ bool fold_products(const float (&sums)[kTiles][4], int divisor, const Counts& counts,
                                              const Give& give) {
  constexpr int kHalfLines = kLines < 8 ? kLines : 8;  // of a page, among eight lines
  constexpr int kHalves = kLines < 16 ? 2 : 1;         // of sixteen lines, that belong to different pages
  constexpr int kFolded = kOfResults ? 1 : 2 * kTiles;
  const int lane = threadIdx.x % 32;
  const bool there[2] = {counts(lane / 4), counts(lane / 4 + 8)};
  float folded[kHalves][kFolded];
#pragma unroll
  for (int i = 0; i < kHalves * kFolded; ++i) folded[i / kFolded][i % kFolded] = Op::start();
  bool odd = false;
#pragma unroll
  for (int i = 0; i < 4 * kTiles; ++i) {
    const int half = i % 4 / 2;
    if (!there[half] || i / 4 * 8 + lane % 4 * 2 + i % 2 >= kResults) continue;
    const float sum = sums[i / 4][i % 4];
    float& to = folded[half % kHalves][kOfResults ? 0 : i / 4 * 2 + i % 2];
    to = Op::of(to, sum);
    odd |= !isfinite(sum);
  }
#pragma unroll
  for (int i = 0; i < kHalves * kFolded; ++i) {
    float& x = folded[i / kFolded][i % kFolded];
#pragma unroll
    for (int step = 4; step < 4 * kHalfLines; step *= 2) x = Op::of(x, __shfl_xor_sync(~0U, x, step));
    if constexpr (kOfResults) {
#pragma unroll
      for (int step = 1; step < 4; step *= 2) x = Op::of(x, __shfl_xor_sync(~0U, x, step));
    }
  }
  if (lane / 4 % kHalfLines == 0 && (!kOfResults || lane % 4 == 0)) {
#pragma unroll
    for (int i = 0; i < kHalves * kFolded; ++i) {
      const int result = kOfResults ? 0 : i % kFolded / 2 * 8 + lane % 4 * 2 + i % 2;
      if (result < kResults) give((i / kFolded * 8 + lane / 4) / kLines, result, folded[i / kFolded][i % kFolded] / divisor);
    }
  }
  return odd;
}

/// The blocks that have a row.
class RowBlocks {
 public:
  /// `shared`: several blocks may have it, else one.
  __device__ __forceinline__ explicit RowBlocks(bool shared)
      : count(shared ? static_cast<int>(cluster_blocks()) : 1), rank(shared ? static_cast<int>(cluster_rank()) : 0) {
    if (count > 1) arrive_in_cluster();
  }

  /// Waits until all blocks have begun, which comes before any touches another's memory.
  __device__ void wait_for_others() const {
    if (count > 1) wait_for_cluster();
  }

  __device__ void sync() const {
    if (count > 1) {
      sync_cluster();
    } else {
      __syncthreads();
    }
  }

  /// Gives every block the numbers of all, which each thread of a block must have: [count].
  template <class T>
  __device__ const T* exchange(T x) {
    __shared__ T parts[2][topk::kMaxCluster];  // by turns, so that no block writes what another still reads
    T* const mine = &parts[turn_][rank];
    turn_ ^= 1;
    if (static_cast<int>(threadIdx.x) < count) *in_block(mine, threadIdx.x) = x;
    sync();
    return mine - rank;
  }

  /// Combines a number of every thread; all get the result. The order is fixed.
  template <class Op, class T>
  __device__ T combine(T x) {
    x = combine_block<Op>(x);
    if (count == 1) return x;
    const T* const parts = exchange(x);
    x = parts[0];
#pragma unroll 1
    for (int block = 1; block < count; ++block) x = Op::of(x, parts[block]);
    return x;
  }

  /// The same for several numbers at once.
  template <class Op, int kNumber>
  __device__ void combine_each(float (&x)[kNumber]) {
    combine_block_each<Op>(x);
    join_each<Op>(x);
  }

  /// Combines what each block has of several numbers, or pairs, which all threads of a block have alike.
  template <class Op, int kNumber, class T>
  __device__ void join_each(T (&x)[kNumber]) {
    if (count == 1) return;
    struct Numbers {
      T at[kNumber];
    } mine;
#pragma unroll
    for (int i = 0; i < kNumber; ++i) mine.at[i] = x[i];
    const Numbers* const parts = exchange(mine);
#pragma unroll
    for (int i = 0; i < kNumber; ++i) x[i] = parts[0].at[i];
#pragma unroll 1
    for (int block = 1; block < count; ++block) {
#pragma unroll
      for (int i = 0; i < kNumber; ++i) x[i] = Op::of(x[i], parts[block].at[i]);
    }
  }

  /// What the block that has page `page` holds of it; each has `share` pages.
  template <class T>
  __device__ const T* of_page(const T* held, int page, int per_page, int share) const {
    return in_block(held + page % share * per_page, page / share);
  }

  const int count;
  const int rank;

 private:
  int turn_ = 0;
};

}  // namespace sluice::cuda
