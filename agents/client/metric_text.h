#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice {

/// The member of a document of the server, or null: what a server leaves out is not shown.
const nlohmann::json& member_of(const nlohmann::json& document, const char* name);

/// What a document says under `name`, harmless for a terminal; "-" if it says nothing.
std::string text_of(const nlohmann::json& document, const char* name);

/// A metric {"value", "low", "high"} with its interval, "96.0% 93–98"; "-" if there is none.
std::string metric_text(const std::string& name, const nlohmann::json& metric);

/// ", accuracy 96.0%, speedup 1.92x" of a summary's metrics; empty where nothing was measured.
std::string measured_text(const nlohmann::json& summary);

}  // namespace sluice
