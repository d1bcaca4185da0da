#include "agents/bench/paged_kv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/device/open_pass.h"

namespace sluice {
namespace {

constexpr float kScale = 0.125f;
constexpr double kTolerance = 2e-5;

}  // namespace

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

std::string PagedKv::Shape::heads_text() const {
  return fmt::format("kv_heads {}, group {}, dim {}, {}", kv_heads, geometry.group, geometry.head_dim, name_of(geometry.kv));
}

PagedAttention::PagedAttention(Device& device, PagedKv& kv, int rows)
    : device_(device),
      kv_(kv),
      rows_(rows),
      columns_(static_cast<int64_t>(kv.shape().query_heads()) * kv.shape().geometry.head_dim),
      queries_(rows * columns_),
      outputs_(rows * columns_) {
  for (int64_t i = 0; i < static_cast<int64_t>(queries_.size()); ++i) {
    queries_[i] = PagedKv::query(static_cast<int>(i / columns_), static_cast<int>(i % columns_)) * 3.7f;
  }
}

void PagedAttention::run(const PassBatch& batch, int layer) {
  const Matrix queries{.data = queries_.data(), .rows = rows_, .columns = columns_, .stride = columns_};
  const Matrix outputs{.data = outputs_.data(), .rows = rows_, .columns = columns_, .stride = columns_};
  const OpenPass open(device_, batch, kv_.pool());
  device_.attention({.layer = layer, .query_heads = kv_.shape().query_heads(), .scale = kScale}, queries, outputs);
}

void PagedAttention::clear() { std::fill(outputs_.begin(), outputs_.end(), NAN); }

bool PagedAttention::is_correct(int row, int head, int layer, int sequence, const std::vector<int>& tokens) const {
  const int dim = kv_.shape().geometry.head_dim;
  const int kv_head = head / kv_.shape().geometry.group;
  const float* query = queries_.data() + row * columns_ + static_cast<int64_t>(head) * dim;
  const float* output = outputs_.data() + row * columns_ + static_cast<int64_t>(head) * dim;
  std::vector<double> scores;
  for (const int token : tokens) {
    double score = 0;
    for (int d = 0; d < dim; ++d) score += static_cast<double>(query[d]) * PagedKv::key(layer, sequence, token, kv_head, d);
    scores.push_back(score * kScale);
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> wanted(dim);
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double weight = std::exp(scores[i] - largest);
    sum += weight;
    for (int d = 0; d < dim; ++d) wanted[d] += weight * PagedKv::value(layer, sequence, tokens[i], kv_head, d);
  }
  for (int d = 0; d < dim; ++d) {
    if (!(std::abs(output[d] - wanted[d] / sum) <= kTolerance)) return false;
  }
  return true;
}

}  // namespace sluice
