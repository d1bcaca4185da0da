#pragma once

#include <initializer_list>
#include <string_view>

#include "scripting/base/json_object.h"

namespace sluice {

/// Throws HttpProblem (422) for a member of a body that is not among those `known`.
void refuse_others(const JsonObject& object, std::initializer_list<std::string_view> known);

}  // namespace sluice
