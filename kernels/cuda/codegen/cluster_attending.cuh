// What the kernel has that takes a row from scores to attention by the blocks of a cluster. Each scores a stretch of the row's
// pages and gives its scores to the others, all select the same, and each attends to an equal part of that. Text behind that of
// attending.cuh.

namespace sluice::cuda {

/// Gives all blocks that have a row of `pages` pages what this one has of it: scores and places in the pool of its pages
/// [first, first + count), a multiple of four before them. The arrays lie at the same place in every block and have room for
/// whole fours. Behind a barrier of the block; behind it, whoever has all may change what it has.
__device__ __forceinline__ void share_pages(RowBlocks& blocks, float* scores, int* ids, int pages, int first, int count) {
  __shared__ uint64_t here[topk::kMaxCluster];  // of each block, which may have no pages: that it has come here
  const int fours = (count + 3) / 4;
  const int others = (pages + 3) / 4 - fours;
  if (static_cast<int>(threadIdx.x) < blocks.count) blocks.send(here + blocks.rank, uint64_t{1}, threadIdx.x);
#pragma unroll 1
  for (int i = threadIdx.x; i < fours * (blocks.count - 1); i += blockDim.x) {
    const int at = first + 4 * (i % fours);
    const uint32_t to = (blocks.rank + 1 + i / fours) % blocks.count;
    blocks.send(reinterpret_cast<uint4*>(scores + at), *reinterpret_cast<const uint4*>(scores + at), to);
    blocks.send(reinterpret_cast<uint4*>(ids + at), *reinterpret_cast<const uint4*>(ids + at), to);
  }
  __syncthreads();  // nobody changes what is still to be sent
  blocks.receive(others * 2 * static_cast<int>(sizeof(uint4)) + blocks.count * static_cast<int>(sizeof(uint64_t)));
}

/// What the blocks of a cluster found of a row on its way to being one: each block merges an equal part of the output, and is
/// sent what all found of it. A target of decode::merge_warps.
template <int kGroup, int kDim>
class ClusterTarget {
 public:
  /// `received`: room for `kNumbers` numbers at the same place in every block.
  static constexpr int kNumbers = kGroup * kDim + 2 * topk::kMaxCluster * (1 + kGroup);

  __device__ __forceinline__ ClusterTarget(RowBlocks& blocks, float* received, uint16_t* out)
      : blocks_(blocks),
        each_((kPairs + blocks.count - 1) / blocks.count),
        values_(reinterpret_cast<float2*>(received)),
        sums_(values_ + blocks.count * each_),
        out_(reinterpret_cast<uint32_t*>(out)) {}

  template <int Dim>
  __device__ __forceinline__ void put(int, int head, int at, float2 value, float highest, float total) const {
    static_assert(Dim == kDim);
    if (blocks_.count == 1) {
      store(at / 2, value, total);
      return;
    }
    blocks_.send(values_ + blocks_.rank * each_ + at / 2 % each_, value, at / 2 / each_);
    if (at % kDim != 0) return;
#pragma unroll 1
    for (int block = 0; block < blocks_.count; ++block)
      blocks_.send(sums_ + blocks_.rank * kGroup + head, float2{highest, total}, block);
  }

  /// Behind all that is put, by all threads of the cluster. The order of sums is that of the blocks. No block has anything to do
  /// with another that has received this.
  __device__ __forceinline__ void finish() const {
    if (blocks_.count == 1) return;
    const int own = max(0, min(each_, kPairs - blocks_.rank * each_));
    blocks_.receive(blocks_.count * (own + kGroup) * static_cast<int>(sizeof(float2)));
#pragma unroll 1
    for (int i = threadIdx.x; i < own; i += blockDim.x) {
      const int pair = blocks_.rank * each_ + i;
      const float2* const sums = sums_ + 2 * pair / kDim;
      float highest = kMinusInfinity;
#pragma unroll 4
      for (int block = 0; block < blocks_.count; ++block) highest = fmaxf(highest, sums[block * kGroup].x);
      const float shift = highest == kMinusInfinity ? 0.0F : highest;
      float total = 0;
      float2 value{0, 0};
#pragma unroll 4
      for (int block = 0; block < blocks_.count; ++block) {
        const float2 sum = sums[block * kGroup];
        const float2 theirs = values_[block * each_ + i];
        const float weight = power(sum.x - shift);
        total += weight * sum.y;
        value.x += weight * theirs.x;
        value.y += weight * theirs.y;
      }
      store(pair, value, total);
    }
  }

 private:
  static constexpr int kPairs = kGroup * kDim / 2;

  __device__ __forceinline__ void store(int pair, float2 value, float total) const {
    const float inverse = total > 0 ? __fdividef(1, total) : 0;
    out_[pair] = pack(value.x * inverse, value.y * inverse);
  }

  RowBlocks& blocks_;
  int each_;        // pairs of outputs that a block merges
  float2* values_;  // [blocks][each_] of this block's pairs
  float2* sums_;    // [blocks][group] highest and total
  uint32_t* out_;
};

}  // namespace sluice::cuda
