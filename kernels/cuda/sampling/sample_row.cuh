#pragma once

#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/sampling/sample_histogram.cuh"

namespace sluice::cuda::sampling {

// Sampling asks for a place in the order of tokens (the most likely first, the lower id of equals) three times: where top_k ends,
// where top_p ends, and where the number drawn falls. No row is sorted for it. A histogram over distances from the best logit
// says in which bucket a place lies; the few tokens of that bucket, or of all up to it, are listed and sorted by the first block
// of the row's cluster. A bucket that is too large (ties, or logits far apart) is divided by the bits of (logit, id) until it is
// not. Weights are integers, so that their sums do not depend on the order in which threads add them.

/// One row, in the hands of a cluster. All of its blocks take the same decisions.
class RowSampler : RowHistogram {
 public:
  __device__ RowSampler(Shared& shared, const Line& line) : RowHistogram(shared, line) {}

  __device__ Sampled sample(const SampleRow& choice) {
    const Extent extent = whole_row();
    const float best = logit_at(extent.first);
    Sampled result{token_at(extent.first), !extent.damaged && best > -INFINITY};
    if (choice.given >= 0) result.token = choice.given;
    if (choice.given >= 0 || choice.temperature <= 0 || isinf(best)) return result;
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

  __device__ void count_by_distance() {
    count([&](Word, double distance) { return scale_.bucket(distance); });
    by_distance_ = true;
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

  Cell listed_;               // nothing at first
  bool by_distance_ = false;  // whether the sums are by distance, of the whole row
  int searches_ = 0;
};

}  // namespace sluice::cuda::sampling
