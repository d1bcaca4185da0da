#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::repl {

/// What a terminal can show.
struct Style {
  bool unicode = false;  // block characters instead of ASCII
  bool color = false;    // ANSI escapes, 256 colours
  int width = 80;        // columns
};

/// One line for every 1, 2, 4 ... pages per cell: as many as fit `style`, with the number of the first page before each. Dark is
/// the least of `values` [pages], bright the largest; "?" is NaN. A cell of several pages shows the largest of them.
std::string heat_map(std::span<const double> values, const Style& style);

/// The same for `values` [pages, rows]: a line for every row, or for several, of which a cell shows the largest.
std::string heat_map(std::span<const double> values, int rows, const Style& style);

/// A cell for every page: full where it is in `selected`, which is ascending.
std::string page_strip(std::span<const int32_t> selected, int pages, const Style& style);

/// A line for a share from 0 to 1; 32 columns are the whole.
std::string share_bar(double share, const Style& style);

}  // namespace sluice::repl
