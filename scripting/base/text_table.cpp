#include "scripting/base/text_table.h"

#include <algorithm>

namespace sluice {
namespace {

/// Terminal columns of UTF-8 text.
size_t width_of(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string aligned_table(const std::vector<TableRow>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const TableRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows[r].size(); ++i) {
      line += rows[r][i] + std::string(widths[i] - width_of(rows[r][i]) + 2, ' ');
    }
    text += without_trailing_blanks(std::move(line));
    if (r > 0) continue;
    std::string rule;
    for (const size_t width : widths) rule += std::string(width, '-') + "  ";
    text += without_trailing_blanks(std::move(rule));
  }
  return text;
}

}  // namespace sluice
