#include "agents/tasks/chat.h"

namespace sluice {

int special_tokens(const Tokenizer& tokenizer) { return static_cast<int>(tokenizer.encode("").size()); }

ChatFormat chat_format(const Tokenizer& tokenizer, Thinking thinking) {
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
