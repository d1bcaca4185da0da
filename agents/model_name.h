#pragma once

#include <string>

namespace sluice {

/// What the model in a directory is called, in settings and in requests: the last part of its path, which may be relative; "" of
/// none.
std::string model_name(const std::string& directory);

}  // namespace sluice
