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
class Pass {
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

  std::span<const int32_t> positions() const { return positions_; }      // [rows] of the token in its sequence
  std::span<const int32_t> row_sequences() const { return sequences_; }  // [rows]
  std::span<const TouchedPage> touched() const { return touched_; }

  int query_rows(int sequence) const { return batch_.query_rows(sequence); }
  /// The pages that hold the sequence's tokens, oldest first.
  std::span<const int32_t> pages(int sequence) const { return batch_.pages(sequence, pool_->layout().page); }
  /// Tokens in the last of `pages`.
  int last_tokens(int sequence) const { return (batch_.lengths[sequence] - 1) % pool_->layout().page + 1; }

 private:
  PassBatch batch_;
  CpuPool* pool_ = nullptr;
  int64_t number_ = 0;
  std::vector<int32_t> positions_;
  std::vector<int32_t> sequences_;
  std::vector<TouchedPage> touched_;
};

}  // namespace sluice::cpu
