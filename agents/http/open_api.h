#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agents/http/router.h"

namespace sluice {

/// The OpenAPI 3.1 document of `routes`. Every operation may also be refused with a problem document. `token_for_reading`:
/// reading needs a token, too.
nlohmann::json open_api_document(const std::vector<HttpRoute>& routes, const std::string& title, bool token_for_reading);

}  // namespace sluice
