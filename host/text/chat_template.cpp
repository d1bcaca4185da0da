#include "host/text/chat_template.h"

#include <fmt/format.h>

#include <filesystem>

#include "host/text/gguf_tokenizer.h"
#include "host/text/jinja/characters.h"
#include "host/weights/gguf.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/base/mapped_file.h"

namespace sluice {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Stands for the end of a message that is to be continued; a template may drop the space.
constexpr std::string_view kOpenEnd = "CONTINUE_FINAL_MESSAGE_TAG ";

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

/// A token as tokenizer_config.json has it: a text, or an object with "content".
std::string token_text(const JsonObject& config, const char* key) {
  const nlohmann::json* token = config.find(key);
  if (token == nullptr) return {};
  if (token->is_object()) return JsonObject(*token, fmt::format("{}: \"{}\"", config.where(), key)).text("content");
  return config.text(key);
}

/// The template in a tokenizer_config.json; null if it has none.
const std::string* find_template(const JsonObject& config) {
  const nlohmann::json* found = config.find("chat_template");
  if (found == nullptr) return nullptr;
  if (!found->is_array()) return &config.text("chat_template");
  for (const nlohmann::json& entry : *found) {
    const JsonObject named(entry, config.where() + ": an entry of \"chat_template\"");
    if (named.text("name") == "default") return &named.text("template");
  }
  config.refuse("chat_template", "none of its templates has the name \"default\"");
}

/// `text` up to where the open message ends.
std::string cut_open(std::string text, const std::string& name) {
  const size_t at = text.rfind(kOpenEnd.substr(0, kOpenEnd.size() - 1));
  if (at == std::string::npos) {
    throw InputError(fmt::format("{}: the template does not write the final message, which is to be continued", name));
  }
  const bool keeps_spaces = text.compare(at, kOpenEnd.size(), kOpenEnd) == 0;
  text.resize(at);
  return keeps_spaces ? text : std::string(jinja::strip(text, false, true));
}

/// A template, and where it was found.
struct FoundTemplate {
  std::string source;
  std::string name;  // in messages to those who must not learn the path
  SpecialTokenTexts tokens;
};

std::optional<FoundTemplate> find_in_gguf(const std::string& path) {
  const GgufFile file(path);
  const GgufChat chat = gguf_chat(file.contents());
  if (!chat.chat_template) return std::nullopt;
  return FoundTemplate{*chat.chat_template,
                       "tokenizer.chat_template",
                       {chat.begin.value_or(""), chat.end.value_or(""), chat.padding.value_or(""), chat.unknown.value_or("")}};
}

std::optional<FoundTemplate> find_in_directory(const std::string& directory) {
  constexpr size_t kLargest = size_t{16} << 20;
  const std::string config_path = (std::filesystem::path(directory) / "tokenizer_config.json").string();
  const std::string template_path = (std::filesystem::path(directory) / "chat_template.jinja").string();
  FoundTemplate found;
  if (exists(config_path)) {
    const nlohmann::json document = parse_json(read_text_file(config_path, kLargest), config_path);
    const JsonObject config(document, config_path);
    found.tokens = {token_text(config, "bos_token"), token_text(config, "eos_token"), token_text(config, "pad_token"),
                    token_text(config, "unk_token")};
    if (const std::string* source = find_template(config)) {
      found.source = *source;
      found.name = "tokenizer_config.json: chat_template";
    }
  }
  if (exists(template_path)) {
    found.source = read_text_file(template_path, kLargest);
    found.name = "chat_template.jinja";
  }
  if (found.name.empty()) return std::nullopt;
  return found;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string name, SpecialTokenTexts tokens)
    : template_(source, name), name_(std::move(name)), tokens_(std::move(tokens)) {}

std::string ChatTemplate::prompt(const OrderedJson& messages, const ChatOptions& options) const {
  if (options.add_generation_prompt && options.continue_final_message) {
    throw InputError("a final message cannot be continued where another one is to follow");
  }
  OrderedJson variables = OrderedJson::object();
  variables["messages"] = messages;
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  const std::pair<const char*, const std::string&> tokens[] = {
      {"bos_token", tokens_.bos}, {"eos_token", tokens_.eos}, {"pad_token", tokens_.pad}, {"unk_token", tokens_.unk}};
  for (const auto& [key, text] : tokens) {
    if (!text.empty()) variables[key] = text;
  }
  for (const auto& [key, value] : options.variables.items()) variables[key] = value;
  variables["add_generation_prompt"] = options.add_generation_prompt;
  if (!options.continue_final_message) return template_.render(variables, options.now);
  if (!messages.is_array() || messages.empty()) throw InputError("there is no final message to be continued");
  OrderedJson& last = variables["messages"].back()["content"];
  if (!last.is_string()) throw InputError("only a final message of text can be continued");
  last = last.get<std::string>() + std::string(kOpenEnd);
  return cut_open(template_.render(variables, options.now), name_);
}

std::unique_ptr<ChatTemplate> load_chat_template(const std::string& path) {
  std::optional<FoundTemplate> found = is_gguf(path) ? find_in_gguf(path) : find_in_directory(path);
  if (!found) return nullptr;
  try {
    return std::make_unique<ChatTemplate>(found->source, found->name, std::move(found->tokens));
  } catch (const InputError& error) {  // later messages, which requests are told, do not name the path
    throw InputError(fmt::format("{}/{}", path, error.what()), error.hint());
  }
}

}  // namespace sluice
