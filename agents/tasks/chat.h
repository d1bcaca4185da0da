#pragma once

#include <cstdint>
#include <string>

#include "host/text/chat_template.h"
#include "host/text/tokenizer.h"

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

/// Tokens that the tokenizer adds to any text, such as Llama's <|begin_of_text|>.
int special_tokens(const Tokenizer& tokenizer);

/// The format of the model's own template; where it is null, that which the tokenizer's special tokens belong to: ChatML (Qwen
/// and others), Llama 3, or none (a line break after the prompt) for base models. What the tokenizer adds to any text is not in
/// it, and a template sees the same date on every day, so that questions stay as they are. Throws InputError for a template that
/// does not write a user's turn.
ChatFormat chat_format(const Tokenizer& tokenizer, const ChatTemplate* chat_template, Thinking thinking);

}  // namespace sluice
