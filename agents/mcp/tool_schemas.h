#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "scripting/base/json_object.h"

// The pieces of which schemas of tools are made.

namespace sluice::mcp {

/// An object that takes these members and no others.
nlohmann::json input_object(nlohmann::json properties, const std::vector<std::string>& required = {});
/// An object with these members, and perhaps others.
nlohmann::json output_object(nlohmann::json properties, const std::vector<std::string>& required);
nlohmann::json output_list(nlohmann::json items);

nlohmann::json id_property(const std::string& description);
nlohmann::json text_property(const std::string& description, size_t most_bytes);
nlohmann::json integer_property(const std::string& description, int64_t low, int64_t high, int64_t otherwise);
nlohmann::json choice_property(const std::string& description, const std::vector<std::string>& choices);

/// The line at which a long text begins, what arguments say of it, and the page from there with how to get the rest.
nlohmann::json first_line_property();
int64_t first_line(const JsonObject& arguments);
std::string paged_text(const std::string& text, const JsonObject& arguments);

/// Hints of tools that change nothing.
nlohmann::json reading_annotations();
/// Hints of tools that do; a second call with the same arguments does nothing more.
nlohmann::json writing_annotations(bool destructive);

}  // namespace sluice::mcp
