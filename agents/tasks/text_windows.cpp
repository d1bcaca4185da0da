#include "agents/tasks/text_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scripting/base/error.h"
#include "scripting/base/input_text.h"
#include "scripting/base/program_data.h"
#include "scripting/base/unicode.h"

namespace sluice {
namespace {

constexpr size_t kLargestText = size_t{64} << 20;

/// Where the build has put the text, and where an installation or a pack does.
std::string project_text() {
  const std::string place = "share/sluice/text.txt";
  std::string found = find_program_data({place});
  if (!found.empty()) return found;
  throw InputError(fmt::format("the project's own text, {}, is in no folder above the program", place),
                   "name a text of your own: text:FILE, copy:FILE");
}

std::string read_utf8(const std::string& file, const std::string& name) {
  std::string text = read_input(file, kLargestText);
  const std::string valid = valid_utf8(text);
  if (valid == text) return text;
  const auto at = std::mismatch(text.begin(), text.end(), valid.begin(), valid.end()).first - text.begin();
  throw InputError(fmt::format("{}: no UTF-8 at byte {}", name, at), "a text is asked for, as UTF-8");
}

TextTokens tokens_of(const std::string& file, const TaskContext& context) {
  const std::string path = file.empty() ? project_text() : file;
  TextTokens text;
  text.name = name_of_input(path);
  text.beginning = context.tokenizer.encode("");
  try {
    text.tokens = context.tokenizer.encode(read_utf8(path, text.name));
  } catch (const InputError& error) {
    if (std::string(error.what()).starts_with(text.name)) throw;
    throw InputError(fmt::format("{}: {}", text.name, error.what()), error.hint());
  }
  text.tokens.erase(text.tokens.begin(), text.tokens.begin() + static_cast<ptrdiff_t>(text.beginning.size()));
  for (const int32_t token : text.tokens) {
    if (context.vocabulary == 0 || token < context.vocabulary) continue;
    throw InputError(fmt::format("{}: the tokenizer's token {} is none of the model's {}", text.name, token, context.vocabulary),
                     "tokenizer and weights must belong to the same model");
  }
  return text;
}

/// Tokens of the text in a window.
int text_tokens(const TextTokens& text, int window) { return window - static_cast<int>(text.beginning.size()); }

}  // namespace

int windows_in(const TextTokens& text, int window) {
  const int64_t left = static_cast<int64_t>(text.tokens.size()) - text_tokens(text, window);
  return left < 0 ? 0 : static_cast<int>(left / kScoredOfText) + 1;
}

std::vector<int> draw_windows(const TextTokens& text, int window, int count, Rng& rng) {
  std::vector<std::pair<uint64_t, int>> places;  // each with a lot, which it has whatever windows there are
  for (int place = 0; place < windows_in(text, window); ++place) places.emplace_back(rng.next(), place);
  const auto drawn = std::min(places.size(), static_cast<size_t>(count));
  std::partial_sort(places.begin(), places.begin() + static_cast<ptrdiff_t>(drawn), places.end());
  std::vector<int> windows;
  for (size_t i = 0; i < drawn; ++i) windows.push_back(places[i].second);
  return windows;
}

Sample text_sample(TextTask task, const TextTokens& text, int window, int place, Rng& rng) {
  const bool copies = task == TextTask::kCopy;
  const int length = text_tokens(text, window);
  const auto begin = text.tokens.begin() + static_cast<ptrdiff_t>(place) * kScoredOfText;
  Sample sample;
  sample.scoring = Scoring::kLoss;
  sample.must_end = false;
  sample.tokens = text.beginning;
  sample.tokens.insert(sample.tokens.end(), begin, begin + length);
  if (copies) {
    // Of a short window it must also end before the copy begins.
    const auto from = begin + rng.between(0, std::min(length * 3 / 4, length - kCopiedPassage) - kCopiedPassage);
    std::copy_n(from, kCopiedPassage, sample.tokens.end() - kCopiedPassage);
  }
  const auto scored = sample.tokens.end() - (copies ? kScoredOfCopy : kScoredOfText);
  sample.given.assign(scored, sample.tokens.end());
  sample.tokens.erase(scored, sample.tokens.end());
  sample.max_tokens = static_cast<int>(sample.given.size());
  return sample;
}

std::shared_ptr<const TextTokens> TextReader::read(const std::string& file, const TaskContext& context) {
  auto& text = texts_[file];
  if (text == nullptr) text = std::make_shared<const TextTokens>(tokens_of(file, context));
  return text;
}

void TextReader::forget_files() {
  std::erase_if(texts_, [](const auto& text) { return !text.first.empty(); });
}

}  // namespace sluice
