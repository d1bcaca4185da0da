#pragma once

#include <string>

#include "scripting/pattern/pattern.h"

namespace sluice {

/// The expression as a script would write it, with the functions of sluice.pattern: "sink(4) | window(512)".
std::string to_text(const Pattern& pattern);

}  // namespace sluice
