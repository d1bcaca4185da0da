#pragma once

#include <set>
#include <string>
#include <string_view>

#include "host/text/jinja/syntax.h"

namespace sluice::jinja {

/// Parses a template; `names` are those of variables in it. Throws Fault with the line of what is wrong, or what is not
/// supported.
Body parse(std::string_view source, std::set<std::string>& names);

}  // namespace sluice::jinja
