#pragma once

#include <map>
#include <string>

#include "host/weights/gguf.h"

namespace sluice {

/// The tensors of a GGUF file under Hugging Face's names. Those of `llama` files that rotary embeddings turn have their rows put
/// back in order (StoredTensor::paired_heads). A name that is not known stays as it is, so that whoever loads the model can
/// refuse it; factors of rotary frequencies are left out, since the configuration has them. Throws InputError for heads that do
/// not divide the rows.
std::map<std::string, StoredTensor> huggingface_tensors(const Gguf& gguf);

}  // namespace sluice
