#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice {

/// Submissions with their parents as an indented tree: each below the first of its parents that is among `nodes`; further
/// parents are named, and so is a depth that is too great to be shown by indenting.
std::string lineage_tree(const nlohmann::json& nodes);

}  // namespace sluice
