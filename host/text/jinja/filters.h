#pragma once

#include <string_view>

#include "host/text/jinja/run.h"

namespace sluice::jinja {

/// `input | name(arguments)`.
using Filter = Value (*)(Run& run, const Value& input, const Arguments& arguments);

/// Null if nobody knows it.
Filter find_filter(std::string_view name);

/// Those of one kind each; null if it is of another.
Filter find_text_filter(std::string_view name);      // text_filters.cpp
Filter find_list_filter(std::string_view name);      // list_filters.cpp
Filter find_choosing_filter(std::string_view name);  // choosing_filters.cpp
Filter find_number_filter(std::string_view name);    // number_filters.cpp

/// json.dumps of Python, as Hugging Face's `tojson` calls it.
Value to_json(Run& run, const Value& input, const Arguments& arguments);

/// The part of `value` that `path` names: attributes and places with dots between them.
Value part_of(Run& run, const Value& value, const Value& path);

}  // namespace sluice::jinja
