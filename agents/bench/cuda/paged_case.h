#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/attention/decode_attention.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/bits.h"

namespace sluice {

/// Decode attention over a pool of random K and V in device memory, with a float64 judge on the host.
struct PagedCaseShape {
  int sequences = 1;
  int kv_heads = 1;
  int group = 1;
  int dim = 128;
  int page = 16;
  int tokens = 16;                  // of each sequence
  int selected = 0;                 // pages of each (sequence, KV head), drawn at random; 0: all pages of the sequence
  bool shared = false;              // those of a sequence, of all its KV heads together
  std::vector<uint32_t> mask = {};  // shared: which of their tokens count, if not all do
  bool ragged = false;  // lists hold random numbers of tokens up to that, some none; what lies past them in a page is NaN
  int sets = 1;         // different selections; calls rotate through them
  unsigned seed = 1;
  DataType kv = DataType::kBF16;  // or e4m3, e5m2
  int query_exponent = 0;         // q is multiplied by 2^this, and divided by it again in the scores
  bool sink = false;              // group 1: V of a row's first token is 0, and its power about 2^26 of every other token's
};

class PagedCase {
 public:
  explicit PagedCase(const PagedCaseShape& shape);

  /// One call over selection `set` (modulo their number).
  void run(int64_t set, cuda::Stream stream);
  /// Fills the outputs with NaN, so that what a call leaves out shows.
  void poison();

  int rows() const { return shape_.sequences * shape_.kv_heads; }
  /// Bytes of K and V that one call must read.
  double bytes() const;
  /// What the last call over set 0 gave: bf16 [rows, group, dim] and float32 [rows, group].
  std::vector<uint16_t> outputs() const;
  std::vector<float> log_sums() const;
  /// Relative error (2-norms) of the worst head of a row after a call over set 0; 1 if a log sum is off by more than 2e-3.
  double error(int row) const;

 private:
  bool is_per_head() const { return shape_.selected > 0 && !shape_.shared; }
  int list_of(int row) const { return is_per_head() ? row : row / shape_.kv_heads; }
  bool counts(int token) const { return shape_.mask.empty() || has_bit(shape_.mask, token); }
  float score_scale() const;
  void draw_pool();
  void draw_lists();
  void spoil_tails();
  void place_sinks(const std::vector<std::byte>& q);

  PagedCaseShape shape_;
  PageLayout layout_;
  int pages_per_sequence_;
  int pages_per_list_;
  int lists_;
  std::vector<int32_t> pages_;   // [sets, lists, pages_per_list]
  std::vector<int32_t> tokens_;  // [lists]
  cuda::DeviceMemory pool_, device_pages_, device_starts_, device_tokens_, device_mask_indptr_, device_masks_, q_, out_,
      log_sums_, workspace_;
  cuda::DecodeAttention attention_;
};

}  // namespace sluice
