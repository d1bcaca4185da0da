#pragma once

#include <string>

#include "agents/evaluation/report.h"

namespace sluice {

// What a report's table says of the conditions under which speeds were measured.

/// Behind a speed that was measured without quiet; else "".
std::string mark_of(const SpeedResult& speed);
/// What the mark means, and which flows a GPU's clocks were held down for; "" where there is nothing to say.
std::string conditions_notes(const Report& report);
/// A row a flow that was timed; "" without any.
std::string conditions_table(const Report& report);

}  // namespace sluice
