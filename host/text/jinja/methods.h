#pragma once

#include <optional>
#include <string_view>

#include "host/text/jinja/run.h"

namespace sluice::jinja {

/// The method `name` of a text, a list or a dict, bound to it; nullopt if it has none. Methods that would change a value are
/// there, and refuse to be called.
std::optional<Value> find_method(Run& run, const Value& value, std::string_view name);

/// `format % value`, with %s, %r, %d, %i, %x, %f, %g and %%.
Value percent_format(Run& run, std::string_view format, const Value& value);
/// `format.format(...)`, with {}, {0} and {name}.
Value brace_format(Run& run, std::string_view format, const Arguments& arguments);

/// `text` with `most` of `old` replaced; all if `most` is negative.
Value replace(Run& run, std::string_view text, std::string_view old, std::string_view with, int64_t most);

}  // namespace sluice::jinja
