#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agents/generation/prompt_bounds.h"
#include "host/serving/segment_reuse.h"
#include "host/text/chat_template.h"
#include "host/text/tokenizer.h"

namespace sluice {

/// A part of a message whose text may have stood elsewhere (Segment).
struct ChatSegment {
  size_t first = 0;  // byte of the content that it begins at
  size_t size = 0;   // bytes
  std::string extra_key;
};

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
  std::map<std::string, std::string> more = {};  // "name", "reasoning_content": for templates that read them
  std::vector<ChatSegment> segments = {};        // in the order of the content
};

/// How conversations become prompts of a model: by its own template, or where it has none by its tokenizer's special tokens
/// (`fixed_chat_format.h`).
///
/// A message that holds a token which separates messages is refused, since it could pretend to be another role: with a template
/// the special tokens that stand in it, or in a conversation that it writes, and those that begin and end texts. Hugging Face
/// lets them pass.
class ChatPrompt {
 public:
  /// The tokenizer must outlive this object. Null template: the model has none.
  ChatPrompt(const Tokenizer& tokenizer, std::unique_ptr<const ChatTemplate> chat_template);

  struct Encoded {
    std::vector<int32_t> tokens;
    std::vector<Segment> segments;
  };
  /// The prompt's ids. Where messages have segments, each of these and what stands between them are tokenised by themselves, so
  /// that the same segment has the same tokens everywhere; templates write them as they are. Throws HttpProblem (400) as `text`
  /// does, for a text beyond `bounds`, and for a template that leaves a segment out or repeats it.
  Encoded encode(const std::vector<ChatMessage>& messages, const ChatOptions& options, const PromptBounds& bounds) const;

  /// The prompt's text. Throws HttpProblem (400) for a message that holds a separating token, for a variable that changes
  /// nothing, and for what the template raises.
  std::string text(const std::vector<ChatMessage>& messages, const ChatOptions& options) const;
  /// Its ids. A template writes all tokens itself; to a fixed format the tokenizer adds what it adds to any text.
  std::vector<int32_t> encode(const std::string& text) const;

 private:
  /// Refuses a text that holds a separating token.
  void check(const std::string& text) const;
  void check(const nlohmann::ordered_json& value) const;

  const Tokenizer& tokenizer_;
  const std::unique_ptr<const ChatTemplate> template_;
  std::vector<std::string> separators_;  // that no message may hold
};

}  // namespace sluice
