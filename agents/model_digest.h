#pragma once

#include <string>

namespace sluice {

/// What tells the model in a directory from any other, whatever the directory is called: 32 hexadecimal digits of a BLAKE2b hash
/// of its configuration, its tokenizer, and names, types, shapes and samples of its tensors, 16 KiB of each at most, so that
/// large weights need not be read. Throws InputError for weights that cannot be read.
std::string model_digest(const std::string& directory);

}  // namespace sluice
