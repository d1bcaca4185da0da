#include "agents/tasks/english_document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "agents/tasks/chat.h"
#include "agents/tasks/english_words.h"
#include "scripting/base/error.h"

namespace sluice::english {
namespace {

/// Spelling varies: an answer may take more tokens than ours by this factor, and some for a full stop and the end.
constexpr double kAnswerSlack = 1.25;
constexpr int kAnswerExtra = 12;

}  // namespace

Document::Document(const char* task, const TaskContext& context, Rng& rng, int tokens, const std::string& instruction,
                   const Question& longest)
    : task_(task), context_(context), rng_(rng), tokens_(tokens), longest_(longest) {
  const ChatFormat chat = chat_format(context.tokenizer, context.chat, Thinking::kSkipped);
  before_ = chat.before + instruction + "\n\n";
  after_ = chat.after;
  room_ = tokens - static_cast<int>(context.tokenizer.encode(prompt("", longest)).size());
}

std::string Document::prompt(const std::string& body, const Question& question) const {
  return before_ + body + "\n" + question.text + after_ + question.answer_start;
}

bool Document::fits(const std::string& body) const {
  return static_cast<int>(context_.tokenizer.encode(prompt(body, longest_)).size()) <= tokens_;
}

void Document::refuse(int needed) const {
  throw InputError(fmt::format("task {} needs a context of at least {} tokens, not {}", task_, needed, tokens_));
}

int Document::cost(const std::string& line) const {
  return static_cast<int>(context_.tokenizer.encode(line + "\n").size()) - special_tokens(context_.tokenizer);
}

int Document::capacity(const std::string& line, int least) const {
  const int each = std::max(1, cost(line));
  const int lines = std::max(0, room_) / each;
  if (lines < least) refuse(tokens_ - room_ + each * least);
  return lines;
}

void Document::fill_scattered(const std::vector<std::string>& statements) {
  int left = room_;
  for (const std::string& statement : statements) left -= cost(statement);
  if (left < 0) refuse(tokens_ - left);
  std::vector<std::string> fillers;
  while (true) {
    std::string line = hay(rng_);
    left -= cost(line);
    if (left < 0) break;
    fillers.push_back(std::move(line));
  }
  // Lines are measured alone; where the tokenizer joins across line breaks the whole may differ by a little.
  for (;;) {
    const size_t total = statements.size() + fillers.size();
    std::vector<size_t> positions(total);
    std::iota(positions.begin(), positions.end(), 0);
    positions = rng_.distinct(std::move(positions), statements.size());
    std::sort(positions.begin(), positions.end());
    std::string body;
    for (size_t i = 0, statement = 0; i < total; ++i) {
      const bool told = statement < positions.size() && positions[statement] == i;
      body += told ? statements[statement] : fillers[i - statement];
      body += '\n';
      statement += told;
    }
    if (fits(body)) {
      body_ = std::move(body);
      return;
    }
    if (fillers.empty()) refuse(tokens_ + 1);
    fillers.pop_back();
  }
}

bool Document::fill_with(const std::vector<std::string>& lines, bool hay_after) {
  std::string body;
  int left = room_;
  for (const std::string& line : lines) {
    left -= cost(line);
    (body += line) += '\n';
  }
  if (left < 0 || !fits(body)) return false;
  while (hay_after) {
    const std::string line = hay(rng_);
    left -= cost(line);
    if (left < 0 || !fits(body + line + "\n")) break;
    (body += line) += '\n';
  }
  body_ = std::move(body);
  return true;
}

Sample Document::ask(const Question& question, const std::string& answer, Scoring scoring, Items items, int part_words) const {
  Sample sample;
  sample.prompt = prompt(body_, question);
  sample.answer = answer;
  sample.scoring = scoring;
  sample.items = items;
  sample.part_words = part_words;
  const auto length = static_cast<double>(context_.tokenizer.encode(" " + answer).size()) - special_tokens(context_.tokenizer);
  sample.max_tokens = static_cast<int>(length * kAnswerSlack) + kAnswerExtra;
  sample.stop = "\n";
  sample.must_end = false;
  return sample;
}

}  // namespace sluice::english
