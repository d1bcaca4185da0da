#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agents/tasks/task.h"

namespace sluice::mini {

/// Words of one statement, question and so on.
using Words = std::vector<std::string>;

inline constexpr int kStatement = 8;  // words of every statement

/// What a statement says, by its first word.
enum class Kind : uint8_t { kFact, kAlso, kVariable, kRule, kAttribute };

/// "a b c".
std::string join(const Words& words);

/// A document of the mini dialect: <bos>, 0 to 15 fillers, statements of eight words. Built so that the document with a
/// question of `question_words` words has exactly `tokens` words.
class Document {
 public:
  /// Throws InputError, naming `task`, if fewer than `least_statements` fit.
  Document(const char* task, const TaskContext& context, Rng& rng, int tokens, int question_words, int least_statements);

  /// Statements that fit.
  int size() const { return static_cast<int>(lines_.size()); }
  Words& line(int index) { return lines_[index]; }

  /// Puts the statements, in their order, at positions uniform over the document. At most `size()`.
  void scatter(const std::vector<Words>& statements);
  /// The same in random order.
  void scatter_shuffled(std::vector<Words> statements);

  /// Writes statements in the place of hay, each of which is half of one that is asked for: of the kind `asked`, with keys that
  /// the document does not ask for, or of another kind, with keys that it does. `topics`: of attributes that are asked for.
  void distract(Kind asked, const Words& topics = {});

  /// A sample that asks `question` at the end of this document. `part_words`: see Sample.
  Sample ask(const Words& question, const Words& answer, int part_words) const;

  std::string filler();
  std::string value();
  /// `count` values, drawn independently.
  Words values(int count);
  /// `count` different keys, for statements that are asked for. Once for a document.
  Words keys(int count);

 private:
  Words distraction(Kind kind, const Words& keys);

  const MiniVocabulary& vocabulary_;
  Rng& rng_;
  Words offset_;
  std::vector<Words> lines_;  // hay until overwritten
  Words asked_keys_;
};

}  // namespace sluice::mini
