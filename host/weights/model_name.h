#pragma once

#include <string>

namespace sluice {

/// What a model is called, in settings and in requests: the last part of its path, which may be relative, without ".gguf"; "" of
/// none. Throws InputError for a name that is no UTF-8, which no document could tell.
std::string model_name(const std::string& model);

}  // namespace sluice
