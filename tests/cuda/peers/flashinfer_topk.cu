// FlashInfer's exact top-k of float32, unsorted, as its top_k dispatches: with the values that its Python function returns, and
// with indices alone.
#include <flashinfer/math.cuh>
#include <flashinfer/topk.cuh>
#include <functional>
#include <random>
#include <set>

#include "timing.cuh"

namespace peers {
namespace {

/// Rows of scores that calls rotate through, drawn as agents/bench/cuda/topk.cpp draws them.
class TopKCase {
 public:
  explicit TopKCase(const std::string& name) : TopKCase(name, numbers_of(name, 3)) {}

  const std::string& name() const { return name_; }

  void run(int64_t call, bool with_values, cudaStream_t stream) const {
    PEERS_CHECK(flashinfer::sampling::TopKDispatch<float, int32_t>(
        data_.data() + call % copies_ * static_cast<int64_t>(scores_.size()), indices_.data(),
        with_values ? values_.data() : nullptr, rows_, k_, length_,
        reinterpret_cast<flashinfer::sampling::RadixRowState*>(states_.data()), false, false,
        flashinfer::sampling::TopKTieBreak::None, stream));
  }

  /// The share of rows whose indices are not k different ones of greatest scores, after a call of its own.
  double error(bool with_values) const {
    indices_.fill_bytes(0xff);
    run(0, with_values, nullptr);
    const std::vector<int32_t> found = indices_.download();
    int wrong = 0;
    for (int row = 0; row < rows_; ++row) wrong += !is_right(row, found);
    return static_cast<double>(wrong) / rows_;
  }

 private:
  TopKCase(const std::string& name, const std::vector<int>& numbers)
      : name_(name),
        rows_(numbers[0]),
        length_(numbers[1]),
        k_(numbers[2]),
        scores_(drawn(static_cast<size_t>(rows_) * length_)),
        copies_(static_cast<int>(std::clamp<size_t>(kCaches / (scores_.size() * sizeof(float)), 2, kCalls))),
        data_(scores_.size() * copies_),
        indices_(static_cast<size_t>(rows_) * k_),
        values_(indices_.size()),
        states_(size_t{1} << 20) {
    for (int copy = 0; copy < copies_; ++copy) data_.upload(scores_.data(), copy * scores_.size(), scores_.size());
    states_.fill_bytes(0);
  }

  static std::vector<float> drawn(size_t count) {
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> scores(count);
    for (float& score : scores) score = normal(random);
    return scores;
  }

  bool is_right(int row, const std::vector<int32_t>& found) const {
    const auto begin = scores_.begin() + static_cast<int64_t>(row) * length_;
    std::vector<float> best(begin, begin + length_);
    std::nth_element(best.begin(), best.begin() + k_ - 1, best.end(), std::greater<>());
    const float least = best[k_ - 1];
    std::set<int32_t> seen;
    for (int i = 0; i < k_; ++i) {
      const int32_t index = found[static_cast<size_t>(row) * k_ + i];
      if (index < 0 || index >= length_ || begin[index] < least || !seen.insert(index).second) return false;
    }
    return true;
  }

  std::string name_;
  int rows_, length_, k_;
  std::vector<float> scores_;
  int copies_;
  DeviceArray<float> data_;
  DeviceArray<int32_t> indices_;
  DeviceArray<float> values_;
  DeviceArray<char> states_;
};

struct Nothing {};

void run_case(const Nothing&, double seconds, const std::string& name) {
  const TopKCase rows(name);
  for (const bool with_values : {false, true}) {
    const double us = time_calls(seconds, [&](int64_t call, cudaStream_t stream) { rows.run(call, with_values, stream); });
    report("FlashInfer", "topk", name, us, rows.error(with_values), with_values ? "values, too" : "indices alone");
  }
}

}  // namespace
}  // namespace peers

int main(int count, char** arguments) { return peers::run_cases<peers::Nothing>(count, arguments, peers::run_case); }
