#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/generation/completion_request.h"
#include "agents/generation/engine_thread.h"
#include "agents/generation/prompt_bounds.h"
#include "agents/generation/stop_strings.h"
#include "agents/generation/told_tokens.h"
#include "host/text/token_text.h"

namespace sluice {

struct CompletionUsage {
  int prompt_tokens = 0;
  int completion_tokens = 0;
  int cached_tokens = 0;  // of the prompts, found in the prefix cache
};

/// What one choice has more of.
struct CompletionPiece {
  int choice = 0;
  std::string text;
  std::vector<ToldToken> tokens;  // if their log-probabilities are wanted: whose text begins in it, in the last piece all others
  std::string finish_reason;      // "stop" or "length" in the last piece
};

/// The tasks of one request, from the thread that answers it: tokens become text here, and stop strings are looked for. What
/// still runs is cancelled with this object.
class Completion {
 public:
  /// Encodes the prompts and queues the tasks, which are `caller`'s. A text beyond `bounds` is refused before it
  /// is encoded. Throws HttpProblem.
  Completion(EngineThread& engines, const Tokenizer& tokenizer, const ChatPrompt& chat, const CompletionRequest& request,
             const PromptBounds& bounds, const std::string& caller);
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  /// Waits until engines have taken every choice; `is_wanted` says whether to go on. Throws HttpProblem.
  void wait_until_accepted(const std::function<bool()>& is_wanted);
  /// The next piece, waiting for it at most `wait`. Throws HttpProblem if the engine failed.
  std::optional<CompletionPiece> next(std::chrono::milliseconds wait);
  /// Every choice has had its last piece.
  bool ended() const { return open_ == 0; }
  const CompletionUsage& usage() const { return usage_; }
  int choices() const { return static_cast<int>(choices_.size()); }

 private:
  struct Choice {
    Choice(const Tokenizer& tokenizer, std::vector<std::string> stop)
        : text(tokenizer), stops(std::move(stop)), tokens(tokenizer) {}
    uint64_t id = 0;
    TokenText text;
    StopStrings stops;
    ToldTokens tokens;              // if their log-probabilities are wanted
    std::string echo;               // the prompt's whole characters, if the answer is to begin with them
    std::vector<ToldToken> prompt;  // its tokens, if their log-probabilities are wanted
    bool ended = false;
  };

  GenerationTask task_for(const CompletionRequest& request, const std::vector<int32_t>& prompt, int choice) const;
  /// The answer begins with the prompt: `text`, or what its tokens say.
  void echo(Choice& choice, const std::vector<int32_t>& prompt, const std::string* text) const;
  CompletionPiece take_token(Choice& choice, const GenerationEvent& event);
  CompletionPiece take_end(Choice& choice, const GenerationEvent& event);
  /// What is told of a choice now that its answer goes on with `text`.
  static CompletionPiece tell(Choice& choice, int index, const std::string& text);
  CompletionPiece end(Choice& choice, int index, const std::string& reason, const std::string& text);
  bool is_stop_token(int32_t token) const;

  EngineThread& engines_;
  const Tokenizer& tokenizer_;
  const std::vector<int32_t> stop_tokens_;
  const bool ignore_eos_;
  const bool tells_probabilities_;
  const bool prompt_alone_;  // what is generated is not told
  const int answers_;        // of each prompt
  std::shared_ptr<GenerationQueue> events_ = std::make_shared<GenerationQueue>();
  std::deque<GenerationEvent> early_;  // that came before every choice was accepted
  std::vector<Choice> choices_;
  CompletionUsage usage_;
  int open_ = 0;
  int accepted_ = 0;
};

}  // namespace sluice
