#include "agents/repl/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice::repl {

namespace {

constexpr int kLabel = 7;       // columns of "  1024 "
constexpr int kMostLines = 16;  // of one map
constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 8> kAscii = {".", ":", "-", "=", "+", "*", "#", "@"};
constexpr std::array<int, 8> kColors = {17, 19, 26, 37, 70, 142, 208, 196};  // of 256: dark blue to red

int cells_across(const Style& style) { return std::max(16, (style.width - kLabel) / 16 * 16); }

/// The larger, where NaN counts as nothing.
double larger(double a, double b) { return std::isnan(a) || b > a ? b : a; }

std::string cell(int level, const Style& style) {
  const auto at = static_cast<size_t>(level);
  const char* mark = style.unicode ? kBlocks[at] : kAscii[at];
  return style.color ? fmt::format("\x1b[38;5;{}m{}\x1b[0m", kColors[at], mark) : mark;
}

/// Levels between the least and the largest finite value.
class Scale {
 public:
  explicit Scale(std::span<const double> values) {
    for (const double value : values) {
      if (!std::isfinite(value)) continue;
      low_ = std::isnan(low_) ? value : std::min(low_, value);
      high_ = larger(high_, value);
    }
  }

  std::string cell_of(double value, const Style& style) const {
    if (std::isnan(value)) return "?";
    constexpr int kTop = static_cast<int>(kBlocks.size()) - 1;
    if (std::isinf(value)) return cell(value > 0 ? kTop : 0, style);
    if (high_ == low_) return cell(kTop / 2, style);
    // Halved, so that the difference of the largest numbers is finite.
    const double share = (value / 2 - low_ / 2) / (high_ / 2 - low_ / 2);
    return cell(static_cast<int>(std::lround(share * kTop)), style);
  }

 private:
  double low_ = NAN;
  double high_ = NAN;
};

/// Values [pages, rows] with several pages and rows joined into one.
struct Grid {
  int pages = 0;
  int rows = 0;
  std::vector<double> values;
};

Grid join(std::span<const double> values, int rows, int pages_a_cell, int rows_a_line) {
  const int pages = static_cast<int>(values.size()) / rows;
  Grid grid{(pages + pages_a_cell - 1) / pages_a_cell, (rows + rows_a_line - 1) / rows_a_line, {}};
  grid.values.assign(static_cast<size_t>(grid.pages) * static_cast<size_t>(grid.rows), NAN);
  for (int page = 0; page < pages; ++page) {
    for (int row = 0; row < rows; ++row) {
      double& joined = grid.values[static_cast<size_t>(page / pages_a_cell) * static_cast<size_t>(grid.rows) +
                                   static_cast<size_t>(row / rows_a_line)];
      joined = larger(joined, values[static_cast<size_t>(page) * static_cast<size_t>(rows) + static_cast<size_t>(row)]);
    }
  }
  return grid;
}

std::string note(int pages_a_cell, int rows_a_line) {
  std::string text;
  if (pages_a_cell > 1) text = fmt::format("{} pages", pages_a_cell);
  if (rows_a_line > 1) text += fmt::format("{}{} rows", text.empty() ? "" : ", ", rows_a_line);
  return text.empty() ? text : fmt::format("a cell is the largest of {}\n", text);
}

}  // namespace

std::string heat_map(std::span<const double> values, const Style& style) {
  const int across = cells_across(style);
  int pages_a_cell = 1;
  while (static_cast<int>(values.size()) > across * pages_a_cell * kMostLines) pages_a_cell *= 2;
  const Grid grid = join(values, 1, pages_a_cell, 1);
  const Scale scale(values);
  std::string text;
  for (int first = 0; first < grid.pages; first += across) {
    text += fmt::format("{:>6} ", first * pages_a_cell);
    for (int i = first; i < std::min(first + across, grid.pages); ++i) {
      text += scale.cell_of(grid.values[static_cast<size_t>(i)], style);
    }
    text += '\n';
  }
  return text + note(pages_a_cell, 1);
}

std::string heat_map(std::span<const double> values, int rows, const Style& style) {
  const int across = cells_across(style);
  int pages_a_cell = 1;
  while (static_cast<int>(values.size()) / rows > across * pages_a_cell) pages_a_cell *= 2;
  int rows_a_line = 1;
  while (rows > kMostLines * rows_a_line) rows_a_line *= 2;
  const Grid grid = join(values, rows, pages_a_cell, rows_a_line);
  const Scale scale(values);
  std::string text;
  for (int row = 0; row < grid.rows; ++row) {
    text += fmt::format("{:>6} ", row * rows_a_line);
    for (int page = 0; page < grid.pages; ++page) {
      text += scale.cell_of(grid.values[static_cast<size_t>(page) * static_cast<size_t>(grid.rows) + static_cast<size_t>(row)],
                            style);
    }
    text += '\n';
  }
  return text + note(pages_a_cell, rows_a_line);
}

std::string page_strip(std::span<const int32_t> selected, int pages, const Style& style) {
  const int across = cells_across(style);
  const char* in = style.unicode ? "█" : "#";
  const char* out = style.unicode ? "·" : ".";
  std::string text;
  for (int first = 0; first < pages; first += across) {
    text += fmt::format("{:>6} ", first);
    for (int page = first; page < std::min(first + across, pages); ++page) {
      text += std::binary_search(selected.begin(), selected.end(), page) ? in : out;
    }
    text += '\n';
  }
  return text;
}

std::string share_bar(double share, const Style& style) {
  constexpr int kWhole = 32;  // columns
  std::string text;
  for (long i = 0; i < std::lround(std::clamp(share, 0.0, 1.0) * kWhole); ++i) text += style.unicode ? "█" : "#";
  return text;
}

}  // namespace sluice::repl
