// Sums of products on tensor cores: lines of channels in shared memory times numbers of the query, which are split into parts
// that add up to them: lines of bf16 times bf16, lines of 8 bits, which float16 holds exactly, times float16. Products are exact
// and sums float32. Infinities and NaN spoil a sum that should be finite, never the reverse, so whoever gets a number that is not
// finite computes it anew.
// Text behind that of prelude.cuh and crew.cuh.

namespace sluice::cuda {

enum class Bound { kNone, kUpper, kLower };  // sums of q * a, of max(q * a, q * b) or of min(q * a, q * b)

/// The second operand of a product: for 16 * kSteps channels and kResults results, [kMostParts][kSteps][kTiles][kLanes] pairs.
/// Lanes of results that there are not have zeros or, if kCompact and there is but one tile, are left out. All parts of one or
/// two results fit one tile: then it is [kSteps][kMostParts][kLanes], and products with all parts are one. Of lines of
/// 8 bits what sums are multiplied by is behind them. Of 16 channels a lane has two and two 8 further on; of lines of 8 bits
/// (kOfBytes) four of the sixteen side by side that it reads of 64 channels, or of eight of 32.
template <int kStepCount, int kNumber, bool kCompact, bool kByteLines = false>
struct QueryShape {
  static constexpr bool kOfBytes = kByteLines;
  static constexpr int kSteps = kStepCount;
  static constexpr int kResults = kNumber;
  static constexpr int kTiles = (kResults + 7) / 8;
  static constexpr bool kJoinsParts = kResults <= 2;
  static constexpr int kLanes = kTiles == 1 && (kCompact || kJoinsParts) ? 4 * kResults : 32;
  static constexpr int kFragments = kSteps * kTiles * kLanes;
  /// Whether all columns of a tile have some result.
  static constexpr bool kRepeats = kTiles == 1 && kCompact && !kJoinsParts;

  /// Where fragment `i` of a part is.
  static __device__ __forceinline__ int place(int part, int i) {
    return kJoinsParts ? (i / kLanes * kMostParts + part) * kLanes + i % kLanes : part * kFragments + i;
  }
  /// The channel of number `j` of four that lane `quad` of four has in a step.
  static __device__ __forceinline__ int channel(int step, int quad, int j) {
    if constexpr (!kOfBytes) return 16 * step + 2 * quad + j % 2 + j / 2 * 8;
    const bool is_whole = step / 4 * 4 + 4 <= kSteps;
    return step / 4 * 64 + (is_whole ? 16 : 8) * quad + step % 4 * 4 + j;
  }
};

/// The power of two that makes the largest number of a query one of [2^14, 2^15): float16 then holds what is up to 2^31 times
/// smaller as exactly as bf16 does, and three parts of it what is up to 2^37 times smaller as exactly as float32. 1 where there
/// is none.
__device__ __forceinline__ float half_scale(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23);
  if (largest == 0 || exponent >= 255) return 1;
  constexpr int kLargest = 253;  // so that the inverse is no subnormal number
  return number(static_cast<uint32_t>(min(268 - exponent, kLargest)) << 23);
}
__device__ __forceinline__ uint16_t to_half(float x) {
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
}

/// Of numbers that float16 has room for, what a part leaves of the one before it is so much smaller: parts of a query for lines
/// of 8 bits grow by it, so that each has as many bits of its number as the first.
constexpr float kPartScale = 2048;

/// Of all threads of a crew, of the block's first kThreads. A barrier.
template <int kThreads, class Crew>
__device__ float largest_of(float own) {
  __shared__ uint32_t of_warps[kThreads / 32];
  const uint32_t of_warp = __reduce_max_sync(~0U, __float_as_uint(own));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_warp;
  Crew::count(false);
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) largest = max(largest, of_warps[i]);
  return number(largest);
}

/// Writes kMostParts parts of pairs of value(result, channel) for each sign. By the first kThreads threads, which are the crew;
/// returns the number of parts that are not all zero, 1 or 3. A barrier of the crew, behind which all are there.
template <int kThreads, class Crew, class Shape, Bound kBound, class Value>
__device__ int write_query_parts(uint2* to, const Value& value) {
  constexpr int kFragments = Shape::kFragments;
  constexpr int kSigns = kBound == Bound::kNone ? 1 : 2;
  const auto numbers_of = [&](int i, float(&numbers)[4]) {
    const int result = i / Shape::kLanes % Shape::kTiles * 8 + i % Shape::kLanes / 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      numbers[j] = result < Shape::kResults ? value(result, Shape::channel(i / (Shape::kLanes * Shape::kTiles), i % 4, j)) : 0.0F;
    }
  };
  float scale = 1;
  if constexpr (Shape::kOfBytes) {
    float largest = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < kFragments; i += kThreads) {
      float numbers[4];
      numbers_of(i, numbers);
#pragma unroll
      for (int j = 0; j < 4; ++j) largest = fmaxf(largest, fabsf(numbers[j]));
    }
    scale = half_scale(largest_of<kThreads, Crew>(largest));
    if (threadIdx.x == 0) to[kSigns * kMostParts * kFragments].x = __float_as_uint(1 / scale);
  }
  bool rest = false;
#pragma unroll 1
  for (int i = threadIdx.x; i < kFragments; i += kThreads) {
    float numbers[4];
    numbers_of(i, numbers);
#pragma unroll
    for (int sign = 0; sign < kSigns; ++sign) {
      uint32_t halves[kMostParts][4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float left = kBound == Bound::kNone || (numbers[j] >= 0) == (sign == 0) ? numbers[j] * scale : 0.0F;
#pragma unroll
        for (int part = 0; part < kMostParts; ++part) {
          if constexpr (Shape::kOfBytes) {
            const uint16_t half = to_half(left);
            halves[part][j] = half;
            left = (left - E4M3::from_half(half)) * kPartScale;
          } else {
            halves[part][j] = BF16::narrow(left);
            left -= BF16::widen(halves[part][j]);
          }
          rest |= part == 0 && left != 0;
        }
        constexpr uint32_t kNan = 0x7e00;
        if (Shape::kOfBytes && left != 0) halves[0][j] = kNan;  // what no parts add up to is computed anew
      }
#pragma unroll
      for (int part = 0; part < kMostParts; ++part) {
        to[sign * kMostParts * kFragments + Shape::place(part, i)] = {halves[part][0] | halves[part][1] << 16,
                                                                      halves[part][2] | halves[part][3] << 16};
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
template <bool kHalves>
__device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t (&lines)[4], const uint2& query) {
  if constexpr (kHalves) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(lines[0]), "r"(lines[1]), "r"(lines[2]), "r"(lines[3]), "r"(query.x), "r"(query.y));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(lines[0]), "r"(lines[1]), "r"(lines[2]), "r"(lines[3]), "r"(query.x), "r"(query.y));
  }
}
template <bool kHalves>
__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b) {
  uint32_t larger;
  if constexpr (kHalves) {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  } else {
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  }
  return larger;
}
template <bool kHalves>
__device__ __forceinline__ uint32_t smaller_pair(uint32_t a, uint32_t b) {
  uint32_t smaller;
  if constexpr (kHalves) {
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(smaller) : "r"(a), "r"(b));
  } else {
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(smaller) : "r"(a), "r"(b));
  }
  return smaller;
}

/// Makes `lines` what channels are multiplied with where q is positive, and `others` where it is not.
template <Bound kBound, bool kHalves>
__device__ __forceinline__ void order_pairs(uint32_t (&lines)[4], uint32_t (&others)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t larger = larger_pair<kHalves>(lines[i], others[i]);
    const uint32_t smaller = smaller_pair<kHalves>(lines[i], others[i]);
    lines[i] = kBound == Bound::kUpper ? larger : smaller;
    others[i] = kBound == Bound::kUpper ? smaller : larger;
  }
}

/// A lane's numbers of kBatch steps of one line of 8 bits, from `address` on: those of lines that are multiplied as places
/// `place` and `place` + 2.
template <class Type, int kBatch>
__device__ __forceinline__ void load_bytes(uint32_t address, int place, uint32_t (&lines)[4][4]) {
  uint32_t words[4] = {};
  if constexpr (kBatch == 4) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(address) : "memory");
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    lines[i][place] = Type::Format::widen_pair(static_cast<uint16_t>(words[i]));
    lines[i][place + 2] = Type::Format::widen_pair(static_cast<uint16_t>(words[i] >> 16));
  }
}

/// Up to four steps of 16 lines, from step `first` on, as they are multiplied; line_at(i): where line i of the sixteen begins.
template <class Shape, class Type, class Lines>
__device__ __forceinline__ void load_steps(const Lines& line_at, int first, uint32_t (&lines)[4][4]) {
  const int lane = threadIdx.x % 32;
  if constexpr (!Shape::kOfBytes) {
    const uint32_t address = line_at(lane % 16) + lane / 16 * 16 + 32 * first;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < Shape::kSteps) load_lines(address + 32 * i, lines[i]);
    }
  } else {
    const bool is_whole = first + 4 <= Shape::kSteps;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t address = line_at(lane / 4 + 8 * half) + 16 * first + (is_whole ? 16 : 8) * (lane % 4);
      if (is_whole) {
        load_bytes<Type, 4>(address, half, lines);
      } else {
        load_bytes<Type, 2>(address, half, lines);
      }
    }
  }
}

/// sums[group][tile], of sixteen lines a group: of lines lane / 4 (+ 8) and results 8 * tile + 2 * (lane % 4) (+ 1), as
/// mma.m16n8k16 has them. a(group, i), b(group, i): where its line i begins.
template <class Shape, Bound kBound, int kParts, class Type, int kGroups, class A, class B>
__device__ __forceinline__ void multiply_lines(float (&sums)[kGroups][Shape::kTiles][4], const A& a, const B& b,
                                               const uint2* query) {
  constexpr bool kJoins = Shape::kJoinsParts;
  constexpr int kProducts = kJoins ? 1 : kParts;
  constexpr int kSignFragments = kMostParts * Shape::kFragments;
  const int lane = threadIdx.x % 32;
  const float scale = Shape::kOfBytes ? number(query[(kBound == Bound::kNone ? 1 : 2) * kSignFragments].x) : 1;
  // What lanes of results or parts that there are not get goes to sums that nobody reads.
  query += kJoins ? min(lane / 8, kMostParts - 1) * Shape::kLanes + lane % 8 % Shape::kLanes : lane % Shape::kLanes;
  float products[kGroups][kProducts][Shape::kTiles][4] = {};
#pragma unroll(kGroups > 1 ? 1 : 2)
  for (int first = 0; first < Shape::kSteps; first += 4) {
    uint32_t lines[kGroups][4][4];
    uint32_t others[kBound == Bound::kNone ? 1 : kGroups][4][4];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      load_steps<Shape, Type>([&](int i) { return a(group, i); }, first, lines[group]);
      if constexpr (kBound != Bound::kNone) load_steps<Shape, Type>([&](int i) { return b(group, i); }, first, others[group]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i >= Shape::kSteps) break;
      if constexpr (kBound != Bound::kNone) {
#pragma unroll
        for (int group = 0; group < kGroups; ++group) order_pairs<kBound, Shape::kOfBytes>(lines[group][i], others[group][i]);
      }
#pragma unroll
      for (int part = 0; part < kProducts; ++part) {
#pragma unroll
        for (int tile = 0; tile < Shape::kTiles; ++tile) {
          const int step = first + i;
          const uint2* const from = query + (kJoins ? step * kMostParts * Shape::kLanes
                                                    : part * Shape::kFragments + (step * Shape::kTiles + tile) * Shape::kLanes);
          const uint2 factors = from[0];
#pragma unroll
          for (int group = 0; group < kGroups; ++group)
            multiply<Shape::kOfBytes>(products[group][part][tile], lines[group][i], factors);
          if constexpr (kBound != Bound::kNone) {
            const uint2 negative = from[kSignFragments];
#pragma unroll
            for (int group = 0; group < kGroups; ++group)
              multiply<Shape::kOfBytes>(products[group][part][tile], others[group][i], negative);
          }
        }
      }
    }
  }
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int tile = 0; tile < Shape::kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        constexpr float kShare = Shape::kOfBytes ? 1 / kPartScale : 1;  // of a part, beside the one before it
        float sum = products[group][kProducts - 1][tile][i];
        if constexpr (kJoins) {  // columns 2 * part (+ 1)
          const float second = __shfl_down_sync(~0U, sum, 1);
          sum = (__shfl_down_sync(~0U, sum, 2) * kShare + second) * kShare + sum;
        }
#pragma unroll
        for (int part = kProducts - 2; part >= 0; --part) sum = sum * kShare + products[group][part][tile][i];
        sums[group][tile][i] = Shape::kOfBytes ? sum * scale : sum;
      }
    }
  }
}

/// Combines kCount values of each lane with those of the lanes that differ in the bits kFirst .. kEnd / 2 of their number, and
/// leaves each lane as few as that takes (left_by_fold): `place` moves to which of the values its first one was.
template <class Op, int kFirst, int kEnd, int kCount, int kAll>
__device__ __forceinline__ void fold_lanes(float (&values)[kAll], int& place) {
  if constexpr (kFirst >= kEnd) {
    return;
  } else if constexpr (kCount % 2 == 0) {
    constexpr int kHalf = kCount / 2;
    const bool upper = (threadIdx.x & kFirst) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float kept = upper ? values[i + kHalf] : values[i];
      const float sent = upper ? values[i] : values[i + kHalf];
      values[i] = Op::of(kept, __shfl_xor_sync(~0U, sent, kFirst));
    }
    if (upper) place += kHalf;
    fold_lanes<Op, 2 * kFirst, kEnd, kHalf>(values, place);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = Op::of(values[i], __shfl_xor_sync(~0U, values[i], kFirst));
    fold_lanes<Op, 2 * kFirst, kEnd, kCount>(values, place);
  }
}

/// How many values fold_lanes leaves a lane.
template <int kFirst, int kEnd, int kCount>
constexpr int left_by_fold() {
  int count = kCount;
  for (int bit = kFirst; bit < kEnd; bit *= 2) count = count % 2 == 0 ? count / 2 : count;
  return count;
}

/// Combines the sums of a product (multiply_lines), `divisor` times what they are to be, over the kLines lines of each page, and
/// if kOfResults over its results. counts(line): whether a line is there, all of them if `whole`; give(page of the tile, result,
/// x), by one lane or more for each. Returns, by lane, whether a sum that counts is not finite: then nothing that was given does.
/// By all lanes of a warp.
template <class Op, class Shape, int kLines, bool kOfResults, int kGroups, class Counts, class Give>
__device__ __forceinline__ bool fold_products(const float (&sums)[kGroups][Shape::kTiles][4], int divisor, bool whole,
                                              const Counts& counts, const Give& give) {
  constexpr int kHalfLines = kLines < 8 ? kLines : 8;  // of a page, among eight lines
  constexpr int kHalves = kLines < 16 ? 2 : 1;         // of sixteen lines, that belong to different pages
  constexpr int kFolded = kOfResults ? 1 : 2 * Shape::kTiles;
  constexpr int kValues = kGroups * kHalves * kFolded;
  const int lane = threadIdx.x % 32;
  float folded[kValues];
  float odd = 0;  // NaN once a sum is not finite
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    float* const own = folded + group * kHalves * kFolded;
#pragma unroll
    for (int i = 0; i < kHalves * kFolded; ++i) own[i] = Op::start();
    const bool there[2] = {whole || counts(16 * group + lane / 4), whole || counts(16 * group + lane / 4 + 8)};
#pragma unroll
    for (int i = 0; i < 4 * Shape::kTiles; ++i) {
      const int half = i % 4 / 2;
      if (!there[half] || (!Shape::kRepeats && i / 4 * 8 + lane % 4 * 2 + i % 2 >= Shape::kResults)) continue;
      const float sum = sums[group][i / 4][i % 4];
      float& to = own[half % kHalves * kFolded + (kOfResults ? 0 : i / 4 * 2 + i % 2)];
      to = Op::of(to, sum);
      odd = fmaf(sum, 0.0F, odd);
    }
  }
  int place = 0;
  constexpr int kAfterLines = left_by_fold<4, 4 * kHalfLines, kValues>();
  fold_lanes<Op, 4, 4 * kHalfLines, kValues>(folded, place);
  constexpr int kLeft = kOfResults ? left_by_fold<1, 4, kAfterLines>() : kAfterLines;
  if constexpr (kOfResults) fold_lanes<Op, 1, 4, kAfterLines>(folded, place);
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const int value = place + i;
    const int of_results = value % kFolded;
    const int result = kOfResults ? 0 : of_results / 2 * 8 + lane % 4 * 2 + of_results % 2;
    const int line = value / kFolded * (16 / kHalves) + lane / 4 / kHalfLines * kHalfLines;
    if (result < Shape::kResults) give(line / kLines, result, folded[i] / divisor);
  }
  return odd != 0;
}

}  // namespace sluice::cuda
