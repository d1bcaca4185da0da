#include "agents/tasks/generators.h"
#include "agents/tasks/mini_document.h"
#include "agents/tasks/word_list.h"

namespace sluice::mini {
namespace {

constexpr int kLeastLines = 16;  // below, the frequent words hardly stand out
constexpr int kCommon = 4;
constexpr int kFrequent = 3;

/// Writes the list over the whole document.
void write(Document& document, const WordList& list) {
  size_t next = 0;
  for (std::string& word : document.offset()) word = list.words[next++];
  for (int i = 0; i < document.size(); ++i) {
    for (std::string& word : document.line(i)) word = list.words[next++];
  }
}

int words_of(Document& document) { return static_cast<int>(document.offset().size()) + kStatement * document.size(); }

}  // namespace

// A list answers one question, so both tasks give one sample a document.

Samples common_words(const TaskContext& context, Rng& rng, int tokens, int) {
  Document document("common_words", context, rng, tokens, 2, kLeastLines);
  const WordList list = common_word_list(context.mini->fillers, rng, words_of(document), kCommon);
  write(document, list);
  return {document.ask({"common", ":"}, list.most, Scoring::kSet)};
}

Samples frequent_words(const TaskContext& context, Rng& rng, int tokens, int) {
  Document document("frequent_words", context, rng, tokens, 2, kLeastLines);
  const WordList list = frequent_word_list(context.mini->fillers, rng, words_of(document), kFrequent);
  write(document, list);
  return {document.ask({"frequent", ":"}, list.most, Scoring::kSet)};
}

}  // namespace sluice::mini
