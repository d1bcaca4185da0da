#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace sluice {

/// A pool for benchmarks, larger than the caches, whose K and V are a formula: a judge can compute them without reading the
/// pool. Values are multiples of 1/64 in [-1, 1), so they are the same in every KV type.
class PagedKv {
 public:
  struct Shape {
    int layers = 1;
    int sequences = 8;
    int tokens = 8192;
    // The heads of the mini model.
    int kv_heads = 2;
    Geometry geometry = {.head_dim = 64, .group = 4, .page = 16, .kv = DataType::kBF16};

    int query_heads() const { return kv_heads * geometry.group; }
    /// "kv_heads 2, group 4, dim 64, bf16"
    std::string heads_text() const;
  };
  PagedKv(Device& device, const Shape& shape);

  Pool& pool() { return *pool_; }
  const Shape& shape() const { return shape_; }
  int pages_per_sequence() const { return shape_.tokens / shape_.geometry.page; }
  /// Pages of all sequences, [sequences, pages_per_sequence]: ids are shuffled.
  const std::vector<int32_t>& pages() const { return pages_; }

  static float key(int layer, int sequence, int token, int head, int d) { return number(1, layer, sequence, token, head, d); }
  static float value(int layer, int sequence, int token, int head, int d) { return number(2, layer, sequence, token, head, d); }
  static float query(int row, int column) { return number(3, 0, 0, row, 0, column); }

 private:
  static float number(uint32_t what, int layer, int sequence, int token, int head, int d);

  Shape shape_;
  std::vector<int32_t> pages_;
  std::unique_ptr<Pool> pool_;
};

/// Attention of `rows` rows of queries over a PagedKv, call after call, and its judge.
class PagedAttention {
 public:
  PagedAttention(Device& device, PagedKv& kv, int rows);

  /// A pass of the device that attends in one layer.
  void run(const PassBatch& batch, int layer);
  /// Fills the outputs with NaN, so that what a call leaves out is found.
  void clear();
  /// The output of one query head of a row is softmax attention in float64 over `tokens` of a sequence.
  bool is_correct(int row, int head, int layer, int sequence, const std::vector<int>& tokens) const;

 private:
  Device& device_;
  PagedKv& kv_;
  int rows_;
  int64_t columns_;             // query heads times dim
  std::vector<float> queries_;  // [rows, columns]
  std::vector<float> outputs_;  // [rows, columns]
};

}  // namespace sluice
