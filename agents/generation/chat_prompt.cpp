#include "agents/generation/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "agents/http/http_problem.h"

namespace sluice {
namespace {

struct Format {
  std::string begin;        // of the conversation
  std::string before_role;  // of each message
  std::string after_role;
  std::string after_content;
  std::vector<std::string> tokens;  // that only the format may write
};

Format format_of(const Tokenizer& tokenizer) {
  const auto has = [&](const std::string& token) { return tokenizer.id_of(token) >= 0; };
  Format chat_ml = {"", "<|im_start|>", "\n", "<|im_end|>\n", {"<|im_start|>", "<|im_end|>"}};
  Format llama = {"<|begin_of_text|>",
                  "<|start_header_id|>",
                  "<|end_header_id|>\n\n",
                  "<|eot_id|>",
                  {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}};
  if (std::all_of(chat_ml.tokens.begin(), chat_ml.tokens.end(), has)) return chat_ml;
  if (!std::all_of(llama.tokens.begin(), llama.tokens.end(), has)) return {};
  const std::vector<int32_t> added = tokenizer.encode("");
  if (!added.empty() && added.front() == tokenizer.id_of(llama.begin)) llama.begin.clear();
  return llama;
}

std::string plain_prompt(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& message : messages) text += message.content + "\n";
  return text;
}

}  // namespace

std::string chat_prompt(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages) {
  const Format format = format_of(tokenizer);
  if (format.tokens.empty()) return plain_prompt(messages);
  std::string text = format.begin;
  for (const ChatMessage& message : messages) {
    for (const std::string& token : format.tokens) {
      if (message.content.find(token) == std::string::npos) continue;
      throw HttpProblem(400, fmt::format("a message holds {}, which separates messages; leave it out", token))
          .with("param", "messages");
    }
    text += format.before_role + message.role + format.after_role + message.content + format.after_content;
  }
  return text + format.before_role + "assistant" + format.after_role;
}

}  // namespace sluice
