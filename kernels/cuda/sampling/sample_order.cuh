#pragma once

#include <cstdint>

#include "kernels/cuda/selection/topk_keys.cuh"

/// The order of a row's tokens that sampling goes by, and what they weigh.
namespace sluice::cuda::sampling {

using Word = unsigned long long;

inline constexpr int kBucketBits = 10;
inline constexpr int kBuckets = 1 << kBucketBits;
inline constexpr int kWeightBits = 44;
inline constexpr double kFarthest = kWeightBits + 1;  // distances from here on have no weight

/// Where a token stands in the order: earlier is less.
__device__ inline Word place_of(float logit, int id) {
  return static_cast<Word>(~topk::order_key(__float_as_uint(logit))) << 32 | static_cast<uint32_t>(id);
}
__device__ inline float logit_at(Word place) { return topk::score_of(~static_cast<uint32_t>(place >> 32)); }
__device__ inline int token_at(Word place) { return static_cast<int>(static_cast<uint32_t>(place)); }

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

}  // namespace sluice::cuda::sampling
