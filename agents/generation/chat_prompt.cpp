#include "agents/generation/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "agents/generation/fixed_chat_format.h"
#include "agents/http/http_problem.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson as_json(const std::vector<ChatMessage>& messages) {
  OrderedJson list = OrderedJson::array();
  for (const ChatMessage& message : messages) {
    OrderedJson& entry = list.emplace_back(OrderedJson{{"role", message.role}, {"content", message.content}});
    for (const auto& [name, text] : message.more) entry[name] = text;
  }
  return list;
}

/// Adds the special tokens in `text`.
void collect(const Tokenizer& tokenizer, const std::string& text, std::set<std::string>& found) {
  for (const int32_t id : tokenizer.encode_as_written(text)) {
    const std::string token = tokenizer.decode({&id, 1}, false);
    if (!token.empty() && tokenizer.decode({&id, 1}, true).empty()) found.insert(token);
  }
}

/// What conversations of these roles look like; nothing if the template refuses them.
std::string probe(const ChatTemplate& chat_template, const std::vector<const char*>& roles) {
  std::vector<ChatMessage> messages;
  messages.reserve(roles.size());
  for (const char* role : roles) messages.push_back({role, "text"});
  try {
    return chat_template.prompt(as_json(messages), {});
  } catch (const InputError&) {
    return {};
  }
}

std::vector<std::string> separators_of(const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  std::set<std::string> found;
  collect(tokenizer, chat_template.source(), found);
  collect(tokenizer, probe(chat_template, {"system", "user", "assistant", "user"}), found);
  collect(tokenizer, probe(chat_template, {"user", "assistant", "user"}), found);
  for (const std::string& token : {chat_template.tokens().bos, chat_template.tokens().eos}) {
    if (!token.empty()) found.insert(token);
  }
  return {found.begin(), found.end()};
}

/// A variable that the template does not read would change nothing.
void check_variables(const ChatTemplate* chat_template, const ChatOptions& options) {
  for (const auto& [name, value] : options.variables.items()) {
    if (chat_template != nullptr && chat_template->has_variable(name)) continue;
    const bool is_field = name == "reasoning_effort";
    throw HttpProblem(
        400, fmt::format("{} has no variable {}; leave it out",
                         chat_template == nullptr ? "the model has no chat template, which" : "the model's chat template",
                         excerpt(name)))
        .with("param", is_field ? "reasoning_effort" : "chat_template_kwargs");
  }
}

}  // namespace

ChatPrompt::ChatPrompt(const Tokenizer& tokenizer, std::unique_ptr<const ChatTemplate> chat_template)
    : tokenizer_(tokenizer),
      template_(std::move(chat_template)),
      separators_(template_ == nullptr ? fixed_chat_format(tokenizer).separators : separators_of(tokenizer, *template_)) {}

void ChatPrompt::check(const std::string& text) const {
  for (const std::string& token : separators_) {
    if (text.find(token) == std::string::npos) continue;
    throw HttpProblem(400, fmt::format("a message holds {}, which separates messages; leave it out", token))
        .with("param", "messages");
  }
}

/// Texts in variables may be written into the prompt as well.
void ChatPrompt::check(const nlohmann::ordered_json& value) const {
  if (value.is_string()) return check(value.get<std::string>());
  if (!value.is_structured()) return;
  for (const auto& [name, inner] : value.items()) check(inner);
}

std::string ChatPrompt::text(const std::vector<ChatMessage>& messages, const ChatOptions& options) const {
  for (const ChatMessage& message : messages) {
    check(message.content);
    for (const auto& [name, more] : message.more) check(more);
  }
  check_variables(template_.get(), options);
  check(options.variables);
  if (template_ == nullptr) return written(fixed_chat_format(tokenizer_), messages, options);
  try {
    return template_->prompt(as_json(messages), options);
  } catch (const InputError& error) {
    throw HttpProblem(400, error.what()).with("param", "messages");
  }
}

std::vector<int32_t> ChatPrompt::encode(const std::string& text) const {
  return template_ == nullptr ? tokenizer_.encode(text) : tokenizer_.encode_as_written(text);
}

}  // namespace sluice
