#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/device.h"
#include "kernels/device/batch_builder.h"

namespace sluice::test {

/// The value that the pool's type keeps of `value`, found without the device's own rounding.
inline float as_stored(float value, DataType type) {
  if (type == DataType::kF32) return value;
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);  // [0.5, 1): 8 bits are kept
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8));
}

/// A batch over a pool with shuffled pages, K and V of which are also kept plainly for the judge.
class PagedBatch {
 public:
  struct Sequence {
    int length = 1;
    int rows = 1;
    bool decoding = true;
  };

  PagedBatch(Device& device, std::vector<Sequence> sequences, int kv_heads, Geometry geometry, int layers = 1)
      : PagedBatch(device, std::move(sequences), kv_heads, geometry, page_layout(geometry, {}), layers) {}

  PagedBatch(Device& device, std::vector<Sequence> sequences, int kv_heads, Geometry geometry, const PageLayout& layout,
             int layers = 1)
      : sequences_(std::move(sequences)), kv_heads_(kv_heads), geometry_(geometry), batch_(geometry.page) {
    int pages = 0;
    for (const Sequence& sequence : sequences_) {
      first_page_.push_back(pages);
      pages += pages_for(sequence.length, geometry.page);
    }
    page_indices_.resize(pages + 3);
    std::iota(page_indices_.begin(), page_indices_.end(), 0);
    std::shuffle(page_indices_.begin(), page_indices_.end(), random_);
    page_indices_.resize(pages);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const Sequence& sequence = sequences_[s];
      batch_.add({.first = sequence.length - sequence.rows, .rows = sequence.rows, .decoding = sequence.decoding, .seed = 7 + s},
                 this->pages(static_cast<int>(s)));
    }
    pool_ = device.create_pool(layers, kv_heads, pages + 3, layout);
    fill(layers);
  }

  PassBatch batch() const { return batch_.batch(); }
  Pool& pool() { return *pool_; }
  int rows() const { return batch_.rows(); }
  int length(int sequence) const { return sequences_[sequence].length; }
  std::span<const int32_t> pages(int sequence) const {
    return std::span(page_indices_).subspan(first_page_[sequence], pages_for(length(sequence), geometry_.page));
  }
  std::vector<float> random_floats(size_t count, float spread = 1) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }
  /// As the pool keeps it: [layer][token][kv_head][dim] of a sequence.
  float key(int sequence, int layer, int token, int head, int d) const {
    return at(keys_[sequence], sequence, layer, token, head, d);
  }
  float value(int sequence, int layer, int token, int head, int d) const {
    return at(values_[sequence], sequence, layer, token, head, d);
  }

  /// Attention of every row in float64: [rows, query_heads * dim].
  std::vector<double> judge(const std::vector<float>& q, int group, double scale, int layer = 0) const {
    const int dim = geometry_.head_dim;
    const int query_heads = group * kv_heads_;
    std::vector<double> out(q.size());
    int first_row = 0;
    for (size_t s = 0; s < sequences_.size(); first_row += sequences_[s].rows, ++s) {
      for (int r = 0; r < sequences_[s].rows; ++r) {
        const int sees = sequences_[s].length - sequences_[s].rows + r + 1;
        for (int h = 0; h < query_heads; ++h) {
          const size_t base = (static_cast<size_t>(first_row + r) * query_heads + h) * dim;
          std::vector<double> scores(sees);
          for (int t = 0; t < sees; ++t) {
            for (int d = 0; d < dim; ++d) scores[t] += static_cast<double>(q[base + d]) * key(s, layer, t, h / group, d);
            scores[t] *= scale;
          }
          const double largest = *std::max_element(scores.begin(), scores.end());
          double sum = 0;
          for (double& score : scores) sum += score = std::exp(score - largest);
          for (int d = 0; d < dim; ++d) {
            double total = 0;
            for (int t = 0; t < sees; ++t) total += scores[t] * value(s, layer, t, h / group, d);
            out[base + d] = total / sum;
          }
        }
      }
    }
    return out;
  }

 private:
  float at(const std::vector<float>& from, int sequence, int layer, int token, int head, int d) const {
    const size_t length = sequences_[sequence].length;
    return from[((layer * length + token) * kv_heads_ + head) * geometry_.head_dim + d];
  }
  void fill(int layers) {
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const size_t count = static_cast<size_t>(layers) * sequences_[s].length * kv_heads_ * geometry_.head_dim;
      keys_.push_back(random_floats(count));
      values_.push_back(random_floats(count));
      pool_->write(pages(static_cast<int>(s)), sequences_[s].length, keys_.back().data(), values_.back().data());
      for (float& value : keys_.back()) value = as_stored(value, geometry_.kv);
      for (float& value : values_.back()) value = as_stored(value, geometry_.kv);
    }
  }

  std::vector<Sequence> sequences_;
  int kv_heads_;
  Geometry geometry_;
  std::mt19937 random_{1};
  std::vector<int32_t> page_indices_, first_page_;
  BatchBuilder batch_;
  std::vector<std::vector<float>> keys_, values_;
  std::unique_ptr<Pool> pool_;
};

/// A matrix over `values`, rows of `columns`.
inline Matrix matrix_of(std::vector<float>& values, int64_t columns) {
  return {.data = values.data(), .rows = static_cast<int64_t>(values.size()) / columns, .columns = columns, .stride = columns};
}

/// Largest |got - wanted| / max(1, |wanted|); infinity if anything is NaN.
inline double largest_error(const std::vector<float>& got, const std::vector<double>& wanted) {
  if (got.size() != wanted.size()) return INFINITY;
  double error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got[i] - wanted[i]) / std::max(1.0, std::abs(wanted[i]));
    if (!(difference <= error)) error = std::isnan(difference) ? INFINITY : difference;
  }
  return error;
}

}  // namespace sluice::test
