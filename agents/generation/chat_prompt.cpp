#include "agents/generation/chat_prompt.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

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

namespace {

/// Stands for a segment while a template is at work; nobody can have written it.
std::string mark_of(const std::string& secret, size_t segment) { return fmt::format("SEGMENT{}N{}END", secret, segment); }

std::string drawn_secret() {
  constexpr size_t kBytes = 16;
  std::array<unsigned char, kBytes> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

/// The messages with marks in place of their segments, whose texts and names go to `segments`.
std::vector<ChatMessage> with_marks(std::vector<ChatMessage> messages, const std::string& secret,
                                    std::vector<std::pair<std::string, std::string>>& segments) {
  for (ChatMessage& message : messages) {
    std::string marked;
    size_t done = 0;
    for (const ChatSegment& segment : message.segments) {
      marked += message.content.substr(done, segment.first - done) + mark_of(secret, segments.size());
      segments.emplace_back(message.content.substr(segment.first, segment.size), segment.extra_key);
      done = segment.first + segment.size;
    }
    message.content = marked + message.content.substr(done);
  }
  return messages;
}

/// What stands before, between and behind the marks of so many segments. Throws HttpProblem unless each is there once, in order.
std::vector<std::string_view> parts_between(std::string_view text, const std::string& secret, size_t segments) {
  const std::string begins = fmt::format("SEGMENT{}N", secret);
  std::vector<std::string_view> parts;
  size_t done = 0;
  for (size_t i = 0; i < segments; ++i) {
    const std::string mark = mark_of(secret, i);
    const size_t at = text.find(begins, done);
    if (at == std::string_view::npos || text.substr(at, mark.size()) != mark) break;
    parts.push_back(text.substr(done, at - done));
    done = at + mark.size();
  }
  if (parts.size() < segments || text.find(begins, done) != std::string_view::npos) {
    throw HttpProblem(400, "the model's chat template does not write every segment once, in the order of the messages")
        .with("param", "messages");
  }
  parts.push_back(text.substr(done));
  return parts;
}

using Ids = std::vector<int32_t>;

/// What the tokenizer puts before and behind `text`.
std::pair<Ids, Ids> around(const Tokenizer& tokenizer, std::string_view text) {
  const Ids whole = tokenizer.encode(text);
  const Ids own = tokenizer.encode_as_written(text);
  const auto at = std::search(whole.begin(), whole.end(), own.begin(), own.end());
  if (at == whole.end()) return {};
  return {{whole.begin(), at}, {at + static_cast<ptrdiff_t>(own.size()), whole.end()}};
}

}  // namespace

ChatPrompt::Encoded ChatPrompt::encode(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                                       const PromptBounds& bounds) const {
  const bool is_plain =
      std::all_of(messages.begin(), messages.end(), [](const ChatMessage& each) { return each.segments.empty(); });
  if (is_plain) {
    const std::string text = this->text(messages, options);
    bounds.check(text.size(), "messages");
    return {encode(text), {}};
  }
  for (const ChatMessage& message : messages) check(message.content);
  const std::string secret = drawn_secret();
  std::vector<std::pair<std::string, std::string>> segments;
  const std::string text = this->text(with_marks(messages, secret, segments), options);
  size_t bytes = text.size();
  for (size_t i = 0; i < segments.size(); ++i) bytes += segments[i].first.size() - mark_of(secret, i).size();
  bounds.check(bytes, "messages");
  const std::vector<std::string_view> parts = parts_between(text, secret, segments.size());
  Encoded encoded;
  const auto add = [&](std::string_view part) {
    const std::vector<int32_t> tokens = tokenizer_.encode_as_written(part);
    encoded.tokens.insert(encoded.tokens.end(), tokens.begin(), tokens.end());
  };
  // What a tokenizer puts around any text goes around all of it.
  const auto [before, after] = template_ == nullptr ? around(tokenizer_, parts.front()) : std::pair<Ids, Ids>();
  encoded.tokens = before;
  for (size_t i = 0; i < segments.size(); ++i) {
    add(parts[i]);
    const auto first = static_cast<int>(encoded.tokens.size());
    add(segments[i].first);
    const auto end = static_cast<int>(encoded.tokens.size());
    if (end > first) encoded.segments.push_back({first, end, segments[i].second});
  }
  add(parts.back());
  encoded.tokens.insert(encoded.tokens.end(), after.begin(), after.end());
  return encoded;
}

std::vector<int32_t> ChatPrompt::encode(const std::string& text) const {
  return template_ == nullptr ? tokenizer_.encode(text) : tokenizer_.encode_as_written(text);
}

}  // namespace sluice
