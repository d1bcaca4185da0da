#pragma once

#include <string>
#include <vector>

namespace sluice {

using TableRow = std::vector<std::string>;

/// Rows of equally many cells as lines of text, columns aligned to the left, with a rule below the first row. Cells are UTF-8
/// without wide characters.
std::string aligned_table(const std::vector<TableRow>& rows);

}  // namespace sluice
