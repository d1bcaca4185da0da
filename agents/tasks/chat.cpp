#include "agents/tasks/chat.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr std::time_t kDate = 1721952000;  // 26 July 2024, which Llama's templates take where there is no clock
constexpr std::string_view kQuestion = "THE-QUESTION-STANDS-HERE";

/// `before` without a first token that the tokenizer adds itself.
std::string without_added(const Tokenizer& tokenizer, const std::string& before) {
  const std::vector<int32_t> added = tokenizer.encode("");
  const std::vector<int32_t> written = tokenizer.encode_as_written(before);
  if (added.empty() || written.empty() || added.front() != written.front()) return before;
  const std::string token = tokenizer.decode({&added.front(), 1}, false);
  return before.starts_with(token) ? before.substr(token.size()) : before;
}

ChatFormat format_of_template(const Tokenizer& tokenizer, const ChatTemplate& chat_template, Thinking thinking) {
  ChatOptions options;
  options.now = kDate;
  if (thinking == Thinking::kSkipped) options.variables["enable_thinking"] = false;
  const std::string text = chat_template.prompt({{{"role", "user"}, {"content", kQuestion}}}, options);
  const size_t at = text.find(kQuestion);
  if (at == std::string::npos || text.find(kQuestion, at + 1) != std::string::npos) {
    throw InputError("the model's chat template does not write a user's message once", "tasks need one that does");
  }
  return {without_added(tokenizer, text.substr(0, at)), text.substr(at + kQuestion.size())};
}

}  // namespace

int special_tokens(const Tokenizer& tokenizer) { return static_cast<int>(tokenizer.encode("").size()); }

ChatFormat chat_format(const Tokenizer& tokenizer, const ChatTemplate* chat_template, Thinking thinking) {
  if (chat_template != nullptr) return format_of_template(tokenizer, *chat_template, thinking);
  const auto has = [&](const char* token) { return tokenizer.id_of(token) >= 0; };
  if (has("<|im_start|>") && has("<|im_end|>")) {
    const bool close = thinking == Thinking::kSkipped && has("<think>") && has("</think>");
    return {"<|im_start|>user\n", std::string("<|im_end|>\n<|im_start|>assistant\n") + (close ? "<think>\n\n</think>\n\n" : "")};
  }
  if (has("<|start_header_id|>") && has("<|end_header_id|>") && has("<|eot_id|>")) {
    const std::vector<int32_t> added = tokenizer.encode("");
    const bool adds_begin = !added.empty() && added.front() == tokenizer.id_of("<|begin_of_text|>");
    return {std::string(adds_begin ? "" : "<|begin_of_text|>") + "<|start_header_id|>user<|end_header_id|>\n\n",
            "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"};
  }
  return {"", "\n"};
}

}  // namespace sluice
