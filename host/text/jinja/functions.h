#pragma once

#include <string_view>

#include "host/text/jinja/run.h"

namespace sluice::jinja {

/// What a name means that nobody has set: range, dict, namespace, cycler, joiner, raise_exception, strftime_now; undefined else.
Value global(Run& run, std::string_view name);

/// `dict[key] = value` while the dict is made.
void set_item(Run& run, Dict& dict, const Value& key, const Value& value);

}  // namespace sluice::jinja
