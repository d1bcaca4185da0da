#pragma once

#include <string>

namespace sluice {

/// What the model in a directory is called, in settings and in requests: the last part of its path, which may be relative; "" of
/// none. Throws InputError for a name that is no UTF-8, which no document could tell.
std::string model_name(const std::string& directory);

}  // namespace sluice
