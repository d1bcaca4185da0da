// What the kernels share that keep a whole row on chip, from scores to the list of selected pages. The row belongs to a block, or
// to the blocks of a cluster, each with a stretch of its pages. Text behind that of prelude.cuh; selection follows in
// row_selection.cuh.

namespace sluice::cuda {

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
/// Brings a line of 128 bytes, or its part, nearer.
__device__ __forceinline__ void prefetch_line(const uint8_t* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}
/// Brings part of a page nearer while it may still change: L2 has whatever is written meanwhile. By the whole block.
__device__ __forceinline__ void prefetch(const uint8_t* from, int bytes) {
  constexpr int kLine = 128;
#pragma unroll 1
  for (int at = threadIdx.x * kLine; at < bytes; at += blockDim.x * kLine) {
    prefetch_line(from + at);
  }
}
/// The same by one thread; `from` and `bytes` are multiples of 16.
__device__ __forceinline__ void prefetch_whole(const uint8_t* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
/// Waits for the threads that compute fields.
__device__ __forceinline__ void sync_field_threads() { asm volatile("bar.sync 1, %0;" ::"n"(kFieldThreads) : "memory"); }

/// The blocks that have a row.
class RowBlocks {
 public:
  /// `shared`: several blocks may have it, else one.
  __device__ __forceinline__ explicit RowBlocks(bool shared)
      : count(shared ? static_cast<int>(cluster_blocks()) : 1), rank(shared ? static_cast<int>(cluster_rank()) : 0) {
    if (count == 1) return;
    if (threadIdx.x == 0) {
      for (int turn = 0; turn < 2; ++turn) barrier_init(mailbox(turn), 1);
      publish_barriers();
    }
    arrive_in_cluster();
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

  /// Sends `x`, a multiple of eight bytes, to block `to`, at the place that this block has as `own`: part of what is received
  /// next there. A barrier of this block must lie between what it received before and this.
  template <class T>
  __device__ __forceinline__ void send(T* own, const T& x, int to) const {
    static_assert(sizeof(T) % sizeof(uint64_t) == 0);
    if (count == 1) {
      *own = x;
      return;
    }
    uint64_t words[sizeof(T) / sizeof(uint64_t)];
    memcpy(words, &x, sizeof(T));
    const uint32_t target = place_in(to, shared_address(own));
    const uint32_t barrier = place_in(to, mailbox(received_ % 2));
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / sizeof(uint64_t)); ++i) send_eight(target + 8 * i, words[i], barrier);
  }
  /// Waits for all that is sent to this block, `bytes`, by itself as well. Every block sends something to each. By all threads; a
  /// barrier of the block only if there are no others.
  __device__ __forceinline__ void receive(int bytes) {
    if (count == 1) {
      __syncthreads();
      return;
    }
    const uint32_t barrier = mailbox(received_ % 2);
    if (threadIdx.x == 0) barrier_expect(barrier, bytes);
    wait_for_blocks(barrier, received_ / 2 % 2);
    ++received_;
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

  /// Combines what each block has of several numbers, which all threads of a block have alike.
  template <class Op, int kNumber>
  __device__ void join_each(float (&x)[kNumber]) {
    if (count == 1) return;
    struct Numbers {
      float at[kNumber];
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

  /// Of lines of which each thread has the largest number of its warp and its own sum of powers beside that: of the whole row,
  /// {largest, sum of powers beside it}. All get the result. The order is fixed.
  template <int kNumber>
  __device__ void join_powers(const float (&largest)[kNumber], float (&powers)[kNumber], float2 (&sums)[kNumber]) {
    __shared__ float2 warps[kNumber][32];
    __shared__ float2 parts[2][topk::kMaxCluster][kNumber];  // by turns
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warp_count = static_cast<int>(blockDim.x) / 32;
#pragma unroll
    for (int i = 0; i < kNumber; ++i) {
      float one[1] = {powers[i]};
      const float sum = combine_lanes<Add, 1, 32>(one);
      if (lane == i) warps[i][warp] = {largest[i], sum};
    }
    __syncthreads();
    float2(&turn)[topk::kMaxCluster][kNumber] = parts[received_ % 2];
#pragma unroll 1
    for (int line = warp; line < kNumber; line += warp_count) {
      const float2 own = lane < warp_count ? warps[line][lane] : float2{Max::start(), 0};
      const float highest = largest_in_warp(own.x);
      float one[1] = {own.y * expf(own.x - (highest == Max::start() ? 0 : highest))};
      const float sum = combine_lanes<Add, 1, 32>(one);
      if (lane < count) send(&turn[rank][line], float2{highest, sum}, lane);
    }
    receive(static_cast<int>(sizeof(float2)) * count * kNumber);
#pragma unroll
    for (int i = 0; i < kNumber; ++i) sums[i] = {Max::start(), 0};
#pragma unroll 1
    for (int block = 0; block < count; ++block) {
#pragma unroll
      for (int i = 0; i < kNumber; ++i) sums[i].x = fmaxf(sums[i].x, turn[block][i].x);
    }
#pragma unroll 1
    for (int block = 0; block < count; ++block) {
#pragma unroll
      for (int i = 0; i < kNumber; ++i) {
        const float2 part = turn[block][i];
        sums[i].y += part.y * expf(part.x - (sums[i].x == Max::start() ? 0 : sums[i].x));
      }
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
  /// What counts what is sent to this block, by turns: nobody sends what comes after next before it has the next of all blocks,
  /// which they send once they have this.
  static __device__ __forceinline__ uint32_t mailbox(int turn) {
    __shared__ uint64_t barriers[2];
    return shared_address(barriers + turn);
  }

  int turn_ = 0;
  int received_ = 0;
};

}  // namespace sluice::cuda
