#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice {

/// What GET /v1/submissions/ID/diff says: the unified diff of the scripts, then the settings that differ and the metrics that
/// changed. With `color` in ANSI colours.
std::string diff_text(const nlohmann::json& diff, bool color);

}  // namespace sluice
