#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_decode.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/simd-inl.h"

// The heads of a group are taken four, two or one at a time (`Heads`); a vector of scores holds tokens x heads. K and V are
// read in units of two vectors, as `load_pair` gives them; the query and the output lie in that order too. Rows whose
// length is no multiple of a unit are first widened into zero-padded float32 rows.

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

constexpr int kUnit = 2 * static_cast<int>(kLanes);
constexpr int kSlabUnits = kLanes >= 16 ? 2 : 1;  // units of the output that stay in registers
constexpr int kBlockTokens = 128;                 // between two looks at the running maximum
constexpr int kMostPages = kBlockTokens / 8;

/// K or V of the tokens of one block: a row pointer for each page.
template <typename T>
struct BlockRows {
  const T* pages[kMostPages];
  const T* next_pages[kMostPages];  // of the following block, to be prefetched
  int page = 0;                     // tokens
  int tokens = 0;
  int dim = 0;
};

template <typename T>
HWY_INLINE void prefetch_row(const T* row, int dim) {
  const char* bytes = reinterpret_cast<const char*>(row);
  for (int i = 0; i < dim * static_cast<int>(sizeof(T)); i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

/// scores[token][Heads] = q . k. Writes whole quadruples; those past the last token are garbage of the same page.
template <int Heads, typename T>
HWY_INLINE void score_block(const BlockRows<T>& block, const float* query, float* scores) {
  constexpr int kTokens = 4 / Heads;  // of one quadruple
  for (int p = 0; p * block.page < block.tokens; ++p) {
    const int tokens = std::min(block.page, block.tokens - p * block.page);
    const T* row = block.pages[p];
    const T* next = block.next_pages[p];
    for (int t = 0; t < tokens; t += kTokens, row += kTokens * block.dim, next += kTokens * block.dim) {
      for (int i = 0; i < kTokens; ++i) prefetch_row(next + i * block.dim, block.dim);
      VecF32 sums[4];
      SLUICE_UNROLL for (int i = 0; i < 4; ++i) sums[i] = hn::Zero(kF32);
      for (int d = 0; d < block.dim; d += kUnit) {
        SLUICE_UNROLL for (int i = 0; i < kTokens; ++i) {
          VecF32 first;
          VecF32 second;
          load_pair(row + i * block.dim + d, first, second);
          SLUICE_UNROLL for (int h = 0; h < Heads; ++h) {
            const float* q = query + h * block.dim + d;
            sums[i * Heads + h] = hn::MulAdd(first, hn::Load(kF32, q), sums[i * Heads + h]);
            sums[i * Heads + h] = hn::MulAdd(second, hn::Load(kF32, q + kLanes), sums[i * Heads + h]);
          }
        }
      }
      store_four_sums(sums[0], sums[1], sums[2], sums[3], scores);
      scores += 4;
    }
  }
}

/// output[Heads][dim] = output * rescale[Heads] + sum of weights[token][Heads] * v, `Units` units from `d` on.
template <int Heads, int Units, typename T>
HWY_INLINE void weigh_slab(const BlockRows<T>& block, int d, const float* weights, const float* rescale, float* output) {
  VecF32 sums[Heads][2 * Units];
  SLUICE_UNROLL for (int h = 0; h < Heads; ++h) {
    SLUICE_UNROLL for (int u = 0; u < 2 * Units; ++u) {
      sums[h][u] = hn::Mul(hn::Set(kF32, rescale[h]), hn::Load(kF32, output + h * block.dim + d + u * kLanes));
    }
  }
  for (int p = 0; p * block.page < block.tokens; ++p) {
    const int tokens = std::min(block.page, block.tokens - p * block.page);
    const T* row = block.pages[p] + d;
    const T* next = block.next_pages[p] + d;
    for (int t = 0; t < tokens; ++t, row += block.dim, next += block.dim, weights += Heads) {
      prefetch_row(next, Units * kUnit);
      VecF32 value[2 * Units];
      SLUICE_UNROLL for (int u = 0; u < Units; ++u) load_pair(row + u * kUnit, value[2 * u], value[2 * u + 1]);
      SLUICE_UNROLL for (int h = 0; h < Heads; ++h) {
        const VecF32 weight = hn::Set(kF32, weights[h]);
        SLUICE_UNROLL for (int u = 0; u < 2 * Units; ++u) sums[h][u] = hn::MulAdd(weight, value[u], sums[h][u]);
      }
    }
  }
  SLUICE_UNROLL for (int h = 0; h < Heads; ++h) {
    SLUICE_UNROLL for (int u = 0; u < 2 * Units; ++u) { hn::Store(sums[h][u], kF32, output + h * block.dim + d + u * kLanes); }
  }
}

/// Turns scores[tokens][Heads] into 2^(score - maximum); updates maximum and sum, and gives what the old output counts now.
/// Works on `kRow` numbers at a time, a whole number of tokens.
template <int Heads>
HWY_INLINE void soften(float* scores, int tokens, float* maximum, float* sum, float* rescale) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  constexpr size_t kRow = HWY_MAX(kLanes, 4);
  constexpr size_t kVectors = kRow / kLanes;
  const size_t count = static_cast<size_t>(tokens) * Heads;
  const size_t padded = (count + kRow - 1) / kRow * kRow;
  for (size_t i = count; i < padded; ++i) scores[i] = kMinusInfinity;
  HWY_ALIGN float row[kRow];
  for (size_t v = 0; v < kVectors; ++v) {
    VecF32 largest = hn::Load(kF32, scores + v * kLanes);
    for (size_t i = kRow; i < padded; i += kRow) largest = hn::Max(largest, hn::Load(kF32, scores + i + v * kLanes));
    hn::Store(largest, kF32, row + v * kLanes);
  }
  for (int h = 0; h < Heads; ++h) {
    float value = maximum[h];
    for (size_t i = h; i < kRow; i += Heads) value = std::max(value, row[i]);
    rescale[h] = maximum[h] == value ? 1.0f : std::exp2(maximum[h] - value);
    maximum[h] = value;
  }
  // Where every score so far is -inf, its powers are to vanish rather than to be NaN.
  for (size_t i = 0; i < kRow; ++i) row[i] = maximum[i % Heads] == kMinusInfinity ? 0.0f : maximum[i % Heads];
  for (size_t v = 0; v < kVectors; ++v) {
    const VecF32 shift = hn::Load(kF32, row + v * kLanes);
    VecF32 total = hn::Zero(kF32);
    for (size_t i = v * kLanes; i < padded; i += kRow) {
      const VecF32 power = exp2(hn::Sub(hn::Load(kF32, scores + i), shift));
      total = hn::Add(total, power);
      hn::Store(power, kF32, scores + i);
    }
    hn::Store(total, kF32, row + v * kLanes);
  }
  for (int h = 0; h < Heads; ++h) {
    float value = 0;
    for (size_t i = h; i < kRow; i += Heads) value += row[i];
    sum[h] = sum[h] * rescale[h] + value;
  }
}

template <int Heads, typename T>
void attend_heads(const BlockRows<T>& keys, const BlockRows<T>& values, const float* query, float* scores, float* maximum,
                  float* sum, float* output) {
  float rescale[Heads];
  score_block<Heads>(keys, query, scores);
  soften<Heads>(scores, keys.tokens, maximum, sum, rescale);
  int d = 0;
  for (; d + kSlabUnits * kUnit <= values.dim; d += kSlabUnits * kUnit) {
    weigh_slab<Heads, kSlabUnits>(values, d, scores, rescale, output);
  }
  if constexpr (kSlabUnits > 1) {
    for (; d < values.dim; d += kUnit) weigh_slab<Heads, 1>(values, d, scores, rescale, output);
  }
}

/// One block for the whole group; heads past `group` up to the padded count are zero queries.
template <typename T>
void attend_block(const BlockRows<T>& keys, const BlockRows<T>& values, const float* query, int group, float* scores,
                  float* maximum, float* sum, float* output) {
  for (int h = 0; h < group;) {
    const float* q = query + h * keys.dim;
    float* out = output + h * keys.dim;
    if (group - h >= 3) {
      attend_heads<4>(keys, values, q, scores, maximum + h, sum + h, out);
      h += 4;
    } else if (group - h == 2) {
      attend_heads<2>(keys, values, q, scores, maximum + h, sum + h, out);
      h += 2;
    } else {
      attend_heads<1>(keys, values, q, scores, maximum + h, sum + h, out);
      h += 1;
    }
  }
}

int padded_group(int group) { return (group + 3) / 4 * 4; }
int padded_dim(int dim) { return (dim + kUnit - 1) / kUnit * kUnit; }

template <typename T>
void set_block(BlockRows<T>& block, const KvPages& kv, std::span<const int32_t> pages, size_t first, int count, bool keys) {
  for (int i = 0; i < count; ++i) {
    const int32_t page = pages[first + i];
    const int32_t next = pages[std::min(first + i + count, pages.size() - 1)];
    block.pages[i] = reinterpret_cast<const T*>(keys ? kv.keys(page) : kv.values(page));
    block.next_pages[i] = reinterpret_cast<const T*>(keys ? kv.keys(next) : kv.values(next));
  }
}

/// Copies the rows of a block into zero-padded float32 rows.
template <typename T>
void widen_block(const KvPages& kv, const BlockRows<T>& from, int dim, float* rows, BlockRows<float>& to) {
  for (int t = 0; t < from.tokens; ++t) {
    const T* row = from.pages[t / from.page] + t % from.page * kv.dim;
    for (int i = 0; i < kv.dim; ++i) {
      if constexpr (sizeof(T) == 2) {
        rows[t * dim + i] = widen(row[i]);
      } else {
        rows[t * dim + i] = row[i];
      }
    }
    std::fill(rows + t * dim + kv.dim, rows + (t + 1) * dim, 0.0f);
  }
  to.pages[0] = to.next_pages[0] = rows;
  to.page = kBlockTokens;
  to.tokens = from.tokens;
  to.dim = dim;
}

template <typename T>
void attend_piece_of(const KvPages& kv, std::span<const int32_t> pages, int last_tokens, const float* query, int group,
                     float scale, float* scratch, const Partial& result) {
  const int dim = padded_dim(kv.dim);
  const bool direct = dim == kv.dim;
  const int heads = padded_group(group);
  float* scores = scratch;
  float* packed = scores + 4 * kBlockTokens;
  float* output = packed + heads * dim;
  float* wide_keys = output + heads * dim;
  float* wide_values = wide_keys + kBlockTokens * dim;

  const float factor = scale * 1.44269504088896341f;
  std::fill(packed, packed + 2 * heads * dim, 0.0f);  // the output too
  for (int h = 0; h < group; ++h) {
    for (int i = 0; i < kv.dim; ++i) {
      packed[h * dim + (direct ? paired_position<T>(i) : i)] = query[h * kv.dim + i] * factor;
    }
  }
  float maximum[kMostHeads];
  float sum[kMostHeads];
  std::fill(maximum, maximum + heads, -std::numeric_limits<float>::infinity());
  std::fill(sum, sum + heads, 0.0f);

  const int pages_per_block = kBlockTokens / kv.page;
  BlockRows<T> keys;
  BlockRows<T> values;
  keys.page = values.page = kv.page;
  keys.dim = values.dim = kv.dim;
  for (size_t first = 0; first < pages.size(); first += pages_per_block) {
    const int count = static_cast<int>(std::min<size_t>(pages_per_block, pages.size() - first));
    keys.tokens = values.tokens = count * kv.page - (first + count == pages.size() ? kv.page - last_tokens : 0);
    set_block(keys, kv, pages, first, count, true);
    set_block(values, kv, pages, first, count, false);
    if (direct) {
      attend_block(keys, values, packed, group, scores, maximum, sum, output);
    } else {
      BlockRows<float> float_keys;
      BlockRows<float> float_values;
      widen_block(kv, keys, dim, wide_keys, float_keys);
      widen_block(kv, values, dim, wide_values, float_values);
      attend_block(float_keys, float_values, packed, group, scores, maximum, sum, output);
    }
  }
  for (int h = 0; h < group; ++h) {
    result.maximum[h] = maximum[h];
    result.sum[h] = sum[h];
    for (int i = 0; i < kv.dim; ++i) result.output[h * kv.dim + i] = output[h * dim + (direct ? paired_position<T>(i) : i)];
  }
}

void attend_piece_any(const KvPages& kv, std::span<const int32_t> pages, int last_tokens, const float* query, int group,
                      float scale, float* scratch, const Partial& result) {
  if (kv.type == DataType::kBF16) {
    attend_piece_of<uint16_t>(kv, pages, last_tokens, query, group, scale, scratch, result);
  } else {
    attend_piece_of<float>(kv, pages, last_tokens, query, group, scale, scratch, result);
  }
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(attend_piece_any);

namespace {
constexpr int kWidestUnit = 32;  // numbers that a unit has with the widest vectors
constexpr int kLongestBlock = 128;
}  // namespace

int pieces_of(int pages, int page_tokens) {
  const int pages_per_piece = std::max(1, kPieceTokens / page_tokens);
  return (pages + pages_per_piece - 1) / pages_per_piece;
}

size_t partial_floats(int group, int dim) { return (static_cast<size_t>(group) * (dim + 2) + 15) / 16 * 16; }

Partial partial_at(float* buffer, int group, int dim) { return {buffer, buffer + group, buffer + 2 * group}; }

size_t decode_scratch_floats(int group, int dim) {
  const size_t widest = (dim + kWidestUnit - 1) / kWidestUnit * kWidestUnit;
  const size_t heads = (group + 3) / 4 * 4;
  return 4 * kLongestBlock + 2 * heads * widest + 2 * kLongestBlock * widest;
}

void attend_piece(const KvPages& kv, std::span<const int32_t> pages, int last_tokens, const float* query, int group, float scale,
                  float* scratch, const Partial& result) {
  HWY_DYNAMIC_DISPATCH(attend_piece_any)(kv, pages, last_tokens, query, group, scale, scratch, result);
}

void merge_partials(float* partials, int count, int group, int dim, float* out, float* log_sums) {
  const size_t step = partial_floats(group, dim);
  const Partial first = partial_at(partials, group, dim);
  for (int h = 0; h < group; ++h) {
    float maximum = first.maximum[h];
    float sum = first.sum[h];
    float* output = out + h * dim;
    std::memcpy(output, first.output + h * dim, dim * sizeof(float));
    for (int i = 1; i < count; ++i) {
      const Partial next = partial_at(partials + i * step, group, dim);
      const float larger = std::max(maximum, next.maximum[h]);
      const float mine = maximum == larger ? 1.0f : std::exp2(maximum - larger);
      const float theirs = next.maximum[h] == larger ? 1.0f : std::exp2(next.maximum[h] - larger);
      sum = sum * mine + next.sum[h] * theirs;
      for (int d = 0; d < dim; ++d) output[d] = output[d] * mine + next.output[h * dim + d] * theirs;
      maximum = larger;
    }
    const float inverse = 1.0f / sum;
    for (int d = 0; d < dim; ++d) output[d] *= inverse;
    if (log_sums != nullptr) log_sums[h] = maximum + std::log2(sum);
  }
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
