#include "scripting/pattern/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <span>
#include <utility>

#include "scripting/base/error.h"
#include "scripting/pattern/row_scan.h"

namespace sluice {
namespace {

/// From some position on a pattern repeats itself along the diagonal.
struct Repetition {
  int64_t from = 0;    // positions, and distances, below this may be of another kind
  int64_t period = 1;  // pattern(i + period, j + period) = pattern(i, j) beyond, and so for queries and distances alone
};

constexpr int64_t kLongest = int64_t{1} << 20;

std::optional<Repetition> repetition_of(std::span<const Pattern::Node> nodes, int place) {
  const Pattern::Node& node = nodes[static_cast<size_t>(place)];
  const auto end = [](int64_t first, int size) { return first + (size == kUnbounded ? 0 : size); };
  const auto checked = [](Repetition both) { return both.from + both.period > kLongest ? std::nullopt : std::optional(both); };
  switch (node.kind) {
    case Pattern::Kind::kRect: {
      const PatternRect& rect = node.rect;
      return checked({std::max(end(rect.row, rect.rows), end(rect.column, rect.columns)),
                      std::lcm(int64_t{rect.row_stride}, int64_t{rect.column_stride})});
    }
    case Pattern::Kind::kDiag:
      return checked({end(std::abs(node.diag.offset), node.diag.size), node.diag.stride});
    case Pattern::Kind::kNot:
      return repetition_of(nodes, node.left);
    case Pattern::Kind::kAnd:
    case Pattern::Kind::kOr: {
      const auto left = repetition_of(nodes, node.left);
      const auto right = repetition_of(nodes, node.right);
      if (!left || !right) return std::nullopt;
      return checked({std::max(left->from, right->from), std::lcm(left->period, right->period)});
    }
    case Pattern::Kind::kSpread: {
      const PatternRect& block = nodes[static_cast<size_t>(node.left)].rect;
      const auto inner = repetition_of(nodes, node.right);
      if (!inner || block.rows != block.columns) return std::nullopt;
      return checked({(inner->from + 1) * block.rows, inner->period * block.rows});
    }
  }
  throw InternalError("a pattern with a part of an unknown kind");
}

}  // namespace

int64_t CacheSize::at(int64_t length) const { return floor_divide(length * growth + offset, period); }

std::string to_text(const CacheSize& size) {
  const int64_t constant = floor_divide(size.offset, size.period);
  if (size.growth == 0) return fmt::format("{} token{}, whatever the length", constant, constant == 1 ? "" : "s");
  // floor((growth * n + offset) / period), without what growth and period have in common.
  const int64_t divisor = std::gcd(size.growth, size.period);
  const int64_t period = size.period / divisor;
  const int64_t rest = floor_divide(size.offset, divisor) - constant * period;
  std::string text = size.growth == divisor ? "n" : fmt::format("{} n", size.growth / divisor);
  if (rest > 0) text = fmt::format("({} + {})", text, rest);
  if (period > 1) text += fmt::format(" / {}", period);
  if (constant > 0) text += fmt::format(" + {}", constant);
  if (constant < 0) text += fmt::format(" - {}", -constant);
  return text + " tokens";
}

namespace {

/// The most tokens that live at a time, told when each is read for the last time. It keeps a byte a query, so that a million of
/// them are memory of a few hundred pages: touching those costs more than the counting.
class LiveTokens {
 public:
  explicit LiveTokens(size_t length) : ends_(length, 0) {}

  /// Of the next tokens, in their order.
  void add(std::span<const int32_t> last) {
    for (const int32_t end : last) {
      if (end >= 0) {
        ++live_;
        if (++ends_[static_cast<size_t>(end)] == 0) ++carries_[end];
      }
      most_ = std::max(most_, live_);
      live_ -= ends_[next_];
      if (!carries_.empty()) take_carry();
      ++next_;
    }
  }
  int most() const { return most_; }

 private:
  void take_carry() {
    const auto first = carries_.begin();
    if (first->first != static_cast<int32_t>(next_)) return;
    live_ -= 256 * first->second;
    carries_.erase(first);
  }

  std::vector<uint8_t> ends_;       // tokens that are let go after each query, less what is carried
  std::map<int32_t, int> carries_;  // by query, 256 tokens each
  size_t next_ = 0;
  int live_ = 0;
  int most_ = 0;
};

}  // namespace

namespace {

/// Of tokens from `first` on. What comes from another process is looked at before it is an index of anything.
void require_readers(int first, int length, std::span<const int32_t> last) {
  bool are_readers = true;
  for (size_t i = 0; i < last.size(); ++i)
    are_readers = are_readers && (last[i] == -1 || (last[i] >= first + static_cast<int32_t>(i) && last[i] < length));
  if (!are_readers) throw InternalError("a pattern's solution names queries that cannot be");
}

}  // namespace

int most_live(std::span<const int32_t> last) {
  LiveTokens live(last.size());
  live.add(last);
  return live.most();
}

std::vector<int32_t> slots_of(const std::vector<int32_t>& last) {
  std::vector<std::vector<int32_t>> freed(last.size());  // after each query
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> free;
  std::vector<int32_t> slots(last.size(), -1);
  int32_t used = 0;
  for (size_t i = 0; i < last.size(); ++i) {
    if (last[i] >= 0) {
      int32_t slot = used;
      if (free.empty()) {
        ++used;
      } else {
        slot = free.top();
        free.pop();
      }
      slots[i] = slot;
      freed[static_cast<size_t>(last[i])].push_back(slot);
    }
    for (const int32_t slot : freed[i]) free.push(slot);
  }
  return slots;
}

PatternAnalysis::PatternAnalysis(Pattern pattern, const AnalysisBound& bound) : pattern_(std::move(pattern)), bound_(bound) {
  solution_ = pattern_solver()({&pattern_, 1}, bound.operations).at(0);
}

std::vector<PatternAnalysis> PatternAnalysis::all(std::span<const Pattern> patterns, const AnalysisBound& bound) {
  const Solutions solutions = pattern_solver()(patterns, bound.operations);
  std::vector<PatternAnalysis> analyses;
  for (size_t i = 0; i < patterns.size(); ++i) analyses.push_back({patterns[i], bound, solutions.at(i)});
  return analyses;
}

void PatternAnalysis::require_few_rows(int length) const {
  const int64_t words = int64_t{length} * (pattern_.row_cost(length) + length / 32) / 2;
  if (words <= bound_.words) return;
  throw InputError(fmt::format("the pattern is too complex to be analysed for {} tokens", length),
                   "fewer patterns, fewer parts, fewer strides, or strides of which one divides the other");
}

std::vector<int32_t> PatternAnalysis::last_readers(int length) const {
  if (solution_ != nullptr) {
    std::vector<int32_t> last = solution_->last_reader.values(length, -1);
    require_readers(0, length, last);
    return last;
  }
  require_few_rows(length);
  return scan_rows(pattern_, length)->last;
}

int PatternAnalysis::blind_rows(int length) const {
  if (solution_ != nullptr) {
    int64_t blind = 0;
    solution_->last_key.for_parts(length, -1,
                                  [&](std::span<const int32_t> last) { blind += std::count(last.begin(), last.end(), -1); });
    return static_cast<int>(blind);
  }
  require_few_rows(length);
  return scan_rows(pattern_, length)->blind;
}

int PatternAnalysis::live_tokens(int length) const {
  if (solution_ == nullptr) return most_live(last_readers(length));
  LiveTokens live(static_cast<size_t>(length));
  int first = 0;
  solution_->last_reader.for_parts(length, -1, [&](std::span<const int32_t> last) {
    require_readers(first, length, last);
    live.add(last);
    first += static_cast<int>(last.size());
  });
  return live.most();
}

int64_t PatternAnalysis::live_between(int64_t first, int64_t end, int64_t length) const {
  const std::vector<int32_t> last = last_readers(static_cast<int>(length));
  std::vector<int32_t> ends(last.size() + 1, 0);  // tokens that are let go before each query
  int64_t live = 0;
  int64_t most = 0;
  for (int64_t i = 0; i < end; ++i) {
    const int32_t reader = last[static_cast<size_t>(i)];
    live -= ends[static_cast<size_t>(i)];
    if (reader >= 0) {
      ++live;
      ++ends[static_cast<size_t>(reader) + 1];
    }
    if (i >= first) most = std::max(most, live);
  }
  return most;
}

std::optional<CacheSize> PatternAnalysis::size_for_any_length() const {
  if (solution_ == nullptr) return std::nullopt;
  const auto repetition = repetition_of(pattern_.nodes(), static_cast<int>(pattern_.nodes().size()) - 1);
  if (!repetition) return std::nullopt;
  const int64_t period = repetition->period;
  int64_t first = 4 * (repetition->from + period);
  const int64_t beyond = repetition->from + 3 * period;  // what is read that far behind the last query that counts is read again
  const auto peak = [&](int64_t begin) { return live_between(begin, begin + period, begin + period + beyond); };
  // Near the beginning more may be kept than for long behind it: until what grows slowly has come as far.
  if (first + 2 * period > kLongest) return std::nullopt;
  const int64_t growth = peak(first + period) - peak(first);
  const int64_t ahead = live_tokens(static_cast<int>(first)) - peak(first);
  if (growth > 0 && ahead > 0) first += (ahead / growth + 2) * period;
  if (first + 2 * period > kLongest) return std::nullopt;
  const auto live = [&](int64_t length) { return int64_t{live_tokens(static_cast<int>(length))}; };
  const int64_t at_first = live(first);
  // What is kept grows by the same number in every period. Between, it has to be one line that is rounded down.
  CacheSize size{.growth = live(first + period) - at_first, .period = period, .from = first};
  if (live(first + 2 * period) - at_first != 2 * size.growth || size.growth != growth) return std::nullopt;
  // The offsets of such lines through all lengths that are looked at.
  int64_t lowest = INT64_MIN;
  int64_t highest = INT64_MAX;
  const auto look_at = [&](int64_t length) {
    const int64_t offset = live(length) * period - length * size.growth;
    lowest = std::max(lowest, offset);
    highest = std::min(highest, offset + period - 1);
  };
  constexpr int64_t kMostWork = int64_t{1} << 23;  // tokens of all lengths: a tenth of a second
  if (period * (first + period) <= kMostWork) {
    for (int64_t length = first; length < first + period && lowest <= highest; ++length) look_at(length);
  } else if (size.growth == 0) {
    constexpr int kProbes = 16;
    constexpr double kGolden = 0.6180339887498949;  // shares of a period that have no divisor in common with anything in it
    for (int probe = 0; probe <= kProbes; ++probe) {
      const double share = probe * kGolden - std::floor(probe * kGolden);
      look_at(first + static_cast<int64_t>(share * static_cast<double>(period)));
    }
  } else {
    return std::nullopt;  // a line that grows may be left for a moment of each period
  }
  if (lowest > highest) return std::nullopt;
  // Of these the one that is a whole number of tokens beside the line, if there is one.
  const int64_t whole = floor_divide(highest, period) * period;
  size.offset = whole >= lowest ? whole : lowest;
  if (first * first / 2 <= kMostWork) {
    while (size.from > 1 && live(size.from - 1) == size.at(size.from - 1)) --size.from;
  }
  return size;
}

}  // namespace sluice
