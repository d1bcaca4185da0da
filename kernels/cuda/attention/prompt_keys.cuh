#pragma once

#include "kernels/cuda/attention/attention_device.cuh"
#include "kernels/cuda/attention/prefill_widen.cuh"
#include "kernels/cuda/attention/prompt_masses.h"

/// How keys of a prompt reach those that multiply them once more.
namespace sluice::cuda::masses {

inline constexpr int kTile = 64;  // rows, and tokens
inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / 32;
static_assert(kTile == 16 * kWarps);

struct Task {
  PromptRows rows;
  const std::byte* base;  // K and V: block (page, KV head) at base + (page * kv_heads + head) * block_bytes
  size_t block_bytes;
  size_t key_offset;
  Divisor by_page;
  int kv_heads;
  float* log_sums;  // [kv_heads * group, rows]
  float2* parts;    // [shares, kv_heads * group, rows]: the maximum and the sum beside it, of a share of the tokens
  float* sums;
  int64_t stride;
  int known;
};

/// Tiles of kTile keys in shared memory, as bf16, `Stages` of them at once. A row of a tile has Dim numbers and a gap,
/// so that eight rows meet no bank twice.
template <DataType Type, int Dim, int Stages>
class KeyTiles {
 public:
  static constexpr int kRowBytes = 2 * Dim + 16;
  static constexpr int kTileBytes = kTile * kRowBytes;

 private:
  static constexpr bool kWidens = Type != DataType::kBF16;
  static constexpr int kEights = Dim / 8;                       // of a row
  static constexpr int kEightBytes = kWidens ? 8 : 16;          // as pages have them
  static constexpr int kOfThread = kTile * kEights / kThreads;  // eights that a thread copies
  static constexpr int kStageBytes = kWidens ? kTile * Dim : kTileBytes;
  static constexpr int kWidened = kWidens ? 2 : 0;  // tiles

 public:
  static constexpr size_t kBytes = Stages * kStageBytes + kWidened * kTileBytes;
  /// Tiles that are asked for before the first is taken, and tile by tile from then on.
  static constexpr int kAhead = Stages - 1;

  __device__ __forceinline__ KeyTiles(const Task& task, int kv_head, uint8_t* shared)
      : task_(task), kv_head_(kv_head), shared_(shared) {}

  /// Those of the tokens from `first` on; zeros for slots that nobody holds. None if `first` is not before `end`.
  __device__ __forceinline__ void ask(int first, int end) {
    if (first < end) {
      uint8_t* const stage = shared_ + asked_ * kStageBytes;
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
        const int slot = first + token_of(i);
        const bool is_held = slot < task_.rows.length;
        const int page = task_.by_page.quotient(is_held ? slot : 0);
        const auto block = static_cast<size_t>(__ldg(task_.rows.pages + page)) * task_.kv_heads + kv_head_;
        const std::byte* const row = task_.base + block * task_.block_bytes + task_.key_offset +
                                     static_cast<size_t>(task_.by_page.remainder(is_held ? slot : 0)) * (kEights * kEightBytes);
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(stage + place_of(i))),
                     "l"(row + eight() * kEightBytes), "n"(kEightBytes), "r"(is_held ? kEightBytes : 0)
                     : "memory");
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asked_ = asked_ + 1 == Stages ? 0 : asked_ + 1;
  }

  /// The shared address of the tile that was asked for first of those that are not taken. All threads of a block call this; the
  /// tile before may be overwritten then.
  __device__ __forceinline__ uint32_t take() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - 1) : "memory");
    const uint8_t* tile = shared_ + taken_ * kStageBytes;
    if constexpr (kWidens) {
      // A thread widens what it has copied itself.
      uint8_t* const wide = shared_ + Stages * kStageBytes + widened_ * kTileBytes;
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
        const uint2 eight_numbers = *reinterpret_cast<const uint2*>(tile + place_of(i));
        const uint2 low = prefill::widen_to_bf16<Type>(eight_numbers.x);
        const uint2 high = prefill::widen_to_bf16<Type>(eight_numbers.y);
        *reinterpret_cast<uint4*>(wide + token_of(i) * kRowBytes + 16 * eight()) = {low.x, low.y, high.x, high.y};
      }
      widened_ = (widened_ + 1) % kWidened;
      tile = wide;
    }
    __syncthreads();
    taken_ = taken_ + 1 == Stages ? 0 : taken_ + 1;
    return shared_address(tile);
  }

 private:
  static __device__ __forceinline__ int token_of(int i) {
    return static_cast<int>(threadIdx.x) / kEights + i * (kThreads / kEights);
  }
  static __device__ __forceinline__ int eight() { return static_cast<int>(threadIdx.x) % kEights; }
  /// Of an eight in a stage.
  static __device__ __forceinline__ int place_of(int i) {
    return token_of(i) * (kWidens ? Dim : kRowBytes) + eight() * kEightBytes;
  }

  const Task& task_;
  int kv_head_;
  uint8_t* shared_;
  int asked_ = 0;  // stages
  int taken_ = 0;
  int widened_ = 0;
};

}  // namespace sluice::cuda::masses
