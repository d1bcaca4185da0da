// What selections of kernels that hold rows (row.cuh) add pages to.

namespace sluice::cuda {

/// The pages of a row that are selected: those of this block as bits.
class PageSet {
 public:
  /// `bits` in shared memory: a word for every 32 of the block's pages [first, first + count).
  __device__ PageSet(uint32_t* bits, int first, int count)
      : bits_(bits), words_((count + 31) / 32), run_((words_ + 31) / 32), first_(first), count_(count) {}

  /// Selects the `first` and `last` of `pages` pages, and no others. By the first `threads` threads.
  __device__ void begin(int first, int last, int pages, int threads) {
#pragma unroll 1
    for (int word = threadIdx.x; word < words_; word += threads) {
      bits_[word] = kept(first, last, pages, first_ + 32 * word);
    }
  }

  /// Of the pages [begin, begin + 32), the `first` and `last` of `pages` pages.
  static __device__ uint32_t kept(int first, int last, int pages, int begin) {
    return bits_below(pages, begin) & (bits_below(first, begin) | ~bits_below(pages - last, begin));
  }

  /// Adds the four pages of each lane of a warp, all 128 of which follow each other: bit i for page `at` + i of the block.
  __device__ void add(uint32_t four, int at) {
    uint32_t word = four << at % 32;
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) word |= __shfl_xor_sync(~0U, word, lanes);
    if (at % 32 == 0 && at < count_) bits_[at / 32] |= word;
  }

  /// Adds page `at` of the block; not while others are added by fours.
  __device__ void add_one(int at) { atomicOr(&bits_[at / 32], 1U << at % 32); }

  /// Counts them behind a barrier, each warp for itself; returns their number in this block.
  __device__ int count() {
    const int lane = threadIdx.x % 32;
    const int begin = min(lane * run_, words_);
    const int end = min(begin + run_, words_);
    int own = 0;
#pragma unroll 1
    for (int word = begin; word < end; ++word) own += __popc(bits_[word]);
    int through = own;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int lower = __shfl_up_sync(~0U, through, lanes);
      if (lane >= lanes) through += lower;
    }
    before_run_ = through - own;
    return __shfl_sync(~0U, through, 31);
  }

  __device__ int words() const { return words_; }
  __device__ uint32_t word(int at) const { return bits_[at]; }
  /// How many lie before word `at`, once they are counted. By whole warps.
  __device__ int rank_of_word(int at) const {
    const int run = at / run_;
    int rank = __shfl_sync(~0U, before_run_, run);
#pragma unroll 1
    for (int word = run * run_; word < at; ++word) rank += __popc(bits_[word]);
    return rank;
  }
  __device__ bool has(int at) const { return (bits_[at / 32] >> at % 32 & 1) != 0; }

 private:
  /// The bits of pages [begin, begin + 32) that lie before `end`.
  static __device__ uint32_t bits_below(int end, int begin) {
    if (end <= begin) return 0;
    return end - begin >= 32 ? ~0U : (1U << (end - begin)) - 1;
  }

  uint32_t* bits_;
  int words_;
  int run_;  // words that a lane counts
  int first_;
  int count_;
  int before_run_ = 0;  // those before this lane's words
};

}  // namespace sluice::cuda
