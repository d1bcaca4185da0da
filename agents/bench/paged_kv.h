#pragma once

#include <cstdint>
#include <memory>
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
    int kv_heads = 2;
    Geometry geometry;
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

  /// Softmax attention in float64 of one query head over `tokens` of a sequence: [dim].
  std::vector<double> judge(const float* query, float scale, int layer, int sequence, int kv_head,
                            const std::vector<int>& tokens) const;

 private:
  static float number(uint32_t what, int layer, int sequence, int token, int head, int d);

  Shape shape_;
  std::vector<int32_t> pages_;
  std::unique_ptr<Pool> pool_;
};

/// Largest |got - wanted| over `count` numbers is within `tolerance`; false for NaN.
bool agrees(const float* got, const std::vector<double>& wanted, double tolerance);

}  // namespace sluice
