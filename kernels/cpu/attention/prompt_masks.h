#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device/pass_batch.h"

namespace sluice::cpu {

/// What the rows of a prompt see in a group of layers whose sequence has masks, in two parts. Where the layers' pattern has a
/// stride and a row sees few of kBlockTokens tokens, tiles would multiply many numbers that do not count (under a stride of 512
/// all but a 128th): such tokens are told one by one, and of the masks the others are left. What is told of a row depends on the
/// row alone.
class PromptMasks {
 public:
  static constexpr int kBlockTokens = 128;
  static constexpr int kFewTokens = 8;  // of a block

  /// Those of a sequence, unless they are there since this pass. What `kept` has must stay until the next.
  void split(int64_t pass, const GroupPages& kept, int sequence, int rows);

  int stride() const { return words_ * heads_; }  // words from a row's mask to the next row's
  /// What a row sees in a KV head but for the tokens told one by one, a bit a slot.
  const uint32_t* mask(int row, int kv_head) const { return masks_.data() + place(row, kv_head) * static_cast<size_t>(words_); }
  /// Slots of the others, ascending.
  std::span<const int32_t> scattered(int row, int kv_head) const {
    if (scattered_.empty()) return {};
    const size_t at = place(row, kv_head);
    return std::span(scattered_).subspan(scattered_indptr_[at], scattered_indptr_[at + 1] - scattered_indptr_[at]);
  }
  /// Words with a bit for each slot that any row has in its mask, found once a pass.
  std::span<const uint32_t> seen();

 private:
  size_t place(int row, int kv_head) const {
    return static_cast<size_t>(row) * static_cast<size_t>(heads_) + static_cast<size_t>(kv_head % heads_);
  }

  int64_t pass_ = -1;
  int words_ = 0;                    // of a mask
  int heads_ = 1;                    // masks of a row
  std::span<const uint32_t> masks_;  // [rows][heads][words]: as the batch has them, or
  std::vector<uint32_t> others_;     // those without what is told one by one
  std::vector<uint32_t> seen_;       // empty: not found yet
  std::vector<int32_t> scattered_;
  std::vector<size_t> scattered_indptr_;  // [rows][heads], and the end
};

}  // namespace sluice::cpu
