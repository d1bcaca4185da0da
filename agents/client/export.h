#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace sluice {

/// Writes a submission into `folder` (made if it is missing): flow.lua, settings.json and submission.json, byte by byte as its
/// commit in the repository of lineage has them, and, once it was judged, evaluation.json with the last verdict. Throws
/// InputError if something cannot be written.
void export_submission(const nlohmann::json& submission, const std::filesystem::path& folder);

}  // namespace sluice
