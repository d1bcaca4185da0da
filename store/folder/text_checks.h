#pragma once

#include <string>

namespace sluice::store {

// Each throws StoreError (kInvalid) that names `what` is wrong.

void check_size(const std::string& what, const std::string& text, size_t most);
/// Its size, and that it is UTF-8 without NUL, as Git and JSON want it.
void check_text(const std::string& what, const std::string& text, size_t most);
/// Not empty, neither beginning nor ending with a blank, and without characters that control or that nobody sees.
void check_one_line(const std::string& what, const std::string& text);
/// A JSON object, written in the one way that makes equal objects equal texts: keys sorted, no blanks.
std::string canonical_object(const std::string& what, const std::string& json);

}  // namespace sluice::store
