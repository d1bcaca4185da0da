#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::test {

/// What is wrong with an OpenAPI 3.1 document, as far as our documents go: required members and their types, unique names of
/// operations, parameters of paths, references that lead somewhere, and schemas of known keywords. Empty if nothing is.
std::vector<std::string> check_open_api(const nlohmann::json& document);

}  // namespace sluice::test
