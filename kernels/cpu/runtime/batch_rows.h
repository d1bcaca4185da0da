#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/runtime/pool.h"
#include "kernels/device.h"

namespace sluice::cpu {

/// A page that a pass writes to, and the tokens it holds afterwards.
struct TouchedPage {
  int32_t page = 0;
  int32_t tokens = 0;
};

/// The batch of one forward pass, checked, with what every operation needs to know of its rows.
class BatchRows {
 public:
  /// Sizes the arrays for passes of up to `limits`.
  void reserve(const Device::Limits& limits);
  /// Throws InternalError naming the field of the batch that disagrees.
  void begin(const PassBatch& batch, CpuPool& pool);
  void end() { pool_ = nullptr; }

  bool active() const { return pool_ != nullptr; }
  const PassBatch& batch() const { return batch_; }
  CpuPool& pool() const { return *pool_; }
  /// Counts passes, so that tables made for one are not used for the next.
  int64_t number() const { return number_; }

  std::span<const int32_t> positions() const { return batch_.positions; }  // [rows] of the token in its sequence
  std::span<const int32_t> row_sequences() const { return sequences_; }    // [rows]
  /// Of a group.
  std::span<const TouchedPage> touched(int group) const { return touched_[static_cast<size_t>(group)]; }

  int query_rows(int sequence) const { return batch_.query_rows(sequence); }
  const GroupPages& group(int index) const { return batch_.groups[static_cast<size_t>(index)]; }
  /// Slots of a group that rows of a sequence may see: all in use where masks say more, else those up to the last row's.
  int seen(int group, int sequence) const {
    return this->group(group).is_masked(sequence) ? this->group(group).lengths[sequence] : batch_.seen(group, sequence);
  }
  /// The pages of these slots.
  std::span<const int32_t> pages(int group, int sequence) const {
    const GroupPages& kept = this->group(group);
    return kept.page_indices.subspan(static_cast<size_t>(kept.page_indptr[sequence]),
                                     static_cast<size_t>(pages_for(seen(group, sequence), pool_->layout(group).page)));
  }
  /// Tokens in the last of `pages`.
  int last_tokens(int group, int sequence) const { return (seen(group, sequence) - 1) % pool_->layout(group).page + 1; }
  /// What a row sees of a group in a KV head, a bit a slot; null: the slots up to its own.
  const uint32_t* mask(int group, int sequence, int row, int kv_head) const {
    const GroupPages& kept = this->group(group);
    return kept.is_masked(sequence) ? kept.mask(sequence, row, kv_head).data() : nullptr;
  }

 private:
  /// Finds the pages of a group that rows are written to.
  void touch(int group);

  PassBatch batch_;
  CpuPool* pool_ = nullptr;
  int64_t number_ = 0;
  std::vector<int32_t> sequences_;
  std::vector<std::vector<TouchedPage>> touched_;  // [groups]
  size_t most_rows_ = 0;
};

}  // namespace sluice::cpu
