#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agents/tasks/rng.h"
#include "agents/tasks/vocabulary.h"
#include "host/text/chat_template.h"
#include "host/text/tokenizer.h"

namespace sluice {

/// How an answer is compared with what was generated (agents/tasks/scoring.h).
enum class Scoring : uint8_t {
  kExact,  // the words of the answer in order, and none else
  kSet,    // the same words in any order, and none else
  kBoxed,  // the last \boxed{...}, compared as mathematics
  kLoss,   // not compared: how likely the model finds the tokens that it is given
};

/// Which words of a generated text are taken as the answer; the others are chatter. The mini dialect has no chatter.
enum class Items : uint8_t {
  kWords,    // every word
  kNumbers,  // words of digits
  kNames,    // words of five capital letters, and numbers
};

/// One question with its answer.
struct Sample {
  std::string prompt;
  std::vector<int32_t> tokens;  // the prompt, where it is no text but tokens
  std::vector<int32_t> given;   // kLoss: tokens that are fed after the prompt, in place of what the model would say
  std::string answer;           // words separated by single spaces; for kBoxed the bare answer
  Scoring scoring = Scoring::kExact;
  Items items = Items::kWords;
  /// Words of a part of the answer, each of which has its own share of the credit (the last may be shorter); 0: the answer is one
  /// part. A part of a set is one word.
  int part_words = 0;
  int drawn_parts = 1;  // credit: how likely so many parts, drawn at random, are all right
  int max_tokens = 16;
  std::string stop;      // generation may end once this text was written; empty: only at the model's end tokens
  bool must_end = true;  // the model has to end the answer itself (mini dialect)
};

/// What a generator needs to know of the model under test.
struct TaskContext {
  const Tokenizer& tokenizer;
  const MiniVocabulary* mini = nullptr;  // null: natural English
  int positions = 0;                     // tokens that the model can hold, prompt and answer; 0: any number
  int vocabulary = 0;                    // tokens that the model knows; 0: any
  const ChatTemplate* chat = nullptr;    // the model's own; null: it has none

  bool english() const { return mini == nullptr; }
};

/// A document and questions about it: the prompts of all samples start with the same text. No prompt is longer than
/// `tokens` tokens; the longest fills them exactly (mini) or to less than a sentence (English). Throws InputError if
/// `tokens` is too small for the task. At most `questions` samples, at least one: as many as the document can answer.
using Generator = std::function<std::vector<Sample>(const TaskContext&, Rng&, int tokens, int questions)>;

/// Where the parts of a document stood before, where that matters (suite reuse).
enum class Occasion : uint8_t {
  kOneText,    // in one other text, in the opposite order
  kChat,       // in a conversation whose beginning has been dropped since: in the same order, behind other text
  kRetrieval,  // each in a prompt of its own, under a name of its own
  kAgents,     // each was the answer of another agent, under that agent's name
};

struct Task {
  std::string name;
  std::string group;        // of the result table: "needle", "tracking", "words", "salad", "trace", "reuse"
  bool in_mini = true;      // the mini dialect has it; English has all
  bool judges_mini = true;  // and there it tells flows apart, so that built-in suites ask it
  bool in_suites = true;    // on any model; else it is asked for by name, or by a suite that is about it
  Generator generate = {};
  Occasion occasion = Occasion::kOneText;
};

/// Every built-in task, in the order of docs/TASKS.md.
const std::vector<Task>& all_tasks();
/// Throws InputError that lists the names if there is no such task.
const Task& find_task(std::string_view name);
/// One sample of its own document.
Sample generate(const Task& task, const TaskContext& context, Rng& rng, int tokens);

}  // namespace sluice
