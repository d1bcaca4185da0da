#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "host/text/jinja/jinja_template.h"

namespace sluice {

/// Texts of special tokens, as templates write them; empty where a model has none.
struct SpecialTokenTexts {
  std::string bos;
  std::string eos;
  std::string pad;
  std::string unk;
};

struct ChatOptions {
  bool add_generation_prompt = true;    // so that an answer of the assistant follows
  bool continue_final_message = false;  // the last message is left open, so that the model goes on with it
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // further ones, such as enable_thinking
  std::optional<std::time_t> now;                                       // the clock's without it
};

/// How a model's conversations are written, by its own template, as transformers' apply_chat_template does it.
class ChatTemplate {
 public:
  /// `source` is the template, `name` what messages call it. Throws InputError for a template that is not right.
  ChatTemplate(std::string_view source, std::string name, SpecialTokenTexts tokens);

  /// The prompt of `messages`, a list of objects with "role", "content" and whatever else the template reads. Special tokens are
  /// in the text: it is encoded as it is written. Throws InputError for what the template raises or cannot do, and for both of
  /// the options at once.
  std::string prompt(const nlohmann::ordered_json& messages, const ChatOptions& options) const;

  /// Whether the template reads a variable of that name.
  bool has_variable(const std::string& name) const { return template_.has_variable(name); }
  const std::string& source() const { return template_.source(); }
  const SpecialTokenTexts& tokens() const { return tokens_; }

 private:
  JinjaTemplate template_;
  std::string name_;
  SpecialTokenTexts tokens_;
};

/// That of a model's directory: chat_template.jinja, or "chat_template" of tokenizer_config.json (a text, or a list of named ones
/// with a "default"); of a GGUF file: what its metadata has. Null if it has none. Throws InputError.
std::unique_ptr<ChatTemplate> load_chat_template(const std::string& path);

}  // namespace sluice
