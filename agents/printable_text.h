#pragma once

#include <string>
#include <string_view>

namespace sluice {

/// `text` as a terminal may have it: what a script or a file put into a message moves no cursor. Control characters but line
/// breaks and tabs become \xNN.
std::string printable(std::string_view text);

}  // namespace sluice
