#pragma once

#include <string>
#include <vector>

#include "host/text/tokenizer.h"

namespace sluice {

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
};

/// The prompt of a conversation, so that the model goes on with the assistant's answer. There is no Jinja here, so a model's
/// chat_template is not run; the special tokens of its tokenizer tell which of these it is:
///   ChatML (Qwen and others)  <|im_start|>ROLE LF CONTENT <|im_end|> LF ... <|im_start|>assistant LF
///   Llama 3                   <|start_header_id|>ROLE<|end_header_id|> LF LF CONTENT <|eot_id|> ...
///   plain, for base models    the contents, a line each; roles are not written
/// What the tokenizer adds to any text is not in it. Throws HttpProblem (400) if a content holds one of the special tokens: it
/// could pretend to be another role.
std::string chat_prompt(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages);

}  // namespace sluice
