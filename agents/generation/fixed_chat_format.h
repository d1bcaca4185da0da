#pragma once

#include <string>
#include <vector>

#include "agents/generation/chat_prompt.h"
#include "host/text/tokenizer.h"

namespace sluice {

/// How a model without a template is given conversations.
struct FixedChatFormat {
  std::string begin;        // of the conversation
  std::string before_role;  // of each message
  std::string after_role;
  std::string after_content;
  std::vector<std::string> separators;  // tokens that only the format may write; none: roles are not written
};

/// The one that the tokenizer's special tokens belong to:
///   ChatML (Qwen and others)  <|im_start|>ROLE LF CONTENT <|im_end|> LF ... <|im_start|>assistant LF
///   Llama 3                   <|start_header_id|>ROLE<|end_header_id|> LF LF CONTENT <|eot_id|> ...
///   plain, for base models    the contents, a line each; roles are not written
/// What the tokenizer adds to any text is not in it.
FixedChatFormat fixed_chat_format(const Tokenizer& tokenizer);

/// The text of a conversation; variables of templates have no meaning here.
std::string written(const FixedChatFormat& format, const std::vector<ChatMessage>& messages, const ChatOptions& options);

}  // namespace sluice
