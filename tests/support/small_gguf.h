#pragma once

#include "tests/support/gguf_writer.h"

namespace sluice::testing {

/// A `llama` of two layers and a tokenizer of 256 bytes (0 to 255), "ab", "abc", "<|begin|>" (258), "<|end|>" (259, both
/// control), "<think>" (260, user defined) and "[PAD]" (261, unused), as a converter writes them. Its matrices are Q8_0 and F32;
/// it means nothing, but every key and tensor of a real file is there. `embeddings`: of tokens, of which the tokenizer may have
/// fewer.
GgufWriter small_gguf(uint64_t embeddings = 262);

}  // namespace sluice::testing
