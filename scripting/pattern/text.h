#pragma once

#include <string>

#include "scripting/pattern/head_patterns.h"

namespace sluice {

/// The expression as a script would write it, with the functions of sluice.pattern: "sink(4) | window(512)".
std::string to_text(const Pattern& pattern);
/// Of several: "by_head{window(64), window(512)}".
std::string to_text(const HeadPatterns& patterns);

}  // namespace sluice
