#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agents/tasks/english_document.h"
#include "agents/tasks/english_words.h"
#include "agents/tasks/generators.h"
#include "agents/tasks/word_list.h"
#include "scripting/base/error.h"

namespace sluice::english {
namespace {

constexpr int kCommon = 4;
constexpr int kFrequent = 3;
constexpr int kWordsOfALine = 8;
constexpr int kLeastLines = 8;
constexpr int kAttempts = 100;

using MakeList = WordList (*)(const std::vector<std::string>&, Rng&, int, int);

/// A list of words that fills `tokens`, and a question for its `wanted` most frequent words.
Samples word_list_task(const char* task, const TaskContext& context, Rng& rng, int tokens, MakeList make, int wanted,
                       const Question& question) {
  Document document(task, context, rng, tokens,
                    "Below is a long list of words in no order. Some words occur much more often than others.", question);
  const std::string longest_line = fmt::format("{}", fmt::join(std::vector<std::string>(kWordsOfALine, "mountain"), " "));
  document.capacity(longest_line, kLeastLines);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // A word takes at least one token: this list is long enough, and is cut to what fits.
    const std::vector<std::string> words = make(nouns(), rng, document.room(), wanted).words;
    std::vector<std::string> lines;
    std::vector<std::string> used;
    int left = document.room();
    for (size_t i = 0; i + kWordsOfALine <= words.size(); i += kWordsOfALine) {
      const std::vector<std::string> line(words.begin() + i, words.begin() + i + kWordsOfALine);
      std::string text = fmt::format("{}", fmt::join(line, " "));
      left -= document.cost(text);
      if (left < 0) break;
      lines.push_back(std::move(text));
      used.insert(used.end(), line.begin(), line.end());
    }
    const auto most = most_frequent(used, wanted);
    if (!most || !document.fill_with(lines, false)) continue;
    return {document.ask(question, fmt::format("{}", fmt::join(*most, " ")), Scoring::kSet, Items::kWords, 1)};
  }
  throw InternalError("no word list fits the document");
}

}  // namespace

Samples common_words(const TaskContext& context, Rng& rng, int tokens, int) {
  return word_list_task(
      "common_words", context, rng, tokens, common_word_list, kCommon,
      {"Question: Which four words occur most often in the list? Answer with the four words, separated by commas.",
       "The four most common words are:"});
}

Samples frequent_words(const TaskContext& context, Rng& rng, int tokens, int) {
  return word_list_task(
      "frequent_words", context, rng, tokens, frequent_word_list, kFrequent,
      {"Question: Which three words occur most often in the list? Answer with the three words, separated by commas.",
       "The three most frequent words are:"});
}

}  // namespace sluice::english
