#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agents/tasks/rng.h"
#include "agents/tasks/task.h"

namespace sluice {

/// Tokens of a window that are fed and scored.
inline constexpr int kScoredOfText = 128;
inline constexpr int kScoredOfCopy = 64;
/// The passage that stands twice in a window of `copy`; its first tokens are part of the prompt.
inline constexpr int kCopiedPassage = 96;
inline constexpr int kLeastWindow = 256;

/// What is asked of a text: how likely the model finds it.
enum class TextTask : uint8_t {
  kText,  // the last kScoredOfText tokens of a window, as the text goes on
  kCopy,  // the last kScoredOfCopy tokens of a passage of the window's first three quarters, which stands once more at its end
};

/// A text as the tokens of a model.
struct TextTokens {
  std::string name;                // of the file
  std::vector<int32_t> beginning;  // what the tokenizer puts before a text, and so before every window
  std::vector<int32_t> tokens;
};

/// Windows of `window` tokens, begun every kScoredOfText tokens, so that kText scores no token in two of them.
int windows_in(const TextTokens& text, int window);

/// `count` windows at most, in random order. Where `rng` is the same, both tasks have the same ones, and longer windows begin
/// where shorter ones do, as far as they fit into the text: what is known of those need not be computed again.
std::vector<int> draw_windows(const TextTokens& text, int window, int count, Rng& rng);

/// The sample of one window. `rng` chooses the passage (kCopy).
Sample text_sample(TextTask task, const TextTokens& text, int window, int place, Rng& rng);

/// Reads texts, each file once.
class TextReader {
 public:
  /// A file, "-" for standard input, or "" for the project's own text (docs and sources, beside the program). Throws InputError
  /// for what cannot be read, what is no UTF-8, words that the tokenizer lacks, and tokens that the model (`context.vocabulary`)
  /// lacks.
  std::shared_ptr<const TextTokens> read(const std::string& file, const TaskContext& context);
  /// All but the project's own text, which does not change.
  void forget_files();

 private:
  std::map<std::string, std::shared_ptr<const TextTokens>> texts_;
};

}  // namespace sluice
