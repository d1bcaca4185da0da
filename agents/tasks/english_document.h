#pragma once

#include <string>
#include <vector>

#include "agents/tasks/task.h"

namespace sluice::english {

/// A question as it is put after the document, and the beginning of the answer that the model continues.
struct Question {
  std::string text;
  std::string answer_start;
};

/// An English document: an instruction, lines of text, and room for a question, measured with the model's tokenizer.
class Document {
 public:
  /// `longest` is a question as long as any that will be asked.
  Document(const char* task, const TaskContext& context, Rng& rng, int tokens, const std::string& instruction,
           const Question& longest);

  /// Tokens left for lines.
  int room() const { return room_; }
  /// Tokens that a line takes, with its line break.
  int cost(const std::string& line) const;
  /// How many lines like `line` fit; throws InputError if fewer than `least` do.
  int capacity(const std::string& line, int least) const;

  /// Fills the document with `statements`, in their order at places uniform over it, and hay. Throws InputError if the
  /// statements alone are too long.
  void fill_scattered(const std::vector<std::string>& statements);
  /// Fills it with `lines` as they are, followed by hay where `hay_after`. Returns false, leaving it empty, if they are too
  /// long.
  bool fill_with(const std::vector<std::string>& lines, bool hay_after);

  Sample ask(const Question& question, const std::string& answer, Scoring scoring, Items items, int part_words) const;

 private:
  std::string prompt(const std::string& body, const Question& question) const;
  bool fits(const std::string& body) const;
  [[noreturn]] void refuse(int needed) const;

  const char* task_;
  const TaskContext& context_;
  Rng& rng_;
  int tokens_;
  std::string before_;
  std::string after_;  // of the question, before the start of the answer
  Question longest_;
  int room_ = 0;
  std::string body_;
};

}  // namespace sluice::english
