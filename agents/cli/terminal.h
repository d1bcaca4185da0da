#pragma once

#include "agents/repl/heat_map.h"

namespace sluice::cli {

/// What standard output can show. Colours only on a terminal, and not where NO_COLOR is set; characters beside ASCII where the
/// locale of LC_CTYPE (std::setlocale) has them.
repl::Style terminal_style();

}  // namespace sluice::cli
