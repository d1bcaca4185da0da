#include "agents/tasks/mini_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "scripting/base/error.h"

namespace sluice::mini {
namespace {

constexpr const char* kEndOfHay = ".";
constexpr int kDrawnParts = 3;  // one part or two come right by chance, where a third of the pages is read
constexpr double kAlike = 0.4;  // share of distractions that are of the kind that is asked for; as the model was evaluated

}  // namespace

std::string join(const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

Document::Document(const char* task, const TaskContext& context, Rng& rng, int tokens, int question_words, int least_statements)
    : vocabulary_(*context.mini), rng_(rng) {
  const int room = tokens - 1 - question_words;  // <bos>
  const int least = 1 + question_words + kStatement * least_statements + kStatement - 1;
  if (tokens < least) {
    throw InputError(fmt::format("task {} needs a context of at least {} tokens, not {}", task, least, tokens));
  }
  int before = room % kStatement;
  if (room - before - kStatement >= kStatement * least_statements && rng.below(2) == 1) before += kStatement;
  for (int i = 0; i < before; ++i) offset_.push_back(filler());
  lines_.resize((room - before) / kStatement);
  for (Words& line : lines_) {
    for (int i = 0; i + 1 < kStatement; ++i) line.push_back(filler());
    line.push_back(kEndOfHay);
  }
}

void Document::scatter(const std::vector<Words>& statements) {
  if (statements.size() > lines_.size()) throw InternalError("more statements than the document holds");
  std::vector<int> positions(lines_.size());
  std::iota(positions.begin(), positions.end(), 0);
  positions = rng_.distinct(std::move(positions), statements.size());
  std::sort(positions.begin(), positions.end());
  for (size_t i = 0; i < statements.size(); ++i) lines_[positions[i]] = statements[i];
}

void Document::scatter_shuffled(std::vector<Words> statements) {
  rng_.shuffle(statements);
  scatter(statements);
}

void Document::distract(Kind asked, const Words& topics) {
  std::vector<Kind> others = {Kind::kFact, Kind::kAlso, Kind::kVariable, Kind::kRule, Kind::kAttribute};
  std::erase(others, asked);
  Words other_keys;
  for (const std::string& key : vocabulary_.keys) {
    if (std::find(asked_keys_.begin(), asked_keys_.end(), key) == asked_keys_.end()) other_keys.push_back(key);
  }
  for (Words& line : lines_) {
    if (line.back() != kEndOfHay) continue;
    const bool is_alike = rng_.uniform() < kAlike;
    line = is_alike ? distraction(asked, other_keys) : distraction(rng_.pick(others), asked_keys_);
    if (is_alike && !topics.empty()) line[1] = rng_.pick(topics);
  }
}

Words Document::distraction(Kind kind, const Words& keys) {
  const auto key = [&] { return rng_.pick(keys); };
  switch (kind) {
    case Kind::kFact:
      return {"key", key(), "=", value(), value(), value(), value(), ";"};
    case Kind::kAlso:
      return {"also", key(), "=", value(), filler(), filler(), filler(), ";"};
    case Kind::kVariable:
      if (rng_.below(2) == 0) return {"var", key(), "=", value(), value(), filler(), filler(), ";"};
      return {"var", key(), "<-", key(), filler(), filler(), filler(), ";"};
    case Kind::kRule:
      return {"rule", key(), "to", key(), value(), "from", key(), ";"};
    case Kind::kAttribute:
      return {"in", key(), key(), "=", value(), value(), filler(), ";"};
  }
  throw InternalError("a kind of statement that there is not");
}

Sample Document::ask(const Words& question, const Words& answer, int part_words) const {
  Sample sample;
  sample.prompt = "<bos>";
  const auto append = [&](const Words& words) {
    for (const std::string& word : words) (sample.prompt += ' ') += word;
  };
  append(offset_);
  for (const Words& line : lines_) append(line);
  append(question);
  sample.answer = join(answer);
  sample.part_words = part_words;
  sample.drawn_parts = kDrawnParts;
  sample.max_tokens = static_cast<int>(answer.size()) + 1;  // and <eos>; whatever is longer does not end there
  return sample;
}

std::string Document::filler() { return rng_.pick(vocabulary_.fillers); }
std::string Document::value() { return rng_.pick(vocabulary_.values); }

Words Document::values(int count) {
  Words words;
  for (int i = 0; i < count; ++i) words.push_back(value());
  return words;
}

Words Document::keys(int count) { return asked_keys_ = rng_.distinct(vocabulary_.keys, count); }

}  // namespace sluice::mini
