// What the kernels of all generated sources share. Text behind that of types.cuh, kernels/device/random.h and kFieldPages:
// whether the flow's fields have pages of their own.

namespace sluice::cuda {

__device__ __forceinline__ float number(uint32_t bits) { return __uint_as_float(bits); }
#define SLUICE_NAN number(0x7fffffffU)
#define SLUICE_INF number(0x7f800000U)

// Storage types.

/// The 8-bit formats of the OCP 8-bit floating point specification, 1.0.
template <int kMantissa, int kBias, int kLargest, int kNan>
struct ByteFormat {
  /// Two numbers as float16, which holds them exactly.
  static __device__ __forceinline__ uint32_t widen_pair(uint16_t codes) {
    uint32_t pair;
    if constexpr (kMantissa == 3) {
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
    } else {
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair) : "h"(codes));
    }
    return pair;
  }
  static __device__ __forceinline__ float from_half(uint32_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(half)));
    return value;
  }
  static __device__ __forceinline__ float widen(uint8_t code) { return from_half(widen_pair(code)); }
  /// Nearest, ties to even; beyond the largest: the largest.
  static __device__ uint8_t narrow(float value) {
    const uint8_t sign = __float_as_uint(value) >> 31 ? 0x80 : 0;
    if (isnan(value)) return sign | kNan;
    const float magnitude = fabsf(value);
    if (magnitude >= widen(kLargest)) return sign | kLargest;
    int exponent = magnitude > 0 ? ilogbf(magnitude) : 1 - kBias;
    if (exponent < 1 - kBias) exponent = 1 - kBias;
    const int units = static_cast<int>(rintf(ldexpf(magnitude, kMantissa - exponent)));
    const int code = units + ((exponent + kBias - 1) << kMantissa);
    return sign | (code > kLargest ? kLargest : code);
  }
};
using E4M3 = ByteFormat<3, 7, 0x7e, 0x7f>;
using E5M2 = ByteFormat<2, 15, 0x7b, 0x7f>;

struct F32 {
  using Stored = float;
  static __device__ __forceinline__ float widen(float x) { return x; }
  static __device__ __forceinline__ float narrow(float x) { return x; }
};
struct BF16 {
  using Stored = uint16_t;
  static __device__ __forceinline__ float widen(uint16_t x) { return number(static_cast<uint32_t>(x) << 16); }
  static __device__ __forceinline__ uint16_t narrow(float x) {
    const uint32_t bits = __float_as_uint(x);
    if (isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};
template <class Number>
struct Byte {
  using Stored = uint8_t;
  using Format = Number;
  static __device__ __forceinline__ float widen(uint8_t x) { return Format::widen(x); }
  static __device__ __forceinline__ uint8_t narrow(float x) { return Format::narrow(x); }
};

template <class Type>
__device__ __forceinline__ float load(const uint8_t* part, int at) {
  return Type::widen(reinterpret_cast<const typename Type::Stored*>(part)[at]);
}
template <class Type>
__device__ __forceinline__ void store(uint8_t* part, int at, float x) {
  reinterpret_cast<typename Type::Stored*>(part)[at] = Type::narrow(x);
}
/// Eight neighbours that are read once, as they are stored.
template <class Type>
struct Eight {
  static constexpr int kWords = sizeof(typename Type::Stored) * 2;
  uint32_t words[kWords] = {};

  __device__ __forceinline__ void read(const uint8_t* part, int at) {
    const uint8_t* from = part + at * sizeof(typename Type::Stored);
    if constexpr (kWords == 2) {
      asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(from));
    } else {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[i]), "=r"(words[i + 1]), "=r"(words[i + 2]), "=r"(words[i + 3])
                     : "l"(from + 4 * i));
      }
    }
  }
  /// Copies them to shared memory while the thread goes on; `wait_for_pieces` says when they are there.
  static __device__ __forceinline__ void ask(uint32_t shared, const uint8_t* part, int at) {
    const uint8_t* from = part + at * sizeof(typename Type::Stored);
    if constexpr (kWords == 2) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared), "l"(from) : "memory");
    } else {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared + 4 * i), "l"(from + 4 * i) : "memory");
      }
    }
  }
  __device__ __forceinline__ void read_shared(uint32_t shared) {
    if constexpr (kWords == 2) {
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(shared) : "memory");
    } else {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[i]), "=r"(words[i + 1]), "=r"(words[i + 2]), "=r"(words[i + 3])
                     : "r"(shared + 4 * i)
                     : "memory");
      }
    }
  }
  __device__ __forceinline__ float of(int i) const {
    if constexpr (kWords == 8) return number(words[i]);
    if constexpr (kWords == 4) return number(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000U);
    if constexpr (kWords == 2) {
      const uint32_t pair = Type::Format::widen_pair(static_cast<uint16_t>(words[i / 4] >> 16 * (i / 2 % 2)));
      return Type::Format::from_half(pair >> 16 * (i % 2));
    }
  }
};

/// Ends a group of pieces that were asked for; waits until all but the last kLeft groups are there.
__device__ __forceinline__ void end_group_of_pieces() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void wait_for_pieces() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Arithmetic as flows define it.

__device__ __forceinline__ float max_of(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
__device__ __forceinline__ float min_of(float a, float b) {
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}
/// The number is there from now on: what it is read from is asked for before what follows, not where it is needed.
__device__ __forceinline__ void pin(float& x) { asm volatile("" : "+f"(x)); }
__device__ __forceinline__ float relu(float x) { return max_of(x, 0.0F); }
__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

struct Add {
  template <class T>
  static __device__ __forceinline__ T of(T a, T b) {
    return a + b;
  }
  static __device__ __forceinline__ float start() { return 0; }
};
struct Max {
  static __device__ __forceinline__ float of(float a, float b) { return max_of(a, b); }
  static __device__ __forceinline__ float start() { return -SLUICE_INF; }
};
struct Min {
  static __device__ __forceinline__ float of(float a, float b) { return min_of(a, b); }
  static __device__ __forceinline__ float start() { return SLUICE_INF; }
};

/// One row of a decode pass.
struct Row {
  __device__ __forceinline__ Row(const FlowArguments& a, int index, int page_tokens, int group, int dim)
      : Row(a, index / a.kv_heads, index % a.kv_heads, length_of(a, index / a.kv_heads, page_tokens),
            a.page_indices + a.page_indptr[index / a.kv_heads], field_ids_of(a, index / a.kv_heads), page_tokens, group, dim) {}
  /// Of a sequence that somebody has looked up.
  __device__ __forceinline__ Row(const FlowArguments& a, int sequence, int head, int length, const int* ids, const int* field_ids,
                                 int page_tokens, int group, int dim)
      : arguments(a),
        index(sequence * a.kv_heads + head),
        sequence(sequence),
        head(head),
        length(length),
        ids(ids),
        field_ids(field_ids) {
    pages = (length + page_tokens - 1) / page_tokens;
    last_tokens = length - (pages - 1) * page_tokens;
    values = a.rows + index * a.row_stride;
    query_at = sequence * a.query_stride + static_cast<long long>(head) * group * dim;
    blocks = a.pages + head * a.block_bytes;
    page_stride = static_cast<uint32_t>(a.page_stride);
    if constexpr (kFieldPages) {
      field_blocks = a.fields + head * a.field_block_bytes;
      field_page_stride = static_cast<uint32_t>(a.field_page_stride);
    }
  }
  /// Null where fields lie with K and V.
  static __device__ __forceinline__ const int* field_ids_of(const FlowArguments& a, int sequence) {
    if constexpr (kFieldPages) return a.field_indices + a.field_indptr[sequence];
    return nullptr;
  }
  static __device__ __forceinline__ int length_of(const FlowArguments& a, int sequence, int page_tokens) {
    return min(max(a.lengths[sequence], 0), a.most_pages * page_tokens);
  }
  /// What the flow's q holds at `at` of [head, dim].
  __device__ __forceinline__ float query(int at) const {
    // From L2: another kernel may have written it while this one was there already.
    return arguments.query_is_f32 ? __ldcg(static_cast<const float*>(arguments.query) + query_at + at)
                                  : BF16::widen(__ldcg(static_cast<const uint16_t*>(arguments.query) + query_at + at));
  }
  /// Strides are checked to fit 32 bits, which takes one instruction instead of four.
  __device__ __forceinline__ uint8_t* block(int page) const {
    return blocks + static_cast<uint64_t>(page_stride) * static_cast<uint32_t>(page);
  }
  /// Of the pages that fields have of their own.
  __device__ __forceinline__ uint8_t* field_block(int page) const {
    return field_blocks + static_cast<uint64_t>(field_page_stride) * static_cast<uint32_t>(page);
  }
  __device__ __forceinline__ uint64_t key(RandomPurpose purpose) const {
    const int step = arguments.steps != nullptr ? arguments.steps[sequence] + 1 : length;
    return random_key(arguments.seeds != nullptr ? arguments.seeds[sequence] : 0, purpose, arguments.layer, head, step);
  }
  /// The page at a place among those attended to.
  __device__ __forceinline__ int mass_page(int place) const {
    const FlowArguments& a = arguments;
    return a.mass_pages == nullptr ? place : a.mass_pages[index * a.mass_page_stride + place];
  }
  /// The place of a page among those attended to; -1: it was not.
  __device__ __forceinline__ int mass_place(int page) const {
    const FlowArguments& a = arguments;
    if (a.mass_pages == nullptr) return page;
    const int* const attended = a.mass_pages + index * a.mass_page_stride;
    const int count = a.mass_page_counts[index];
    int place = 0;
    for (int end = count; place < end;) {
      const int middle = (place + end) / 2;
      if (attended[middle] < page) {
        place = middle + 1;
      } else {
        end = middle;
      }
    }
    return place < count && attended[place] == page ? place : -1;
  }
  /// The weight that attention gave a token of the page at such a place for one of `group` heads.
  __device__ __forceinline__ float mass(int place, int page, int token, int of_head, int group, int page_tokens) const {
    const FlowArguments& a = arguments;
    if (place < 0 || (page == pages - 1 && token >= last_tokens)) return 0;
    const long long line = static_cast<long long>(index) * group + of_head;
    const float x = a.masses[line * a.mass_stride + static_cast<long long>(place) * page_tokens + token];
    if (a.mass_sums == nullptr) return x;
    return x == -SLUICE_INF ? 0.0F : exp2f(x - a.mass_sums[line]);
  }
  /// Pages, the oldest ones, that the next step does not count among its `last` newest.
  __device__ __forceinline__ int behind_tail(int last, int page_tokens) const { return max(0, length / page_tokens + 1 - last); }
  /// The states of this layer and head.
  __device__ __forceinline__ float* states(int per_page, int fixed) const {
    const StateBlock& block = arguments.states[sequence];
    return block.values +
           (static_cast<long long>(arguments.state_layer) * arguments.kv_heads + head) * (per_page * block.capacity + fixed);
  }
  __device__ __forceinline__ long long state_capacity() const { return arguments.states[sequence].capacity; }

  const FlowArguments& arguments;
  int index;
  int sequence;
  int head;
  int length;
  const int* ids;        // pages with K and V
  const int* field_ids;  // pages with the fields, where these are others
  int pages;
  int last_tokens;
  float* values;
  long long query_at;
  uint8_t* blocks;
  uint32_t page_stride;
  uint8_t* field_blocks = nullptr;
  uint32_t field_page_stride = 0;
};

__device__ __forceinline__ void wait_for_earlier_kernels() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

/// Combines sums[i] over kLanes neighbouring lanes for every i; lane l of them then returns that of i = l / (kLanes / kCount).
template <class Op, int kCount, int kLanes>
__device__ __forceinline__ float combine_lanes(float (&sums)[kCount]) {
  if constexpr (kCount == 1) {
    float sum = sums[0];
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) sum = Op::of(sum, __shfl_xor_sync(~0U, sum, offset));
    return sum;
  } else {
    static_assert(kCount % 2 == 0 && kCount <= kLanes);
    const bool upper = (threadIdx.x & kLanes / 2) != 0;
    float half[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float mine = upper ? sums[i + kCount / 2] : sums[i];
      const float given = upper ? sums[i] : sums[i + kCount / 2];
      half[i] = Op::of(mine, __shfl_xor_sync(~0U, given, kLanes / 2));
    }
    return combine_lanes<Op, kCount / 2, kLanes / 2>(half);
  }
}

/// The largest number of the lanes of a warp; all get it.
__device__ __forceinline__ float largest_in_warp(float x) {
  // Integers with the order of floats.
  const auto turned = [](int bits) { return bits >= 0 ? bits : bits ^ 0x7fffffff; };
  return __int_as_float(turned(__reduce_max_sync(~0U, turned(__float_as_int(x)))));
}

/// Combines a number of every thread of the block; all get the result. The order is fixed.
template <class Op, class T>
__device__ T combine_block(T x) {
  __shared__ T warps[32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = Op::of(x, __shfl_xor_sync(~0U, x, offset));
  const int lane = threadIdx.x % 32;
  const int count = blockDim.x / 32;
  if (lane == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = lane < count ? warps[lane] : static_cast<T>(Op::start());
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = Op::of(x, __shfl_xor_sync(~0U, x, offset));
  __syncthreads();
  return x;
}

/// How many of `count` pages, of which those that are saved come first, are saved: theirs are not 0. By the whole block.
__device__ int count_saved(const float* pages, int count) {
  int saved = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) saved += pages[i] != 0 ? 1 : 0;
  return combine_block<Add>(saved);
}

/// Combines several numbers of every thread of the block at once; all get the results. The order is fixed.
template <class Op, int kNumber>
__device__ void combine_block_each(float (&x)[kNumber]) {
  __shared__ float warps[32][kNumber];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if constexpr ((kNumber & (kNumber - 1)) == 0) {
    constexpr int kEach = 32 / kNumber;  // lanes that come to have the same number
    const float own = combine_lanes<Op, kNumber, 32>(x);
    if (lane % kEach == 0) warps[warp][lane / kEach] = own;
  } else {
#pragma unroll
    for (int i = 0; i < kNumber; ++i) {
      float one[1] = {x[i]};
      x[i] = combine_lanes<Op, 1, 32>(one);
      if (lane == 0) warps[warp][i] = x[i];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kNumber; ++i) x[i] = warps[0][i];
  const int count = blockDim.x / 32;
#pragma unroll 4
  for (int other = 1; other < count; ++other) {
#pragma unroll
    for (int i = 0; i < kNumber; ++i) x[i] = Op::of(x[i], warps[other][i]);
  }
  __syncthreads();
}

/// Places among the pages that were attended to, of those in a tile of `count` pages from `first` on.
struct AttendedPlaces {
  int first;
  int end;
};
/// Finds them, and writes the place of each page of the tile to `places`, -1 for those that were not attended to; null: nowhere.
/// By the whole block, which all may read behind it.
__device__ AttendedPlaces find_attended(const Row& row, int first, int count, int* places) {
  const FlowArguments& a = row.arguments;
  const bool are_all = a.mass_pages == nullptr;
  if (places != nullptr) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) places[i] = are_all ? first + i : -1;
  }
  if (are_all) {
    __syncthreads();
    return {first, first + count};
  }
  const int* const pages = a.mass_pages + row.index * a.mass_page_stride;
  const int attended = a.mass_page_counts[row.index];
  AttendedPlaces found{0, 0};
#pragma unroll 1
  for (int begin = 0; begin < attended; begin += blockDim.x) {
    const int place = begin + static_cast<int>(threadIdx.x);
    const int page = place < attended ? pages[place] : first + count;
    found.first += __syncthreads_count(page < first);
    found.end += __syncthreads_count(page < first + count);
    if (places != nullptr && page >= first && page < first + count) places[page - first] = place;
  }
  __syncthreads();
  return found;
}

/// Tells top-k how many scores of the row there are to select from, and how many to take.
__device__ __forceinline__ void give_top_k(const Row& row, int selection, int length, int budget) {
  row.arguments.lengths_out[selection * row.arguments.number_stride + row.index] = length;
  row.arguments.budgets_out[selection * row.arguments.number_stride + row.index] = budget;
}

/// What is left of the budget min(B, max(k + first + last, ceil(ratio * B))) for the `middle` that are not kept anyway of all B
/// pages, or tokens.
__device__ __forceinline__ int budget_of_top_k(int all, int middle, long long fixed, double ratio) {
  const long long share = ratio > 0 ? static_cast<long long>(ceil(ratio * all)) : 0;
  const long long wanted = max(fixed, share) - (all - middle);
  return static_cast<int>(max(0LL, min(static_cast<long long>(middle), wanted)));
}

/// How many of the `middle` pages behind the `first` have, with those that are kept anyway, the share of all that weighs more
/// than 0: the best of them, at most `most`. By all threads of the block.
template <class WeightOf>
__device__ __forceinline__ int budget_of_top_p(const Row& row, int first, int middle, double share, int most,
                                               const WeightOf& weight_of) {
  const auto each = [&](const auto& take) {
    for (int p = threadIdx.x; p < row.pages; p += blockDim.x) {
      const float weight = weight_of(p);
      if (weight > 0) take(p, weight, middle > 0 && p >= first && p < first + middle);
    }
  };
  double all = 0;
  double kept = 0;
  each([&](int, float weight, bool is_open) {
    all += weight;
    if (!is_open) kept += weight;
  });
  all = combine_block<Add>(all);
  kept = combine_block<Add>(kept);
  const double wanted = share * all;
  if (!(kept < wanted)) return 0;
  struct Above {
    double sum;
    int count;
  };
  // Positive numbers have the order of their bits.
  const auto above = [&](uint32_t bits) {
    Above found{0, 0};
    each([&](int, float weight, bool is_open) {
      if (!is_open || __float_as_uint(weight) <= bits) return;
      found.sum += weight;
      ++found.count;
    });
    found.sum = combine_block<Add>(found.sum);
    found.count = combine_block<Add>(found.count);
    return found;
  };
  // The last of those that are taken has the bits `end`: what is above them is too little.
  uint32_t begin = 0;
  uint32_t end = 0x7f800000U;
  while (begin < end) {
    const uint32_t middle_bits = begin + (end - begin) / 2;
    if (kept + above(middle_bits).sum < wanted) {
      end = middle_bits;
    } else {
      begin = middle_bits + 1;
    }
  }
  const Above taken = above(end);
  const int with_equals = end == 0 ? taken.count : above(end - 1).count;
  int budget = taken.count;
  for (double sum = kept + taken.sum; budget < with_equals && sum < wanted; ++budget) sum += number(end);
  return min(budget, most);
}

}  // namespace sluice::cuda
