#pragma once

#include <cstdint>
#include <string>

#include "host/tokenizer.h"

namespace sluice {

/// What stands before and after a user's turn so that an instruction-tuned model answers it.
struct ChatFormat {
  std::string before;
  std::string after;
};

enum class Thinking : uint8_t {
  kAllowed,
  kSkipped,  // a model that can think aloud is told that it has done so: short answers are wanted
};

/// The format that the tokenizer's special tokens belong to: ChatML (Qwen and others), Llama 3, or none (a line break after
/// the prompt) for base models.
ChatFormat chat_format(const Tokenizer& tokenizer, Thinking thinking);

}  // namespace sluice
