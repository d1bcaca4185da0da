#pragma once

#include <string_view>

#include "host/text/jinja/run.h"

namespace sluice::jinja {

/// `input is name(arguments)`.
using Test = bool (*)(Run& run, const Value& input, const Arguments& arguments);

/// Null if nobody knows it.
Test find_test(std::string_view name);

}  // namespace sluice::jinja
