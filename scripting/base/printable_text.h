#pragma once

#include <string>
#include <string_view>

namespace sluice {

/// `text` as a terminal may have it: what a script or a file put into a message moves no cursor, and looks like what it is.
/// Control characters but line breaks and tabs, and bytes that are no UTF-8, become \xNN; characters that nobody sees or that
/// turn the direction of writing become \u{NNNN}.
std::string printable(std::string_view text);

/// `text` as what() may tell it, which ends at the first NUL: each becomes a backslash and a 0.
std::string without_nul(std::string text);

}  // namespace sluice
