#include "scripting/pattern/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "scripting/base/error.h"
#include "scripting/pattern/integer_relation.h"

namespace sluice {
namespace {

/// Builds the relation { query -> key } of an expression, over the quarter plane.
class Relation {
 public:
  Relation(const IntegerContext& context, const Pattern& pattern) : context_(context), pattern_(pattern) {}

  /// Of the whole, up to the diagonal and below the length n.
  IslMap whole() const {
    const IslMap causal = context_.read_map("[n] -> { [i] -> [j] : 0 <= j <= i < n }");
    return intersect(of(static_cast<int>(pattern_.nodes().size()) - 1), causal);
  }

 private:
  IslMap of(int place) const {
    const Pattern::Node& node = pattern_.nodes()[static_cast<size_t>(place)];
    switch (node.kind) {
      case Pattern::Kind::kRect:
        return context_.read_map(fmt::format(
            "{{ [i] -> [j] : {} and {} }}", side("i", node.rect.row, node.rect.rows, node.rect.row_stride, node.rect.row_offset),
            side("j", node.rect.column, node.rect.columns, node.rect.column_stride, node.rect.column_offset)));
      case Pattern::Kind::kDiag:
        return context_.read_map(
            fmt::format("{{ [i] -> [j] : i >= 0 and j >= 0 and {} }}",
                        side(fmt::format("(i - j - ({}))", node.diag.offset), 0, node.diag.size, node.diag.stride, 0)));
      case Pattern::Kind::kAnd:
        return intersect(of(node.left), of(node.right));
      case Pattern::Kind::kOr: {
        IslMap left = of(node.left);
        IslMap right = of(node.right);
        return coalesced(isl_map_union(left.release(), right.release()));
      }
      case Pattern::Kind::kNot: {
        IslMap all = context_.read_map("{ [i] -> [j] : i >= 0 and j >= 0 }");
        IslMap one = of(node.left);
        return coalesced(isl_map_subtract(all.release(), one.release()));
      }
      case Pattern::Kind::kSpread:
        return spread(pattern_.nodes()[static_cast<size_t>(node.left)].rect, of(node.right));
    }
    throw InternalError("a pattern with a part of an unknown kind");
  }

  /// { [i] -> [j] : block(i mod rows, j mod columns) and inner(i / rows, j / columns) }.
  IslMap spread(const PatternRect& block, IslMap inner) const {
    const auto blow_up = [&](int size) {
      return context_.read_map(fmt::format("{{ [b] -> [x] : {0} * b <= x < {0} * b + {0} }}", size));
    };
    IslMap rows = blow_up(block.rows);
    IslMap columns = blow_up(block.columns);
    IslMap map(isl_map_apply_domain(inner.release(), rows.release()));
    map = context_.require(IslMap(isl_map_apply_range(context_.require(std::move(map)).release(), columns.release())));
    if (block.row_stride == 1 && block.column_stride == 1) return map;
    const auto within = [](const char* name, int size, int stride, int offset) {
      return fmt::format("({} mod {} - {}) mod {} = 0", name, size, offset, stride);
    };
    return intersect(
        std::move(map),
        context_.read_map(fmt::format("{{ [i] -> [j] : {} and {} }}", within("i", block.rows, block.row_stride, block.row_offset),
                                      within("j", block.columns, block.column_stride, block.column_offset))));
  }

  static std::string side(const std::string& name, int first, int size, int stride, int offset) {
    std::string text = fmt::format("{} >= {}", name, first);
    if (size != kUnbounded) text += fmt::format(" and {} < {}", name, int64_t{first} + size);
    if (stride > 1) text += fmt::format(" and ({} - {}) mod {} = 0", name, int64_t{first} + offset, stride);
    return text;
  }

  IslMap intersect(IslMap left, const IslMap& right) const {
    return context_.require(IslMap(isl_map_intersect(left.release(), isl_map_copy(right.get()))));
  }
  /// The same with fewer parts, where the library finds some. Its coalescing may take in what is not there (isl 0.25: the first
  /// two columns and every second one become all of them), so what it says is looked at.
  IslMap coalesced(isl_map* map) const {
    IslMap whole = context_.require(IslMap(map));
    IslMap fewer = context_.require(IslMap(isl_map_coalesce(isl_map_copy(whole.get()))));
    return context_.require(isl_map_is_equal(whole.get(), fewer.get())) ? std::move(fewer) : std::move(whole);
  }

  const IntegerContext& context_;
  const Pattern& pattern_;
};

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

std::string to_text(const CacheSize& size) {
  if (size.growth == 0) return fmt::format("{} token{}, whatever the length", size.constant, size.constant == 1 ? "" : "s");
  const int64_t divisor = std::gcd(size.growth, size.period);
  std::string text = size.growth == divisor ? "n" : fmt::format("{} n", size.growth / divisor);
  if (size.period != divisor) text += fmt::format(" / {}", size.period / divisor);
  if (size.constant > 0) text += fmt::format(" + {}", size.constant);
  if (size.constant < 0) text += fmt::format(" - {}", -size.constant);
  return text + " tokens";
}

int most_live(const std::vector<int32_t>& last) {
  std::vector<int32_t> ends(last.size() + 1, 0);  // after which queries tokens are let go
  int live = 0;
  int most = 0;
  for (size_t i = 0; i < last.size(); ++i) {
    if (last[i] >= 0) {
      ++live;
      ++ends[static_cast<size_t>(last[i])];
    }
    most = std::max(most, live);
    live -= ends[i];
  }
  return most;
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
  try {
    const IntegerContext context(bound.operations);
    IslMap keys = Relation(context, pattern_).whole();
    is_empty_ = context.require(isl_map_is_empty(keys.get()));
    QuasiAffineFunction last_key = QuasiAffineFunction::largest(context, keys);
    IslMap readers = context.require(IslMap(isl_map_reverse(keys.release())));
    functions_ = Functions{QuasiAffineFunction::largest(context, readers), std::move(last_key)};
  } catch (const InputError&) {
    functions_.reset();  // too much work, or numbers too large: rows are looked at
  }
}

void PatternAnalysis::require_few_rows(int length) const {
  const int64_t words = int64_t{length} * (pattern_.row_cost(length) + length / 32) / 2;
  if (words <= bound_.words) return;
  throw InputError(fmt::format("the pattern is too complex to be analysed for {} tokens", length),
                   "fewer parts, fewer strides, or strides of which one divides the other");
}

std::vector<int32_t> PatternAnalysis::last_readers(int length) const {
  if (functions_) return functions_->last_reader.values(length, -1);
  require_few_rows(length);
  std::vector<int32_t> last(static_cast<size_t>(length), -1);
  std::vector<uint32_t> unread(static_cast<size_t>((length + 31) / 32), ~uint32_t{0});
  std::vector<uint32_t> row(unread.size());
  for (int i = length - 1; i >= 0; --i) {
    const std::span<uint32_t> seen = std::span(row).first(static_cast<size_t>(i) / 32 + 1);
    pattern_.row(i, i + 1, seen);
    for (size_t word = 0; word < seen.size(); ++word) {
      for (uint32_t found = seen[word] & unread[word]; found != 0; found &= found - 1) {
        last[word * 32 + static_cast<size_t>(std::countr_zero(found))] = i;
      }
      unread[word] &= ~seen[word];
    }
  }
  return last;
}

int PatternAnalysis::blind_rows(int length) const {
  if (functions_) {
    const std::vector<int32_t> last = functions_->last_key.values(length, -1);
    return static_cast<int>(std::count(last.begin(), last.end(), -1));
  }
  require_few_rows(length);
  std::vector<uint32_t> row(static_cast<size_t>((length + 31) / 32));
  int blind = 0;
  for (int i = 0; i < length; ++i) {
    const std::span<uint32_t> seen = std::span(row).first(static_cast<size_t>(i) / 32 + 1);
    pattern_.row(i, i + 1, seen);
    blind += std::all_of(seen.begin(), seen.end(), [](uint32_t word) { return word == 0; }) ? 1 : 0;
  }
  return blind;
}

int PatternAnalysis::live_tokens(int length) const { return most_live(last_readers(length)); }

std::optional<CacheSize> PatternAnalysis::size_for_any_length() const {
  if (!functions_) return std::nullopt;
  const auto repetition = repetition_of(pattern_.nodes(), static_cast<int>(pattern_.nodes().size()) - 1);
  if (!repetition) return std::nullopt;
  const int64_t period = repetition->period;
  const int64_t first = 4 * (repetition->from + period);
  if (first + 2 * period > kLongest) return std::nullopt;
  // What is kept grows by the same number in every period. Between, it has to be one line that is rounded down.
  CacheSize size{.period = period, .from = first};
  const auto live = [&](int64_t length) { return int64_t{live_tokens(static_cast<int>(length))}; };
  const int64_t at_first = live(first);
  size.growth = live(first + period) - at_first;
  if (live(first + 2 * period) - at_first != 2 * size.growth) return std::nullopt;
  size.constant = at_first - first * size.growth / period;
  constexpr int kProbes = 16;
  constexpr double kGolden = 0.6180339887498949;  // shares of a period that have no divisor in common with anything in it
  for (int probe = 1; probe <= kProbes; ++probe) {
    const double share = probe * kGolden - std::floor(probe * kGolden);
    const int64_t length = first + static_cast<int64_t>(share * static_cast<double>(period));
    if (live(length) != size.at(length)) return std::nullopt;
  }
  return size;
}

}  // namespace sluice
