#include "agents/bench/paged_kv.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace sluice {

float PagedKv::number(uint32_t what, int layer, int sequence, int token, int head, int d) {
  uint32_t hash = what * 0x9e3779b9U + static_cast<uint32_t>(layer) * 0x85ebca6bU + static_cast<uint32_t>(sequence) * 0xc2b2ae35U;
  hash += static_cast<uint32_t>(token) * 0x27d4eb2fU + static_cast<uint32_t>(head * 1024 + d) * 0x165667b1U;
  hash = (hash ^ hash >> 15) * 0x2c1b3c6dU;
  hash = (hash ^ hash >> 12) * 0x297a2d39U;
  return static_cast<float>(static_cast<int>(hash >> 25) - 64) / 64;
}

PagedKv::PagedKv(Device& device, const Shape& shape) : shape_(shape) {
  const int count = shape.sequences * pages_per_sequence();
  pages_.resize(count);
  std::iota(pages_.begin(), pages_.end(), 0);
  std::shuffle(pages_.begin(), pages_.end(), std::mt19937(1));
  pool_ = device.create_pool(shape.layers, shape.kv_heads, count, page_layout(shape.geometry, {}));

  // A stretch of pages at a time, so that the float32 originals stay small.
  constexpr int kStretch = 16;
  const int page = shape.geometry.page;
  const int dim = shape.geometry.head_dim;
  const size_t row = static_cast<size_t>(shape.kv_heads) * dim;
  for (int s = 0; s < shape.sequences; ++s) {
    for (int first = 0; first < pages_per_sequence(); first += kStretch) {
      const int pages = std::min(kStretch, pages_per_sequence() - first);
      const int tokens = pages * page;
      std::vector<float> keys(static_cast<size_t>(shape.layers) * tokens * row);
      std::vector<float> values(keys.size());
      size_t at = 0;
      for (int layer = 0; layer < shape.layers; ++layer) {
        for (int token = first * page; token < first * page + tokens; ++token) {
          for (int head = 0; head < shape.kv_heads; ++head) {
            for (int d = 0; d < dim; ++d, ++at) {
              keys[at] = key(layer, s, token, head, d);
              values[at] = value(layer, s, token, head, d);
            }
          }
        }
      }
      const int32_t* ids = pages_.data() + static_cast<size_t>(s) * pages_per_sequence() + first;
      pool_->write({ids, static_cast<size_t>(pages)}, tokens, keys.data(), values.data());
    }
  }
}

std::vector<double> PagedKv::judge(const float* query, float scale, int layer, int sequence, int kv_head,
                                   const std::vector<int>& tokens) const {
  const int dim = shape_.geometry.head_dim;
  std::vector<double> scores;
  for (int token : tokens) {
    double score = 0;
    for (int d = 0; d < dim; ++d) score += static_cast<double>(query[d]) * key(layer, sequence, token, kv_head, d);
    scores.push_back(score * scale);
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> out(dim);
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double weight = std::exp(scores[i] - largest);
    sum += weight;
    for (int d = 0; d < dim; ++d) out[d] += weight * value(layer, sequence, tokens[i], kv_head, d);
  }
  for (double& number : out) number /= sum;
  return out;
}

bool agrees(const float* got, const std::vector<double>& wanted, double tolerance) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!(std::abs(got[i] - wanted[i]) <= tolerance)) return false;
  }
  return true;
}

}  // namespace sluice
