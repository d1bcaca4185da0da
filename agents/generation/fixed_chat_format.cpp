#include "agents/generation/fixed_chat_format.h"

#include <algorithm>

namespace sluice {

FixedChatFormat fixed_chat_format(const Tokenizer& tokenizer) {
  const auto has = [&](const std::string& token) { return tokenizer.id_of(token) >= 0; };
  FixedChatFormat chat_ml = {"", "<|im_start|>", "\n", "<|im_end|>\n", {"<|im_start|>", "<|im_end|>"}};
  FixedChatFormat llama = {"<|begin_of_text|>",
                           "<|start_header_id|>",
                           "<|end_header_id|>\n\n",
                           "<|eot_id|>",
                           {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}};
  if (std::all_of(chat_ml.separators.begin(), chat_ml.separators.end(), has)) return chat_ml;
  if (!std::all_of(llama.separators.begin(), llama.separators.end(), has)) return {"", "", "", "\n", {}};
  const std::vector<int32_t> added = tokenizer.encode("");
  if (!added.empty() && added.front() == tokenizer.id_of(llama.begin)) llama.begin.clear();
  return llama;
}

std::string written(const FixedChatFormat& format, const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  const bool has_roles = !format.separators.empty();
  const auto head = [&](const std::string& role) { return has_roles ? format.before_role + role + format.after_role : ""; };
  std::string text = format.begin;
  for (const ChatMessage& message : messages) text += head(message.role) + message.content + format.after_content;
  if (options.continue_final_message) text.resize(text.size() - format.after_content.size());
  return options.add_generation_prompt ? text + head("assistant") : text;
}

}  // namespace sluice
