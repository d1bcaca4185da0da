// Decode attention over pages as peers see it: random K and V, lists of pages in random order, and a judge in float64.
#pragma once
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "timing.cuh"

namespace peers {

constexpr int kPage = 16;
constexpr int kDim = 128;

/// K and V are two pools of bf16 [pages, KV heads, page, dim]. Lists are [sets, lists, listed] page ids. A case that selects has
/// a list for each KV head of a sequence. Peers take lists of sequences only, so such a case is shown to them as sequences of one
/// head: a list names blocks (page * KV heads + head) of the same pool.
class PagedCase {
 public:
  explicit PagedCase(const std::string& name) : PagedCase(name, numbers_of(name, 5)) {}

  const std::string& name() const { return name_; }
  int group() const { return group_; }
  int sequences() const { return lists_; }                // as peers see them
  int heads() const { return selects_ ? 1 : kv_heads_; }  // KV heads, as peers see them
  int query_heads() const { return heads() * group_; }    // of such a sequence
  int listed() const { return listed_; }                  // pages of a list
  const __nv_bfloat16* q() const { return q_.data(); }    // [sequences, query heads, dim]
  __nv_bfloat16* k() const { return k_.data(); }
  __nv_bfloat16* v() const { return v_.data(); }
  __nv_bfloat16* out() const { return out_.data(); }  // like q
  int* list(int64_t call) const { return pages_.data() + call % sets_ * static_cast<int64_t>(lists_) * listed_; }
  const std::vector<int>& starts() const { return starts_; }  // of lists within a set: [lists + 1]

  /// Fills the output with NaN, so that what a call leaves out shows.
  void poison() const { out_.fill_bytes(0xff); }
  /// |out - wanted| / |wanted| of the worst row after call 0; infinite where a number is none.
  double error() const;

 private:
  PagedCase(const std::string& name, const std::vector<int>& numbers)
      : name_(name),
        batch_(numbers[0]),
        kv_heads_(numbers[1]),
        group_(numbers[2]),
        pages_per_sequence_(numbers[3] / kPage),
        selects_(numbers[4] > 0),
        listed_(selects_ ? numbers[4] : pages_per_sequence_),
        lists_(selects_ ? batch_ * kv_heads_ : batch_),
        sets_(sets_of(2.0 * batch_ * kv_heads_ * listed_ * kPage * kDim * sizeof(__nv_bfloat16))),
        k_(static_cast<size_t>(batch_) * pages_per_sequence_ * kv_heads_ * kPage * kDim),
        v_(k_.size()),
        q_(static_cast<size_t>(batch_) * kv_heads_ * group_ * kDim),
        out_(q_.size()),
        pages_(draw_lists()) {
    for (int list = 0; list <= lists_; ++list) starts_.push_back(list * listed_);
    draw(k_, 1);
    draw(v_, 2);
    draw(q_, 3);
  }

  /// As many selections as are together larger than the second-level cache.
  int sets_of(double bytes) const {
    return selects_ ? std::clamp(static_cast<int>(static_cast<double>(kCaches) / bytes) + 1, 2, kCalls) : 1;
  }
  static void draw(const DeviceArray<__nv_bfloat16>& to, unsigned seed);
  std::vector<int> draw_lists() const;

  std::string name_;
  int batch_, kv_heads_, group_, pages_per_sequence_;
  bool selects_;
  int listed_, lists_, sets_;
  DeviceArray<__nv_bfloat16> k_, v_, q_, out_;
  DeviceArray<int> pages_;
  std::vector<int> starts_;
};

/// Normal numbers, the first 4M of which are repeated.
inline void PagedCase::draw(const DeviceArray<__nv_bfloat16>& to, unsigned seed) {
  constexpr size_t kDrawn = size_t{1} << 22;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<__nv_bfloat16> drawn(std::min(kDrawn, to.size()));
  for (__nv_bfloat16& number : drawn) number = __float2bfloat16(normal(random));
  for (size_t at = 0; at < to.size(); at += drawn.size()) to.upload(drawn.data(), at, std::min(drawn.size(), to.size() - at));
}

inline std::vector<int> PagedCase::draw_lists() const {
  std::mt19937 random(1);
  std::vector<int> ids(static_cast<size_t>(batch_) * pages_per_sequence_);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  std::vector<int> places(pages_per_sequence_);  // of pages within a sequence
  std::iota(places.begin(), places.end(), 0);
  std::vector<int> chosen(listed_);
  std::vector<int> pages;
  for (int i = 0; i < sets_ * lists_; ++i) {
    const int list = i % lists_;
    const int sequence = selects_ ? list / kv_heads_ : list;
    std::sample(places.begin(), places.end(), chosen.begin(), listed_, random);  // in their order
    for (const int place : chosen) {
      const int page = ids[static_cast<size_t>(sequence) * pages_per_sequence_ + place];
      pages.push_back(selects_ ? page * kv_heads_ + list % kv_heads_ : page);
    }
  }
  return pages;
}

/// A row is a query head of a sequence as peers see them; a block of the pool is a page of one KV head.
struct JudgedRow {
  const int* pages;  // of its list
  int heads;
  int head;

  __device__ JudgedRow(int row, int group, int all_heads, const int* lists, int listed)
      : pages(lists + static_cast<int64_t>(row / group / all_heads) * listed), heads(all_heads), head(row / group % all_heads) {}
  /// Of the pool: where a token's numbers begin.
  __device__ int64_t at(int token) const {
    const int64_t block = static_cast<int64_t>(pages[token / kPage]) * heads + head;
    return (block * kPage + token % kPage) * kDim;
  }
};

/// scores: [rows, tokens].
static __global__ void judge_scores(const __nv_bfloat16* q, const __nv_bfloat16* k, const int* lists, int listed, int heads,
                                    int group, float* scores) {
  const int row = blockIdx.y;
  const int token = blockIdx.x * blockDim.x + threadIdx.x;
  const int tokens = listed * kPage;
  if (token >= tokens) return;
  const int64_t key = JudgedRow(row, group, heads, lists, listed).at(token);
  double sum = 0;
  for (int d = 0; d < kDim; ++d) {
    sum += static_cast<double>(__bfloat162float(q[static_cast<int64_t>(row) * kDim + d])) * __bfloat162float(k[key + d]);
  }
  scores[static_cast<int64_t>(row) * tokens + token] = static_cast<float>(sum / sqrt(static_cast<double>(kDim)));
}

/// A block has a row, a thread a channel; wanted: [rows, dim].
static __global__ void judge_values(const __nv_bfloat16* v, const float* scores, const int* lists, int listed, int heads,
                                    int group, double* wanted) {
  const int row = blockIdx.x;
  const int tokens = listed * kPage;
  const JudgedRow judged(row, group, heads, lists, listed);
  const float* of_row = scores + static_cast<int64_t>(row) * tokens;
  double greatest = -INFINITY;
  for (int token = 0; token < tokens; ++token) greatest = fmax(greatest, static_cast<double>(of_row[token]));
  double sum = 0;
  double value = 0;
  for (int token = 0; token < tokens; ++token) {
    const double weight = exp(of_row[token] - greatest);
    sum += weight;
    value += weight * __bfloat162float(v[judged.at(token) + threadIdx.x]);
  }
  wanted[static_cast<int64_t>(row) * kDim + threadIdx.x] = value / sum;
}

inline double PagedCase::error() const {
  const int rows = lists_ * query_heads();
  const int tokens = listed_ * kPage;
  const DeviceArray<float> scores(static_cast<size_t>(rows) * tokens);
  const DeviceArray<double> wanted(static_cast<size_t>(rows) * kDim);
  constexpr int kThreads = 256;
  judge_scores<<<dim3((tokens + kThreads - 1) / kThreads, rows), kThreads>>>(q_.data(), k_.data(), list(0), listed_, heads(),
                                                                             group_, scores.data());
  judge_values<<<rows, kDim>>>(v_.data(), scores.data(), list(0), listed_, heads(), group_, wanted.data());
  PEERS_CHECK(cudaGetLastError());
  const std::vector<double> want = wanted.download();
  const std::vector<__nv_bfloat16> got = out_.download();
  double worst = 0;
  for (int row = 0; row < rows; ++row) {
    double off = 0;
    double size = 0;
    for (size_t i = static_cast<size_t>(row) * kDim; i < static_cast<size_t>(row + 1) * kDim; ++i) {
      off += std::pow(__bfloat162float(got[i]) - want[i], 2);
      size += want[i] * want[i];
    }
    if (!(off / size <= worst)) worst = off / size;  // NaN, too
  }
  return std::isfinite(worst) ? std::sqrt(worst) : 1e9;
}

/// Times and judges one way to compute a case.
inline void measure(const char* peer, const char* variant, const PagedCase& paged, double seconds, const Call& call) {
  paged.poison();
  const double us = time_calls(seconds, call);
  paged.poison();
  call(0, nullptr);
  PEERS_CHECK(cudaDeviceSynchronize());
  report(peer, "attention", paged.name(), us, paged.error(), variant);
}

}  // namespace peers
