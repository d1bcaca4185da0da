#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "host/weights/gguf.h"

namespace sluice {

/// The `tokenizer.json` that the metadata of a GGUF file stands for: byte-level BPE ("gpt2"), whose way to cut text into words
/// the metadata tells by name only. Tokens of the kinds "control" and "unknown" are special added tokens, "user defined" ones are
/// added tokens that are not special; "unused" ones are none. Throws InputError for a tokenizer or a name that is not known.
nlohmann::json gguf_tokenizer(const Gguf& gguf);

/// What the metadata of a GGUF file says for chats.
struct GgufChat {
  std::optional<std::string> chat_template;  // Jinja
  // Texts of special tokens.
  std::optional<std::string> begin;
  std::optional<std::string> end;
  std::optional<std::string> unknown;
  std::optional<std::string> padding;
};

/// Throws InputError for a token that is not there.
GgufChat gguf_chat(const Gguf& gguf);

}  // namespace sluice
