#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "agents/bench/cuda/stored_numbers.h"
#include "kernels/cuda/attention/prefill_attention.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/pattern/pattern.h"

namespace sluice {

/// The last `rows` of a sequence's `tokens` are queries.
struct PrefillChunk {
  int tokens = 0;
  int rows = 0;
};

struct PrefillCaseShape {
  std::vector<PrefillChunk> chunks = {};
  int kv_heads = 1;
  int group = 1;
  int dim = 128;
  int page = 16;
  int gap = 0;         // numbers between rows of q and of the output, a multiple of 8
  int spare_rows = 0;  // that the host promises but the tables do not hold
  unsigned seed = 1;
  DataType kv = DataType::kBF16;        // or e4m3, e5m2
  std::optional<Pattern> pattern = {};  // what rows see; none: all up to their own
};

/// Prefill attention over a pool of random K and V in device memory, with a float64 judge on the host. What lies past the last
/// token in a page is NaN.
class PrefillCase {
 public:
  explicit PrefillCase(const PrefillCaseShape& shape)
      : shape_(shape), layout_(layout_of(shape)), query_indptr_(1, 0), page_indptr_(1, 0) {
    for (const PrefillChunk& chunk : shape.chunks) {
      lengths_.push_back(chunk.tokens);
      query_indptr_.push_back(query_indptr_.back() + chunk.rows);
      page_indptr_.push_back(page_indptr_.back() + (chunk.tokens + shape.page - 1) / shape.page);
    }
    page_indices_.resize(page_indptr_.back() + 3);  // with pages of nobody
    std::iota(page_indices_.begin(), page_indices_.end(), 0);
    std::shuffle(page_indices_.begin(), page_indices_.end(), std::mt19937(shape.seed));
    const size_t pool_bytes = page_indices_.size() * shape.kv_heads * layout_.bytes;
    pool_ = on_device(draw_stored(shape.kv, pool_bytes / size_of(shape.kv), shape.seed));
    spoil_tails();
    q_values_ = draw_stored(DataType::kBF16, static_cast<size_t>(rows()) * stride(), shape.seed + 1);
    q_ = on_device(q_values_);
    out_ = cuda::DeviceMemory(std::max<size_t>(q_.bytes(), 16));
    device_query_indptr_ = on_device(query_indptr_);
    device_lengths_ = on_device(lengths_);
    device_page_indptr_ = on_device(page_indptr_);
    device_page_indices_ = on_device(page_indices_);
    attention_.emplace(cuda::PagedKv{pool_.as<std::byte>(), layout_, static_cast<int>(page_indices_.size()), shape.kv_heads});
    if (shape.pattern) draw_masks();
    workspace_ = cuda::DeviceMemory(std::max<size_t>(attention_->workspace_bytes(call_shape(), tables()), 16));
  }

  void run(cuda::Stream stream) const {
    attention_->run(call_shape(), tables(), {q_.data(), stride()}, {out_.data(), stride()}, workspace_.data(), stream);
  }
  /// Lists the tiles that rows see, once more: `run` uses the list that is there.
  void list_tiles(cuda::Stream stream) const { attention_->list_tiles(call_shape(), tables(), lists_.as<int32_t>(), stream); }

  /// Fills the output with NaN, so that what a call leaves out shows.
  void poison() { SLUICE_CHECK_CUDA(cudaMemset(out_.data(), 0xff, out_.bytes())); }

  int rows() const { return query_indptr_.back(); }
  int heads() const { return shape_.kv_heads * shape_.group; }
  /// A token that a row sees costs a dot product and a weighted sum.
  double flop() const {
    double seen = 0;
    for (const PrefillChunk& c : shape_.chunks)
      seen += static_cast<double>(c.rows) * (c.tokens - c.rows) + 0.5 * c.rows * (c.rows + 1.0);
    if (shape_.pattern) {
      seen = 0;
      for (const uint32_t word : masks_) seen += std::popcount(word);
    }
    return 4.0 * heads() * shape_.dim * seen;
  }
  /// What the last call gave: bf16, rows `stride` apart.
  std::vector<uint16_t> outputs() const {
    std::vector<uint16_t> values(out_.bytes() / 2);
    out_.download(values.data(), out_.bytes());
    return values;
  }
  /// True if the last call wrote nothing between rows.
  bool gaps_untouched() const {
    const std::vector<uint16_t> out = outputs();
    for (int row = 0; row < rows(); ++row) {
      for (int i = heads() * shape_.dim; i < stride(); ++i) {
        if (out[row * stride() + i] != 0xffff) return false;
      }
    }
    return true;
  }

  /// Relative error (2-norms) of the worst head among every `step`-th of the rows of every sequence, its last row, too, and every
  /// `head_step`-th head. NaN counts as infinite.
  double error(int step = 1, int head_step = 1) const {
    const std::vector<uint16_t> out = outputs();
    double worst = 0;
    for (size_t s = 0; s < lengths_.size(); ++s) {
      const int count = query_indptr_[s + 1] - query_indptr_[s];
      for (int head = 0; head < heads() && count > 0; head += head_step) {
        const Cached cached = read(static_cast<int>(s), head / shape_.group);
        for (int row = 0; row < count; row += step)
          worst = std::max(worst, row_error(out, cached, static_cast<int>(s), row, head));
        worst = std::max(worst, row_error(out, cached, static_cast<int>(s), count - 1, head));
      }
    }
    return worst;
  }

 private:
  /// [tokens, dim] each.
  struct Cached {
    std::vector<float> keys, values;
  };

  static PageLayout layout_of(const PrefillCaseShape& shape) {
    return page_layout({shape.dim, shape.group, shape.page, shape.kv}, {});
  }

  template <typename T>
  static cuda::DeviceMemory on_device(const std::vector<T>& values) {
    cuda::DeviceMemory memory(std::max<size_t>(values.size() * sizeof(T), 16));
    if (!values.empty()) memory.upload(values.data(), values.size() * sizeof(T));
    return memory;
  }

  cuda::PrefillShape call_shape() const {
    return {static_cast<int>(lengths_.size()),
            rows() + shape_.spare_rows,
            shape_.group,
            1 / std::sqrt(static_cast<float>(shape_.dim)),
            0,
            page_indptr_.back(),
            *std::max_element(lengths_.begin(), lengths_.end())};
  }

  cuda::PrefillTables tables() const {
    cuda::PrefillTables tables{.query_indptr = device_query_indptr_.as<int32_t>(),
                               .lengths = device_lengths_.as<int32_t>(),
                               .page_indptr = device_page_indptr_.as<int32_t>(),
                               .page_indices = device_page_indices_.as<int32_t>()};
    if (!shape_.pattern) return tables;
    tables.slots = device_slots_.as<int32_t>();
    tables.mask_indptr = device_mask_indptr_.as<int32_t>();
    tables.masks = device_masks_.as<uint32_t>();
    tables.stride = shape_.pattern->query_stride();
    tables.lists = lists_.as<int32_t>();
    return tables;
  }

  void draw_masks() {
    std::vector<int32_t> slots;
    std::vector<int32_t> mask_indptr = {0};
    for (const PrefillChunk& chunk : shape_.chunks) {
      const size_t words = static_cast<size_t>(chunk.tokens + 31) / 32;
      for (int position = chunk.tokens - chunk.rows; position < chunk.tokens; ++position) {
        slots.push_back(position);
        masks_.resize(masks_.size() + words);
        shape_.pattern->row(position, chunk.tokens, std::span(masks_).last(words));
      }
      mask_indptr.push_back(static_cast<int32_t>(masks_.size()));
    }
    device_slots_ = on_device(slots);
    device_mask_indptr_ = on_device(mask_indptr);
    device_masks_ = on_device(masks_);
    lists_ = cuda::DeviceMemory(attention_->list_bytes(call_shape(), tables()));
    list_tiles(nullptr);
  }

  bool sees(int position, int token) const { return !shape_.pattern || shape_.pattern->sees(position, token); }

  int64_t stride() const { return static_cast<int64_t>(heads()) * shape_.dim + shape_.gap; }

  size_t token_bytes() const { return shape_.dim * size_of(shape_.kv); }

  /// Where K of a token lies in the pool.
  std::byte* place(int sequence, int token, int kv_head) const {
    const int32_t page = page_indices_[page_indptr_[sequence] + token / shape_.page];
    return pool_.as<std::byte>() + (static_cast<size_t>(page) * shape_.kv_heads + kv_head) * layout_.bytes +
           static_cast<size_t>(token % shape_.page) * token_bytes();
  }

  void spoil_tails() {
    for (size_t s = 0; s < lengths_.size(); ++s) {
      if (lengths_[s] % shape_.page == 0) continue;
      const size_t bytes = static_cast<size_t>(shape_.page - lengths_[s] % shape_.page) * token_bytes();
      for (int head = 0; head < shape_.kv_heads; ++head) {
        std::byte* tail = place(static_cast<int>(s), lengths_[s] - 1, head) + token_bytes();
        SLUICE_CHECK_CUDA(cudaMemset(tail, std::to_integer<int>(kNaNByte), bytes));
        SLUICE_CHECK_CUDA(cudaMemset(tail + layout_.value_offset, std::to_integer<int>(kNaNByte), bytes));
      }
    }
  }

  Cached read(int sequence, int kv_head) const {
    Cached cached;
    std::vector<std::byte> block(layout_.bytes);
    for (int first = 0; first < lengths_[sequence]; first += shape_.page) {
      SLUICE_CHECK_CUDA(cudaMemcpy(block.data(), place(sequence, first, kv_head), layout_.bytes, cudaMemcpyDeviceToHost));
      const int count = std::min(shape_.page, lengths_[sequence] - first) * shape_.dim;
      for (int i = 0; i < count; ++i) cached.keys.push_back(stored_number(shape_.kv, block.data(), i));
      for (int i = 0; i < count; ++i) cached.values.push_back(stored_number(shape_.kv, block.data() + layout_.value_offset, i));
    }
    return cached;
  }

  double row_error(const std::vector<uint16_t>& out, const Cached& cached, int sequence, int row, int head) const {
    const int dim = shape_.dim;
    const int count = query_indptr_[sequence + 1] - query_indptr_[sequence];
    const int seen = lengths_[sequence] - count + row + 1;
    const size_t at = static_cast<size_t>(query_indptr_[sequence] + row) * stride() + static_cast<size_t>(head) * dim;
    std::vector<double> scores(seen);
    double maximum = -INFINITY;
    for (int t = 0; t < seen; ++t) {
      double score = 0;
      for (int d = 0; d < dim; ++d)
        score += static_cast<double>(stored_number(DataType::kBF16, q_values_.data(), at + d)) *
                 cached.keys[static_cast<size_t>(t) * dim + d];
      scores[t] = sees(seen - 1, t) ? score / std::sqrt(static_cast<double>(dim)) : -INFINITY;
      maximum = std::max(maximum, scores[t]);
    }
    std::vector<double> wanted(dim);
    double sum = 0;
    if (maximum == -INFINITY)
      return std::all_of(&out[at], &out[at] + dim, [](uint16_t bits) { return bits == 0; }) ? 0 : INFINITY;
    for (int t = 0; t < seen; ++t) {
      const double weight = std::exp(scores[t] - maximum);
      sum += weight;
      for (int d = 0; d < dim; ++d) wanted[d] += weight * cached.values[static_cast<size_t>(t) * dim + d];
    }
    double off = 0;
    double size = 0;
    for (int d = 0; d < dim; ++d) {
      off += std::pow(widen_bf16(out[at + d]) - wanted[d] / sum, 2);
      size += std::pow(wanted[d] / sum, 2);
    }
    const double error = std::sqrt(off / size);
    return std::isnan(error) ? INFINITY : error;
  }

  PrefillCaseShape shape_;
  PageLayout layout_;
  std::vector<int32_t> lengths_, query_indptr_, page_indptr_, page_indices_;
  std::vector<std::byte> q_values_;  // bf16
  cuda::DeviceMemory pool_, q_, out_, device_query_indptr_, device_lengths_, device_page_indptr_, device_page_indices_,
      workspace_, device_slots_, device_mask_indptr_, device_masks_, lists_;
  std::vector<uint32_t> masks_;
  std::optional<cuda::PrefillAttention> attention_;  // once the pool is there
};

}  // namespace sluice
