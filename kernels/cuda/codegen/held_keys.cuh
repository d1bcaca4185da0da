// What these kernels select by. Text behind that of topk_keys.cuh.

namespace sluice::cuda {

/// Order keys of the scores of a row that this block holds: keys[0, count) of the pages from `first` on. Those that are not among
/// pages [begin, end) are kNoKey.
template <int kThreads>
struct HeldKeys {
  uint32_t* keys;
  int first;
  int count;
  int begin;
  int end;

  /// Calls use(place of four): warps have equal stretches of whole steps.
  template <class Use>
  __device__ void places(int warp, int lane, const Use& use) const {
    constexpr int kAtOnce = 4 * kThreads;
    const int steps = (count + kAtOnce - 1) / kAtOnce;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const int at = (warp * steps + step) * topk::kStep + 4 * lane;
      if (at - 4 * lane >= count) return;
      use(at);
    }
  }
  /// Makes the keys; what a thread visits later is what it made.
  template <class Use>
  __device__ void make(const float* scores, int warp, int lane, const Use& use) const {
    const auto wanted = static_cast<uint32_t>(end - begin);
    places(warp, lane, [&](int at) {
      uint4 four{};
      if (at < count) four = *reinterpret_cast<const uint4*>(scores + at);
      const auto key = [&](uint32_t bits, int i) {
        return at + i < count && static_cast<uint32_t>(first + at + i - begin) < wanted ? topk::order_key(bits) : topk::kNoKey;
      };
      four = {key(four.x, 0), key(four.y, 1), key(four.z, 2), key(four.w, 3)};
      if (at < count) *reinterpret_cast<uint4*>(keys + at) = four;
      use(four);
    });
  }
  /// Four keys and the place of the first at a time.
  template <class Use>
  __device__ void visit(int warp, int lane, const Use& use) const {
    places(warp, lane, [&](int at) {
      uint4 four{};
      if (at < count) four = *reinterpret_cast<const uint4*>(keys + at);
      use(four, at);
    });
  }
};

}  // namespace sluice::cuda
