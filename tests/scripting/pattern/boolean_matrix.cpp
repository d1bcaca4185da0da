#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice::test {

BooleanMatrix BooleanMatrix::of(const Pattern& pattern, int place, int rows, int columns) {
  const Pattern::Node& node = pattern.nodes()[static_cast<size_t>(place)];
  BooleanMatrix result(rows, columns);
  const auto fill = [&](auto&& rule) {
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) result.set(i, j, rule(i, j));
    }
  };
  const auto operand = [&](int child) { return of(pattern, child, rows, columns); };
  switch (node.kind) {
    case Pattern::Kind::kRect: {
      const PatternRect& rect = node.rect;
      std::vector<bool> on_row(static_cast<size_t>(rows));
      std::vector<bool> on_column(static_cast<size_t>(columns));
      for (int64_t i = rect.row + rect.row_offset; i < rows && i < int64_t{rect.row} + rect.rows; i += rect.row_stride)
        on_row[i] = true;
      for (int64_t j = rect.column + rect.column_offset; j < columns && j < int64_t{rect.column} + rect.columns;
           j += rect.column_stride) {
        on_column[j] = true;
      }
      fill([&](int i, int j) { return on_row[static_cast<size_t>(i)] && on_column[static_cast<size_t>(j)]; });
      return result;
    }
    case Pattern::Kind::kDiag:
      for (int64_t behind = node.diag.offset; behind < int64_t{node.diag.offset} + node.diag.size && behind < rows;
           behind += node.diag.stride) {
        for (int64_t i = behind; i < rows; ++i) {
          if (i >= 0 && i - behind < columns) result.set(static_cast<int>(i), static_cast<int>(i - behind), true);
        }
      }
      return result;
    case Pattern::Kind::kAnd: {
      const BooleanMatrix left = operand(node.left), right = operand(node.right);
      fill([&](int i, int j) { return left.at(i, j) && right.at(i, j); });
      return result;
    }
    case Pattern::Kind::kOr: {
      const BooleanMatrix left = operand(node.left), right = operand(node.right);
      fill([&](int i, int j) { return left.at(i, j) || right.at(i, j); });
      return result;
    }
    case Pattern::Kind::kNot: {
      const BooleanMatrix left = operand(node.left);
      fill([&](int i, int j) { return !left.at(i, j); });
      return result;
    }
    case Pattern::Kind::kSpread: {
      const PatternRect& size = pattern.nodes()[static_cast<size_t>(node.left)].rect;
      const BooleanMatrix block = of(pattern, node.left, size.rows, size.columns);
      const BooleanMatrix outer = of(pattern, node.right, rows / size.rows + 1, columns / size.columns + 1);
      for (int p = 0; p < outer.rows(); ++p) {
        for (int q = 0; q < outer.columns(); ++q) {
          if (!outer.at(p, q)) continue;
          for (int i = 0; i < block.rows() && p * block.rows() + i < rows; ++i) {
            for (int j = 0; j < block.columns() && q * block.columns() + j < columns; ++j) {
              result.set(p * block.rows() + i, q * block.columns() + j, block.at(i, j));
            }
          }
        }
      }
      return result;
    }
  }
  return result;
}

BooleanMatrix BooleanMatrix::of(const Pattern& pattern, int length) {
  BooleanMatrix result = of(pattern, static_cast<int>(pattern.nodes().size()) - 1, length, length);
  for (int i = 0; i < length; ++i) {
    for (int j = i + 1; j < length; ++j) result.set(i, j, false);
  }
  return result;
}

Pattern random_pattern(std::mt19937& random, int parts) {
  const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  const auto size = [&](int most) { return below(3) == 0 ? kUnbounded : 1 + below(most); };
  const auto stride = [&] { return below(2) == 0 ? 1 : 1 + below(12); };
  if (parts <= 1) {
    if (below(2) == 0) return Pattern::diag({.offset = below(60) - 10, .size = size(80), .stride = stride()});
    PatternRect rect{.row = below(3) == 0 ? below(100) : 0, .column = below(3) == 0 ? below(100) : 0};
    rect.rows = size(150);
    rect.columns = size(150);
    rect.row_stride = stride();
    rect.column_stride = stride();
    rect.row_offset = below(rect.row_stride);
    rect.column_offset = below(rect.column_stride);
    return Pattern::rect(rect);
  }
  const int left = 1 + below(parts - 1);
  switch (below(5)) {
    case 0:
      return ~random_pattern(random, parts - 1);
    case 1: {
      PatternRect block{.rows = 1 + below(20)};
      block.columns = below(2) == 0 ? block.rows : 1 + below(20);
      block.row_stride = below(3) == 0 ? 1 + below(3) : 1;
      block.column_stride = below(3) == 0 ? 1 + below(3) : 1;
      block.row_offset = below(block.row_stride);
      block.column_offset = below(block.column_stride);
      return Pattern::spread(Pattern::rect(block), random_pattern(random, parts - 1));
    }
    case 2:
      return random_pattern(random, left) & random_pattern(random, parts - left);
    default:
      return random_pattern(random, left) | random_pattern(random, parts - left);
  }
}

}  // namespace sluice::test
