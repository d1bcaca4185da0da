#pragma once

#include <string>

namespace sluice {

/// What tells the model in a directory or a GGUF file from any other, whatever its path is called: 32 hexadecimal digits of a
/// BLAKE2b hash of its configuration, its tokenizer, and names, types, shapes and bytes of its tensors. Of weights of more than
/// 256 MiB samples are read, 16 KiB of each tensor at most. Throws InputError for weights that cannot be read.
std::string model_digest(const std::string& model);

}  // namespace sluice
