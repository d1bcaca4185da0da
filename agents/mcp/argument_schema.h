#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::mcp {

/// Where `value` does not follow `schema`, in words for whoever wrote the value: "limit is 500; at most 50 is wanted". At most a
/// handful of them; empty if it does. A member that is null counts as absent where the schema does not ask for it. Understands
/// the part of JSON Schema 2020-12 that our tools use: type, enum, minimum, maximum, minLength, maxLength (bytes), items,
/// maxItems, properties, required, additionalProperties; throws InternalError for a keyword that it does not know.
std::vector<std::string> schema_problems(const nlohmann::json& schema, const nlohmann::json& value);

/// A value that follows `schema`, with its integers written as such: 2 for 2.0.
nlohmann::json plain_integers(const nlohmann::json& schema, nlohmann::json value);

/// The members that an object schema takes, in a line: "id (integer), seconds (integer, optional)".
std::string signature_of(const nlohmann::json& schema);

}  // namespace sluice::mcp
