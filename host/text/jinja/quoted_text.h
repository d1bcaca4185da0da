#pragma once

#include <string>
#include <string_view>

namespace sluice::jinja {

/// What stands between quotation marks, with Python's escapes read. Throws Fault with `line` for those that are no character.
std::string without_escapes(std::string_view quoted, int line);

}  // namespace sluice::jinja
