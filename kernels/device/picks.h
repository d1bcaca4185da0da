#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice {

/// How one token is picked from a row of logits.
struct SampleRow {
  int64_t row = 0;        // of the logits
  float temperature = 0;  // 0: greedy
  int top_k = 0;          // 0: all
  float top_p = 1;
  double uniform = 0;  // [0, 1): the number drawn
  int32_t given = -1;  // not picked by the logits: this token; -1: none
  int likely = -1;     // log-probabilities of the token and of so many of the most likely are wanted; -1: none

  /// Whether the token of the largest logit is all that is wanted.
  bool wants_best() const { return temperature <= 0 && given < 0 && likely < 0; }
};

struct Sampled {
  int32_t token = 0;
  bool sound = false;  // every logit is finite or -inf, and at least one is finite
};

/// How many of the most likely tokens a row may ask for.
inline constexpr int kMostLikely = 20;

struct LikelyToken {
  int32_t token = 0;
  float log_probability = 0;
};

/// What the softmax of a row of logits gives to tokens, whatever the temperature: natural logarithms.
struct RowProbabilities {
  float of_token = 0;                             // of the one that was picked or given
  std::array<LikelyToken, kMostLikely> likely{};  // as many as were asked for: the most likely first, the lower id of equals
};

/// What was picked from the logits of one engine's passes, which later passes may embed before the host knows it.
class Picks {
 public:
  explicit Picks(int most_rows) : most_rows_(most_rows) {}
  virtual ~Picks() = default;
  Picks(const Picks&) = delete;
  Picks& operator=(const Picks&) = delete;

  int most_rows() const { return most_rows_; }
  /// Rows of the last call of `sample` or `pick_best`.
  int rows() const { return begun_ == 0 ? 0 : rows_[(begun_ - 1) % 2]; }
  /// For devices: where a call of `sample` or `take` with so many rows finds its place for results, 0 or 1. Throws
  /// InternalError if there is none.
  int begin(size_t rows);
  int take(size_t rows);
  /// Of the results that were taken last, by their place: for rows that asked for them. Until the next call of `sample`.
  virtual const RowProbabilities& probabilities(size_t place) const = 0;

 private:
  int most_rows_;
  std::array<int, 2> rows_ = {};
  uint64_t begun_ = 0;  // calls
  uint64_t taken_ = 0;
};

}  // namespace sluice
