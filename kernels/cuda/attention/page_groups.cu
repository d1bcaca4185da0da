#include "kernels/cuda/attention/page_groups.h"

#include "kernels/cuda/primitives/overlap.cuh"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kLog2E = 1.4426950408889634F;

/// Of a row: a bit for each group that is open.
class OpenGroups {
 public:
  __device__ OpenGroups(uint32_t* words, int count, int pages) : words_(words), count_(count), pages_(pages) {}

  __device__ void clear() const {
    for (int i = static_cast<int>(threadIdx.x); i * 32 < count_; i += kThreads) words_[i] = 0;
  }
  __device__ void open(const int32_t* positions, int count) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      const int group = __ldcg(positions + i) / pages_;
      if (group < count_) atomicOr(words_ + group / 32, 1U << group % 32);
    }
  }
  __device__ bool is_open(int group) const { return (words_[group / 32] >> group % 32 & 1) != 0; }

 private:
  uint32_t* words_;
  int count_;
  int pages_;
};

/// The logits of a head for a row's pages, in base 2, as they are told and as they are left.
class RowLogits {
 public:
  __device__ RowLogits(const WeighedPages& a, const PageGroups& groups, int64_t row, int head)
      : from_(a.logits + row * a.row_stride + head),
        bias_(a.bias == nullptr ? nullptr : a.bias + row * a.row_stride + (a.bias_heads == 1 ? 0 : head)),
        to_(groups.logits + row * groups.stride + head),
        heads_(a.group),
        bias_heads_(a.bias_heads),
        scale_(a.scale * kLog2E),
        common_(a.common_bias * kLog2E) {}

  __device__ float of(int page) const {
    const float logit = __fmaf_rn(__ldcg(from_ + int64_t{page} * heads_), scale_, common_);
    return bias_ == nullptr ? logit : __fmaf_rn(__ldcg(bias_ + int64_t{page} * bias_heads_), kLog2E, logit);
  }
  __device__ void set(int page, float logit) const { to_[int64_t{page} * heads_] = logit / scale_; }

 private:
  const float* from_;
  const float* bias_;
  float* to_;
  int heads_;
  int bias_heads_;
  float scale_;
  float common_;
};

/// A group of a head: its pages begin at `first`.
__device__ void weigh_group(const RowLogits& logits, const PageGroups& groups, int first, bool is_open) {
  float sum = 0;
  float largest = -INFINITY;
  for (int page = first; page < first + groups.pages; ++page) {
    const float logit = logits.of(page);
    sum += logit;
    largest = fmaxf(largest, logit);
  }
  const auto count = static_cast<float>(groups.pages);
  // Without a count the group weighs as one entry, which its pages have equal parts of.
  const float all = sum / count + (groups.counts ? log2f(count) : 0.0F);
  if (!is_open) {
    for (int page = first; page < first + groups.pages; ++page) logits.set(page, all - log2f(count));
    return;
  }
  if (all == -INFINITY) {  // nobody looks at the group, whatever its pages weigh beside each other
    for (int page = first; page < first + groups.pages; ++page) logits.set(page, -INFINITY);
    return;
  }
  float powers = 0;
  for (int page = first; page < first + groups.pages; ++page) powers += exp2f(logits.of(page) - largest);
  const float shift = all - largest - log2f(powers);
  for (int page = first; page < first + groups.pages; ++page) logits.set(page, logits.of(page) + shift);
}

__global__ __launch_bounds__(kThreads) void groups_kernel(const __grid_constant__ WeighedPages a,
                                                          const __grid_constant__ PageGroups groups) {
  extern __shared__ uint32_t words[];
  wait_for_earlier_kernels();
  const auto row = static_cast<int64_t>(blockIdx.x);
  const int tokens = __ldg(a.lengths + row / a.kv_heads);
  const int pages = (tokens + a.page - 1) / a.page;
  const int first_page = min(groups.first, pages);
  const int end_page = max(first_page, pages - groups.last);
  const int count = (pages + groups.pages - 1) / groups.pages;  // the last may have fewer pages
  const OpenGroups open(words, count, groups.pages);
  open.clear();
  __syncthreads();
  open.open(a.attended + row * a.attended_stride, __ldcg(a.attended_counts + row));
  if (groups.opened != nullptr) open.open(groups.opened + row * groups.opened_stride, __ldcg(groups.opened_counts + row));
  __syncthreads();
  // Others weigh what they weigh.
  const auto is_weighed = [&](int group) {
    const bool is_whole = group * groups.pages >= first_page && (group + 1) * groups.pages <= end_page;
    return is_whole && (groups.shares || !open.is_open(group));
  };
  for (int i = static_cast<int>(threadIdx.x); i < pages * a.group; i += kThreads) {
    const int page = i / a.group;
    const RowLogits logits(a, groups, row, i % a.group);
    if (!is_weighed(page / groups.pages)) logits.set(page, logits.of(page));
  }
  for (int i = static_cast<int>(threadIdx.x); i < count * a.group; i += kThreads) {
    const int group = i / a.group;
    const RowLogits logits(a, groups, row, i % a.group);
    if (is_weighed(group)) weigh_group(logits, groups, group * groups.pages, open.is_open(group));
  }
  let_next_kernel_start();
}

}  // namespace

void weigh_groups(const WeighedPages& pages, const PageGroups& groups, Stream stream) {
  const int rows = pages.sequences * pages.kv_heads;
  if (rows == 0) return;
  const int most = (pages.most_pages + groups.pages - 1) / groups.pages;
  const size_t bytes = static_cast<size_t>((most + 31) / 32) * sizeof(uint32_t);
  SLUICE_CHECK_CUDA(cudaFuncSetAttribute(groups_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  launch_overlapping(groups_kernel, {dim3(rows), dim3(kThreads), bytes}, stream, pages, groups);
}

}  // namespace sluice::cuda
