#pragma once

#include <string_view>
#include <vector>

#include "host/text/jinja/run.h"

namespace sluice::jinja {

using MethodBody = Value (*)(Run& run, const Value& owner, const Arguments& arguments);

/// The method of texts of that name; null if there is none.
MethodBody find_text_method(std::string_view name);
MethodBody find_splitting_method(std::string_view name);

/// `text` between separators, in at most `most` + 1 pieces; in all if `most` is negative.
std::vector<Value> pieces_of(Run& run, std::string_view text, std::string_view separator, int64_t most = -1);

}  // namespace sluice::jinja
