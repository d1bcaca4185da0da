#include "agents/bench/cuda/paged_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "agents/bench/cuda/stored_numbers.h"

namespace sluice {
namespace {

using cuda::DeviceMemory;

DeviceMemory on_device(const void* data, size_t bytes) {
  DeviceMemory memory(bytes);
  memory.upload(data, bytes);
  return memory;
}

PageLayout layout_of(const PagedCaseShape& shape) { return page_layout({shape.dim, shape.group, shape.page, shape.kv}, {}); }

}  // namespace

PagedCase::PagedCase(const PagedCaseShape& shape)
    : shape_(shape),
      layout_(layout_of(shape)),
      pages_per_sequence_((shape.tokens + shape.page - 1) / shape.page),
      pages_per_list_(shape.selected > 0 ? shape.selected : pages_per_sequence_),
      lists_(is_per_head() ? rows() : shape.sequences),
      pool_(static_cast<size_t>(shape.sequences) * pages_per_sequence_ * shape.kv_heads * layout_.bytes),
      attention_({pool_.as<std::byte>(), layout_, shape.sequences * pages_per_sequence_, shape.kv_heads}) {
  draw_pool();
  draw_lists();
  if (shape.ragged) spoil_tails();
  const size_t numbers = static_cast<size_t>(rows()) * shape.group * shape.dim;
  std::vector<std::byte> q = draw_stored(DataType::kBF16, numbers, shape.seed + 1);
  if (shape.sink) place_sinks(q);
  if (shape.query_exponent != 0) scale_bf16(q, std::ldexp(1.0F, shape.query_exponent));
  q_ = on_device(q.data(), q.size());
  out_ = DeviceMemory(numbers * sizeof(uint16_t));
  log_sums_ = DeviceMemory(numbers / shape.dim * sizeof(float));
  workspace_ = DeviceMemory(attention_.workspace_bytes({shape.sequences, shape.group, 1}));
  workspace_.clear();
}

void PagedCase::draw_pool() {
  constexpr size_t kDrawn = size_t{1} << 24;  // numbers; the rest repeats them
  const std::vector<std::byte> drawn = draw_stored(shape_.kv, std::min(kDrawn, pool_.bytes() / size_of(shape_.kv)), shape_.seed);
  for (size_t at = 0; at < pool_.bytes(); at += drawn.size()) {
    SLUICE_CHECK_CUDA(
        cudaMemcpy(pool_.as<std::byte>() + at, drawn.data(), std::min(drawn.size(), pool_.bytes() - at), cudaMemcpyHostToDevice));
  }
}

void PagedCase::draw_lists() {
  std::mt19937 random(shape_.seed);
  std::vector<int32_t> ids(static_cast<size_t>(shape_.sequences) * pages_per_sequence_);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  std::vector<int32_t> starts(lists_);
  std::vector<int32_t> order(pages_per_sequence_);
  for (int set = 0; set < shape_.sets; ++set) {
    for (int list = 0; list < lists_; ++list) {
      const int sequence = is_per_head() ? list / shape_.kv_heads : list;
      std::iota(order.begin(), order.end(), 0);
      for (int i = 0; shape_.selected > 0 && i < pages_per_list_; ++i) {
        std::swap(order[i], order[i + random() % (pages_per_sequence_ - i)]);
      }
      std::sort(order.begin(), order.begin() + pages_per_list_);
      for (int i = 0; i < pages_per_list_; ++i) {
        pages_.push_back(ids[static_cast<size_t>(sequence) * pages_per_sequence_ + order[i]]);
      }
    }
  }
  for (int list = 0; list < lists_; ++list) {
    const int most = shape_.selected > 0 ? pages_per_list_ * shape_.page : shape_.tokens;
    starts[list] = list * pages_per_list_;
    tokens_.push_back(!shape_.ragged ? most : list % 5 == 4 ? 0 : 1 + static_cast<int>(random() % most));
  }
  device_pages_ = on_device(pages_.data(), pages_.size() * sizeof(int32_t));
  device_starts_ = on_device(starts.data(), starts.size() * sizeof(int32_t));
  device_tokens_ = on_device(tokens_.data(), tokens_.size() * sizeof(int32_t));
  if (shape_.mask.empty()) return;
  const int words = (pages_per_list_ * shape_.page + 31) / 32;
  shape_.mask.resize(words);
  std::vector<int32_t> mask_indptr;
  std::vector<uint32_t> masks;
  for (int list = 0; list <= lists_; ++list) mask_indptr.push_back(list * words);
  for (int list = 0; list < lists_; ++list) masks.insert(masks.end(), shape_.mask.begin(), shape_.mask.end());
  device_mask_indptr_ = on_device(mask_indptr.data(), mask_indptr.size() * sizeof(int32_t));
  device_masks_ = on_device(masks.data(), masks.size() * sizeof(uint32_t));
}

void PagedCase::spoil_tails() {
  std::vector<std::byte> pool(pool_.bytes());
  pool_.download(pool.data(), pool.size());
  const size_t token_bytes = shape_.dim * size_of(shape_.kv);
  for (int row = 0; row < rows(); ++row) {
    const int tokens = tokens_[list_of(row)];
    if (tokens % shape_.page == 0) continue;
    const int32_t page = pages_[static_cast<size_t>(list_of(row)) * pages_per_list_ + tokens / shape_.page];
    const size_t block = (static_cast<size_t>(page) * shape_.kv_heads + row % shape_.kv_heads) * layout_.bytes;
    const size_t used = static_cast<size_t>(tokens % shape_.page) * token_bytes;
    for (const size_t start : {block + layout_.key_offset, block + layout_.value_offset}) {
      std::fill_n(pool.begin() + static_cast<int64_t>(start + used), shape_.page * token_bytes - used, kNaNByte);
    }
  }
  pool_.upload(pool.data(), pool.size());
}

void PagedCase::place_sinks(const std::vector<std::byte>& q) {
  constexpr std::byte kTwo{0x40};  // the last byte of 2.0, whose others are 0, in bf16, e4m3 and e5m2
  constexpr std::byte kSign{0x80};
  std::vector<std::byte> pool(pool_.bytes());
  pool_.download(pool.data(), pool.size());
  const size_t bytes = size_of(shape_.kv);
  const size_t key_bytes = static_cast<size_t>(shape_.page) * shape_.dim * bytes;
  for (size_t block = 0; block < pool.size(); block += layout_.bytes) {
    std::fill_n(pool.begin() + static_cast<int64_t>(block + layout_.key_offset), key_bytes, std::byte{0});
  }
  for (int row = 0; row < rows(); ++row) {
    const int32_t page = pages_[static_cast<size_t>(list_of(row)) * pages_per_list_];
    const size_t block = (static_cast<size_t>(page) * shape_.kv_heads + row % shape_.kv_heads) * layout_.bytes;
    std::fill_n(pool.begin() + static_cast<int64_t>(block + layout_.value_offset), shape_.dim * bytes, std::byte{0});
    for (int channel = 0; channel < shape_.dim; ++channel) {
      const std::byte sign = q[(static_cast<size_t>(row) * shape_.dim + channel) * sizeof(uint16_t) + 1] & kSign;
      pool[block + layout_.key_offset + channel * bytes + bytes - 1] = kTwo | sign;
    }
  }
  pool_.upload(pool.data(), pool.size());
}

float PagedCase::score_scale() const { return std::ldexp(1 / std::sqrt(static_cast<float>(shape_.dim)), -shape_.query_exponent); }

void PagedCase::run(int64_t set, cuda::Stream stream) {
  const cuda::DecodeShape shape{shape_.sequences, shape_.group, score_scale()};
  cuda::PageLists lists{device_pages_.as<int32_t>() + set % shape_.sets * static_cast<int64_t>(lists_) * pages_per_list_,
                        device_starts_.as<int32_t>(), device_tokens_.as<int32_t>(), is_per_head(),
                        is_per_head() ? pages_per_list_ : 0};
  if (!shape_.mask.empty()) {
    lists.mask_indptr = device_mask_indptr_.as<int32_t>();
    lists.masks = device_masks_.as<uint32_t>();
  }
  attention_.run(shape, lists, q_.data(), out_.data(), log_sums_.as<float>(), workspace_.data(), stream);
}

void PagedCase::poison() {
  SLUICE_CHECK_CUDA(cudaMemset(out_.data(), 0xff, out_.bytes()));
  SLUICE_CHECK_CUDA(cudaMemset(log_sums_.data(), 0xff, log_sums_.bytes()));
}

double PagedCase::bytes() const {
  double tokens = 0;
  for (int row = 0; row < rows(); ++row) tokens += tokens_[list_of(row)];
  return tokens * shape_.dim * 2 * static_cast<double>(size_of(shape_.kv));
}

std::vector<uint16_t> PagedCase::outputs() const {
  std::vector<uint16_t> values(out_.bytes() / sizeof(uint16_t));
  out_.download(values.data(), out_.bytes());
  return values;
}

std::vector<float> PagedCase::log_sums() const {
  std::vector<float> values(log_sums_.bytes() / sizeof(float));
  log_sums_.download(values.data(), log_sums_.bytes());
  return values;
}

double PagedCase::error(int row) const {
  const int dim = shape_.dim;
  const int tokens = tokens_[list_of(row)];
  std::vector<double> keys;
  std::vector<double> values;
  std::vector<std::byte> block(layout_.bytes);
  for (int first = 0; first < tokens; first += shape_.page) {
    const int32_t page = pages_[static_cast<size_t>(list_of(row)) * pages_per_list_ + first / shape_.page];
    const size_t at = (static_cast<size_t>(page) * shape_.kv_heads + row % shape_.kv_heads) * layout_.bytes;
    SLUICE_CHECK_CUDA(cudaMemcpy(block.data(), pool_.as<std::byte>() + at, layout_.bytes, cudaMemcpyDeviceToHost));
    const int count = std::min(shape_.page, tokens - first) * dim;
    for (int i = 0; i < count; ++i) keys.push_back(stored_number(shape_.kv, block.data() + layout_.key_offset, i));
    for (int i = 0; i < count; ++i) values.push_back(stored_number(shape_.kv, block.data() + layout_.value_offset, i));
  }
  const size_t first_head = static_cast<size_t>(row) * shape_.group;
  std::vector<uint16_t> q(static_cast<size_t>(shape_.group) * dim);
  std::vector<uint16_t> out(q.size());
  std::vector<float> log_sums(shape_.group);
  SLUICE_CHECK_CUDA(cudaMemcpy(q.data(), q_.as<uint16_t>() + first_head * dim, q.size() * 2, cudaMemcpyDeviceToHost));
  SLUICE_CHECK_CUDA(cudaMemcpy(out.data(), out_.as<uint16_t>() + first_head * dim, out.size() * 2, cudaMemcpyDeviceToHost));
  SLUICE_CHECK_CUDA(cudaMemcpy(log_sums.data(), log_sums_.as<float>() + first_head, log_sums.size() * 4, cudaMemcpyDeviceToHost));

  double worst = 0;
  for (int head = 0; head < shape_.group; ++head) {
    std::vector<double> scores(tokens);
    std::vector<double> wanted(dim);
    double maximum = -INFINITY;
    for (int t = 0; t < tokens; ++t) {
      for (int d = 0; d < dim; ++d) scores[t] += widen_bf16(q[head * dim + d]) * keys[static_cast<size_t>(t) * dim + d];
      scores[t] = counts(t) ? scores[t] * score_scale() : -INFINITY;
      maximum = std::max(maximum, scores[t]);
    }
    double sum = 0;
    for (int t = 0; t < tokens; ++t) {
      const double weight = std::exp(scores[t] - maximum);
      sum += weight;
      for (int d = 0; d < dim; ++d) wanted[d] += weight * values[static_cast<size_t>(t) * dim + d];
    }
    double off = 0;
    double size = 0;
    for (int d = 0; d < dim; ++d) {
      const double value = tokens > 0 ? wanted[d] / sum : 0;
      off += std::pow(widen_bf16(out[head * dim + d]) - value, 2);
      size += value * value;
    }
    const double error = tokens > 0 ? std::sqrt(off / size) : std::sqrt(off);
    if (!(error <= worst)) worst = error;  // NaN, too
    const bool close =
        tokens > 0 ? std::abs(log_sums[head] - (maximum / std::log(2.0) + std::log2(sum))) < 2e-3 : log_sums[head] == -INFINITY;
    if (!close) worst = 1;
  }
  return worst;
}

}  // namespace sluice
