#include "kernels/cuda/sample.h"

#include <cooperative_groups.h>

#include <algorithm>
#include <array>

#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/topk_keys.cuh"

namespace sluice::cuda {
namespace {

// Sampling asks for a place in the order of tokens (the most likely first, the lower id of equals) three times: where top_k ends,
// where top_p ends, and where the number drawn falls. No row is sorted for it. A histogram over distances from the best logit
// says in which bucket a place lies; the few tokens of that bucket, or of all up to it, are listed and sorted by the first block
// of the row's cluster. A bucket that is too large (ties, or logits far apart) is divided by the bits of (logit, id) until it is
// not. Weights are integers, so that their sums do not depend on the order in which threads add them.

namespace cg = cooperative_groups;
using Word = unsigned long long;

constexpr int kCluster = 8;  // blocks a row
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr int kBucketBits = 10;
constexpr int kBuckets = 1 << kBucketBits;
constexpr int kList = 1024;  // tokens that are sorted at most
constexpr int kEach = 4;     // neighbours in a list or histogram that a thread sums
constexpr int kWeightBits = 44;
constexpr double kFarthest = kWeightBits + 1;  // distances from here on have no weight
static_assert(kBuckets == kThreads * kEach && kList == kThreads * kEach && kThreads == 2 * kBuckets / kCluster);

struct Line {
  const float* logits;
  int columns;
};

/// Where a token stands in the order: earlier is less.
__device__ Word place_of(float logit, int id) {
  return static_cast<Word>(~topk::order_key(__float_as_uint(logit))) << 32 | static_cast<uint32_t>(id);
}
__device__ float logit_at(Word place) { return topk::score_of(~static_cast<uint32_t>(place >> 32)); }
__device__ int token_at(Word place) { return static_cast<int>(static_cast<uint32_t>(place)); }

struct Extent {
  Word first = ~Word{0};
  Word last = 0;
  bool damaged = false;

  __device__ void join(const Extent& other) {
    first = min(first, other.first);
    last = max(last, other.last);
    damaged |= other.damaged;
  }
};

/// The first token with which tokens, or their weights, add up to `at`.
struct Goal {
  bool by_count;
  Word at;
};

struct Sum {
  uint32_t tokens = 0;
  Word weight = 0;

  __device__ bool reaches(const Goal& goal) const { return (goal.by_count ? tokens : weight) >= goal.at; }
  __device__ Sum operator+(const Sum& more) const { return {tokens + more.tokens, weight + more.weight}; }
};

/// Neighbours in the order.
struct Cell {
  int first_bucket = 0;
  int last_bucket = kBuckets;
  Word first = 0;  // place
  Word last = ~Word{0};
  Sum before;   // of all earlier tokens
  Sum through;  // and of these

  __device__ int tokens() const { return static_cast<int>(through.tokens - before.tokens); }
  __device__ bool covers(const Goal& goal) const { return !before.reaches(goal) && through.reaches(goal); }
  __device__ bool has(int bucket, Word place) const {
    return bucket >= first_bucket && bucket <= last_bucket && place >= first && place <= last;
  }
};

/// A token, and the weight of all up to it.
struct Found {
  Word place = 0;
  Word weight = 0;
};

/// Weights of logits: 2^(kWeightBits - distance), rounded down, where a distance counts halvings of the best token's share.
struct Scale {
  float best = 0;
  double factor = 0;
  float buckets = 0;  // a unit of distance

  __device__ double distance(float logit) const { return (static_cast<double>(best) - logit) * factor; }
  __device__ int bucket(double distance) const {
    return min(kBuckets - 1, static_cast<int>(static_cast<float>(distance) * buckets));
  }
  /// No logit below this lies in buckets up to `bucket`.
  __device__ float least(int bucket) const {
    if (bucket == kBuckets - 1) return -INFINITY;
    return __double2float_rd(best - (bucket + 1) * 1.00001 / buckets / factor);
  }
  __device__ static Word weight(double distance) {
    const int whole = __double2int_rd(distance);
    const float share = exp2f(static_cast<float>(whole - distance));  // (0.5, 1]
    return static_cast<Word>(__float2uint_rn(share * 0x1p24F)) << (kWeightBits - 24) >> whole;
  }
};

struct Shared {
  uint32_t counts[kBuckets];  // of this block
  Word weights[kBuckets];
  uint32_t all_counts[kBuckets];  // of the cluster, each with those before it
  Word all_weights[kBuckets];
  Word list[kList];  // the first block's: places, ascending
  Word list_weights[kList];
  Extent extent;
  Extent warp_extents[kWarps];
  Sum warp_sums[kWarps];
  Found found[2];
  uint32_t listed;
  int crossing;
};

/// One row, in the hands of a cluster. All of its blocks take the same decisions.
class RowSampler {
 public:
  __device__ RowSampler(Shared& shared, const Line& line)
      : shared_(shared),
        line_(line),
        block_(static_cast<int>(cg::this_cluster().block_rank())),
        thread_(static_cast<int>(threadIdx.x)) {}

  __device__ Sampled sample(const SampleRow& choice) {
    const Extent extent = whole_row();
    const float best = logit_at(extent.first);
    Sampled result{token_at(extent.first), !extent.damaged && best > -INFINITY};
    if (choice.temperature <= 0 || isinf(best)) return result;
    scale_.best = best;
    scale_.factor = 1.4426950408889634 / choice.temperature;
    const auto farthest = static_cast<float>(fmin(kFarthest, scale_.distance(logit_at(extent.last))));
    scale_.buckets = farthest > 1e-30F ? kBuckets / farthest : 0;

    Found found;
#pragma unroll 1
    for (int search = kTopK; search <= kDraw; ++search) {
      if (!by_distance_) count_by_distance();
      if (search == kTopK) found.weight = bucket_sum(kBuckets - 1).weight;
      if (search == kTopK && (choice.top_k == 0 || choice.top_k >= bucket_sum(kBuckets - 1).tokens)) continue;
      if (search == kTopP && choice.top_p >= 1) continue;
      found = find(goal_of(search, choice, found.weight));
    }
    result.token = token_at(found.place);
    return result;
  }

 private:
  enum Search { kTopK, kTopP, kDraw };

  /// `kept` is the weight of all tokens up to where the last search ended.
  __device__ static Goal goal_of(int search, const SampleRow& choice, Word kept) {
    if (search == kTopK) return {true, static_cast<Word>(choice.top_k)};
    const double weight = __ull2double_rn(kept);
    const Word wanted = search == kTopP ? __double2ull_ru(choice.top_p * weight) : __double2ull_rd(choice.uniform * weight) + 1;
    return {false, min(max(wanted, Word{1}), kept)};
  }

  /// Calls body(id, logit) for this block's part of the row, ids of a thread ascending, with kTogether loads on their way at a
  /// time. All lanes of a warp come along; those past the end get -inf.
  template <int kTogether, class Body>
  __device__ void visit(Body&& body) const {
    constexpr int kStride = kCluster * kThreads;
    const bool by_fours = reinterpret_cast<uintptr_t>(line_.logits) % sizeof(float4) == 0;
    const int packs = by_fours ? line_.columns / 4 : 0;
    const int mine = block_ * kThreads + thread_;
    const auto load = [&](int at) {
      return at < packs ? reinterpret_cast<const float4*>(line_.logits)[at] : float4{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    };
    float4 pack[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) pack[i] = load(mine + i * kStride);
#pragma unroll 1
    for (int start = mine; start - mine < packs; start += kTogether * kStride) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int at = start + i * kStride;
        const float4 now = pack[i];
        pack[i] = load(at + kTogether * kStride);
        body(4 * at, now.x);
        body(4 * at + 1, now.y);
        body(4 * at + 2, now.z);
        body(4 * at + 3, now.w);
      }
    }
#pragma unroll 1
    for (int id = 4 * packs + mine; id - mine < line_.columns; id += kStride)
      body(id, id < line_.columns ? line_.logits[id] : -INFINITY);
  }

  /// body(id, logit, distance) for tokens that have weight, of logits that are not below `least`.
  template <class Body>
  __device__ void visit_from(float least, Body&& body) const {
    visit<2>([&](int id, float logit) {
      if (!(logit >= least) || logit == -INFINITY) return;
      const double distance = scale_.distance(logit);
      if (distance < kFarthest) body(id, logit, distance);
    });
  }

  __device__ Extent whole_row() {
    float best = -INFINITY;
    float least = INFINITY;
    int id_of_best = 0;
    bool damaged = false;
    visit<4>([&](int id, float logit) {
      if (logit > best) {
        best = logit;
        id_of_best = id;
      }
      if (logit > -INFINITY) least = fminf(least, logit);
      damaged |= !(logit < INFINITY);
    });
    return joined({place_of(best, id_of_best), place_of(least, 0), damaged});
  }

  /// Of all threads of the cluster.
  __device__ Extent joined(Extent extent) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      extent.join({__shfl_xor_sync(kAllLanes, extent.first, mask), __shfl_xor_sync(kAllLanes, extent.last, mask),
                   __shfl_xor_sync(kAllLanes, static_cast<int>(extent.damaged), mask) != 0});
    }
    if (thread_ % 32 == 0) shared_.warp_extents[thread_ / 32] = extent;
    __syncthreads();
    if (thread_ == 0) {
#pragma unroll 1
      for (int warp = 0; warp < kWarps; ++warp) extent.join(shared_.warp_extents[warp]);
      shared_.extent = extent;
    }
    cg::this_cluster().sync();
#pragma unroll 1
    for (int block = 0; block < kCluster; ++block) extent.join(*of_block(&shared_.extent, block));
    return extent;
  }

  template <class T>
  __device__ static T* of_block(T* mine, int block) {
    return cg::this_cluster().map_shared_rank(mine, block);
  }

  /// Adds `weight`, and `tokens` to the count. Sums of 64 bits are two of 32, of which the lower says when it wraps.
  __device__ void add_to(int bucket, uint32_t tokens, Word weight) {
    atomicAdd(&shared_.counts[bucket], tokens);
    auto* const halves = reinterpret_cast<uint32_t*>(&shared_.weights[bucket]);
    const auto low = static_cast<uint32_t>(weight);
    const uint32_t high = static_cast<uint32_t>(weight >> 32) + (atomicAdd(halves, low) + low < low ? 1 : 0);
    if (high != 0) atomicAdd(halves + 1, high);
  }

  /// The same for the warp's tokens, each in its bucket, or none (-1).
  __device__ void add(int bucket, Word weight) {
    if (!__all_sync(kAllLanes, bucket == __shfl_sync(kAllLanes, bucket, 0))) {
      if (bucket >= 0) add_to(bucket, 1, weight);
      return;
    }
    if (bucket < 0) return;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) weight += __shfl_xor_sync(kAllLanes, weight, mask);
    if (thread_ % 32 == 0) add_to(bucket, 32, weight);
  }

  /// Histograms of the row by `bucket_of(place, distance)`, -1 for tokens that do not count; then sums from the first bucket on.
  template <class BucketOf>
  __device__ void count(BucketOf&& bucket_of) {
    for (int i = thread_; i < kBuckets; i += kThreads) {
      shared_.counts[i] = 0;
      shared_.weights[i] = 0;
    }
    __syncthreads();
    visit<1>([&](int id, float logit) {
      const double distance = scale_.distance(logit);
      const bool weighty = logit > -INFINITY && distance < kFarthest;
      const int bucket = weighty ? bucket_of(place_of(logit, id), distance) : -1;
      add(bucket, bucket < 0 ? 0 : Scale::weight(distance));
    });
    cg::this_cluster().sync();
    // Each block adds up its share of the buckets for all.
    constexpr int kShare = kBuckets / kCluster;
    const int bucket = block_ * kShare + thread_ % kShare;
    if (thread_ < kShare) {
      share_total(&shared_.counts[bucket], &shared_.all_counts[bucket]);
    } else {
      share_total(&shared_.weights[bucket], &shared_.all_weights[bucket]);
    }
    cg::this_cluster().sync();
    Sum mine;
    for (int i = kEach * thread_; i < kEach * (thread_ + 1); ++i)
      mine = mine + Sum{shared_.all_counts[i], shared_.all_weights[i]};
    Sum sum = before(mine);
    for (int i = kEach * thread_; i < kEach * (thread_ + 1); ++i) {
      sum = sum + Sum{shared_.all_counts[i], shared_.all_weights[i]};
      shared_.all_counts[i] = sum.tokens;
      shared_.all_weights[i] = sum.weight;
    }
    __syncthreads();
  }

  template <class T>
  __device__ static void share_total(T* part, T* total) {
    T sum = 0;
#pragma unroll
    for (int block = 0; block < kCluster; ++block) sum += *of_block(part, block);
#pragma unroll
    for (int block = 0; block < kCluster; ++block) *of_block(total, block) = sum;
  }

  /// The sum of `mine` of all threads before this one of the block.
  __device__ Sum before(const Sum& mine) {
    const int lane = thread_ % 32;
    Sum sum = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const Sum more{__shfl_up_sync(kAllLanes, sum.tokens, step), __shfl_up_sync(kAllLanes, sum.weight, step)};
      if (lane >= step) sum = sum + more;
    }
    if (lane == 31) shared_.warp_sums[thread_ / 32] = sum;
    __syncthreads();
    Sum result{sum.tokens - mine.tokens, sum.weight - mine.weight};
#pragma unroll 1
    for (int warp = 0; warp < thread_ / 32; ++warp) result = result + shared_.warp_sums[warp];
    return result;
  }

  __device__ Sum bucket_sum(int bucket) const {
    return bucket < 0 ? Sum{} : Sum{shared_.all_counts[bucket], shared_.all_weights[bucket]};
  }

  __device__ void count_by_distance() {
    count([&](Word, double distance) { return scale_.bucket(distance); });
    by_distance_ = true;
  }

  /// The first i of `count` for which sum_at(i) reaches the goal; the last does.
  template <class SumAt>
  __device__ int first_reaching(int count, const Goal& goal, SumAt&& sum_at) {
#pragma unroll 1
    for (int i = thread_; i < count; i += kThreads) {
      if (sum_at(i).reaches(goal) && (i == 0 || !sum_at(i - 1).reaches(goal))) shared_.crossing = i;
    }
    __syncthreads();
    const int crossing = shared_.crossing;
    __syncthreads();
    return crossing;
  }

  /// Tokens with the goal among them, few enough to list.
  __device__ Cell narrow(const Goal& goal) {
    const int bucket = first_reaching(kBuckets, goal, [&](int i) { return bucket_sum(i); });
    Cell cell;
    cell.last_bucket = bucket;
    cell.through = bucket_sum(bucket);
    if (cell.tokens() <= kList) return cell;  // all from the best on, where the next goal will lie as well
    cell.first_bucket = bucket;
    cell.before = bucket_sum(bucket - 1);
    while (cell.tokens() > kList) cell = part_of(cell, goal);
    return cell;
  }

  /// The part, of 1024, in which the goal lies.
  __device__ Cell part_of(const Cell& cell, const Goal& goal) {
    by_distance_ = false;
    const auto is_in = [&](Word place, double distance) { return cell.has(scale_.bucket(distance), place); };
    Extent extent;
    visit_from(scale_.least(cell.last_bucket), [&](int id, float logit, double distance) {
      const Word place = place_of(logit, id);
      if (is_in(place, distance)) extent.join({place, place, false});
    });
    extent = joined(extent);
    const int shift = max(0, 64 - __clzll(static_cast<int64_t>(extent.last - extent.first)) - kBucketBits);
    count([&](Word place, double distance) {
      return is_in(place, distance) ? static_cast<int>((place - extent.first) >> shift) : -1;
    });
    const int part = first_reaching(kBuckets, goal, [&](int i) { return cell.before + bucket_sum(i); });
    Cell result = cell;
    result.first = extent.first + (static_cast<Word>(part) << shift);
    result.last = result.first + ((Word{1} << shift) - 1);
    result.before = cell.before + bucket_sum(part - 1);
    result.through = cell.before + bucket_sum(part);
    return result;
  }

  /// Collects the tokens of `cell` in the first block, in order, with their weights summed.
  __device__ void list(const Cell& cell) {
    if (thread_ == 0) shared_.listed = 0;
    cg::this_cluster().sync();
    visit_from(scale_.least(cell.last_bucket), [&](int id, float logit, double distance) {
      const Word place = place_of(logit, id);
      if (!cell.has(scale_.bucket(distance), place)) return;
      const uint32_t slot = atomicAdd(of_block(&shared_.listed, 0), 1U);
      *of_block(&shared_.list[slot], 0) = place;
    });
    cg::this_cluster().sync();
    listed_ = cell;
    if (block_ != 0) return;
    sort(cell.tokens());
    const auto weight = [&](int i) { return i < cell.tokens() ? Scale::weight(scale_.distance(logit_at(shared_.list[i]))) : 0; };
    Sum mine;
    for (int i = kEach * thread_; i < kEach * (thread_ + 1); ++i) mine.weight += weight(i);
    Word sum = cell.before.weight + before(mine).weight;
    for (int i = kEach * thread_; i < kEach * (thread_ + 1); ++i) shared_.list_weights[i] = sum += weight(i);
    __syncthreads();
  }

  /// Bitonic.
  __device__ void sort(int tokens) {
    int size = 2;
    while (size < tokens) size *= 2;
    for (int i = tokens + thread_; i < size; i += kThreads) shared_.list[i] = ~Word{0};
    __syncthreads();
#pragma unroll 1
    for (int run = 2; run <= size; run *= 2) {
#pragma unroll 1
      for (int apart = run / 2; apart > 0; apart /= 2) {
#pragma unroll 1
        for (int i = thread_; i < size / 2; i += kThreads) {
          Word& low = shared_.list[2 * i - (i & (apart - 1))];
          Word& high = (&low)[apart];
          const bool rises = ((2 * i - (i & (apart - 1))) & run) == 0;
          const Word one = low;
          const Word other = high;
          if ((one > other) != rises) continue;
          low = other;
          high = one;
        }
        __syncthreads();
      }
    }
  }

  __device__ Found find(const Goal& goal) {
    if (!listed_.covers(goal)) list(narrow(goal));
    Found* const found = &shared_.found[searches_++ % 2];  // the other one may not have been read everywhere
    if (block_ == 0) {
      const int at = first_reaching(listed_.tokens(), goal, [&](int i) {
        return Sum{listed_.before.tokens + i + 1, shared_.list_weights[i]};
      });
      if (thread_ < kCluster) *of_block(found, thread_) = {shared_.list[at], shared_.list_weights[at]};
    }
    cg::this_cluster().sync();
    return *found;
  }

  Shared& shared_;
  Line line_;
  int block_;
  int thread_;
  Scale scale_;
  Cell listed_;               // nothing at first
  bool by_distance_ = false;  // whether the sums are by distance, of the whole row
  int searches_ = 0;
};

__global__ void __launch_bounds__(kThreads, 4)
    sample_rows(const float* logits, int64_t stride, int columns, const SampleRow* choices, Sampled* out) {
  __shared__ Shared shared;
  const int row = static_cast<int>(blockIdx.x) / kCluster;
  const SampleRow choice = choices[row];
  wait_for_earlier_kernels();
  const Sampled result = RowSampler(shared, {logits + choice.row * stride, columns}).sample(choice);
  if (threadIdx.x == 0 && cg::this_cluster().block_rank() == 0) out[row] = result;
  cg::this_cluster().sync();  // others may still read this block's memory
}

}  // namespace

void Sampler::FreePinned::operator()(void* memory) const { cudaFreeHost(memory); }

void Sampler::reserve(size_t rows) {
  if (rows <= capacity_) return;
  memory_.reset();
  capacity_ = 0;
  void* memory = nullptr;
  SLUICE_CHECK_CUDA(cudaMallocHost(&memory, rows * (sizeof(SampleRow) + sizeof(Sampled))));
  memory_.reset(memory);
  capacity_ = rows;
}

void Sampler::run(const Matrix& logits, std::span<const SampleRow> rows, std::span<Sampled> out, Stream stream) {
  if (rows.empty()) return;
  reserve(rows.size());
  auto* const choices = static_cast<SampleRow*>(memory_.get());
  auto* const results = reinterpret_cast<Sampled*>(choices + capacity_);
  std::copy(rows.begin(), rows.end(), choices);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kCluster;
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  std::array attributes{overlap_attribute(), cluster};
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(rows.size() * kCluster);
  config.blockDim = kThreads;
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = attributes.size();
  SLUICE_CHECK_CUDA(cudaLaunchKernelEx(&config, sample_rows, static_cast<const float*>(logits.f32()), logits.stride,
                                       static_cast<int>(logits.columns), static_cast<const SampleRow*>(choices), results));
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream));
  std::copy_n(results, rows.size(), out.begin());
}

}  // namespace sluice::cuda
