#include "tests/tasks/mini_solver.h"

#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/tasks/fixtures.h"

namespace sluice::test {
namespace {

using Words = std::vector<std::string>;

/// What a document tells of each key, as often as it does: hay tells something of keys that nobody asks for.
template <typename Key, typename Value>
using Told = std::map<Key, std::vector<Value>>;

struct Notes {
  Told<std::string, Words> facts;
  std::map<std::string, Words> also;
  Told<std::string, Words> numbers;       // var A = v w
  Told<std::string, std::string> copies;  // var B <- A
  Told<std::pair<std::string, std::string>, Words> attributes;
  struct Rule {
    std::string next, value, recall;
  };
  Told<std::string, Rule> rules;
};

template <typename Key, typename Value>
const Value& look_up(const Told<Key, Value>& told, const Key& key) {
  const auto found = told.find(key);
  if (found == told.end()) throw std::runtime_error("the prompt does not tell");
  if (found->second.size() > 1) throw std::runtime_error("the prompt tells something twice");
  return found->second.front();
}

Notes read(const Words& document) {
  Notes notes;
  for (size_t end = document.size(); end >= 8; end -= 8) {  // statements are aligned to the end; the rest is offset
    const Words s(document.begin() + end - 8, document.begin() + end);
    if (s[0] == "key" && s[2] == "=" && s[7] == ";") {
      notes.facts[s[1]].push_back({s[3], s[4], s[5], s[6]});
    } else if (s[0] == "also" && s[2] == "=" && s[7] == ";") {
      Words& values = notes.also[s[1]];
      values.insert(values.begin(), s[3]);  // read backwards
    } else if (s[0] == "var" && s[2] == "=" && s[7] == ";") {
      notes.numbers[s[1]].push_back({s[3], s[4]});
    } else if (s[0] == "var" && s[2] == "<-" && s[7] == ";") {
      notes.copies[s[1]].push_back(s[3]);
    } else if (s[0] == "in" && s[3] == "=" && s[7] == ";") {
      notes.attributes[{s[1], s[2]}].push_back({s[4], s[5]});
    } else if (s[0] == "rule" && s[2] == "to" && s[5] == "from" && s[7] == ";") {
      notes.rules[s[1]].push_back({s[3], s[4], s[6]});
    }
  }
  return notes;
}

std::string join(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string run(const Notes& notes, std::string place) {
  Words answer;
  std::map<std::string, std::string> codes;
  while (place != "end") {
    if (codes.count(place) != 0) throw std::runtime_error("the trace comes back to a place");
    const Notes::Rule& rule = look_up(notes.rules, place);
    codes[place] = rule.recall == place ? rule.value : codes.at(rule.recall);
    for (const std::string& word :
         {std::string("at"), place, rule.value, rule.recall, codes[place], std::string("to"), rule.next, std::string(";")}) {
      answer.push_back(word);
    }
    place = rule.next;
  }
  return join(answer);
}

/// Cuts the last `count` words off, which start with `first`.
Words cut_question(Words& words, size_t count, const std::string& first) {
  if (words.size() < count || words[words.size() - count] != first) throw std::runtime_error("no question");
  Words question(words.end() - static_cast<std::ptrdiff_t>(count), words.end());
  words.resize(words.size() - count);
  return question;
}

}  // namespace

std::string solve_mini(const std::string& prompt) {
  Words words = words_of(prompt);
  if (words.empty() || words.front() != "<bos>") throw std::runtime_error("no <bos>");
  words.erase(words.begin());
  const auto from_end = [&](size_t i) { return words.at(words.size() - i); };
  if (from_end(1) == ":" && from_end(3) == "run") {
    const Words question = cut_question(words, 3, "run");
    return run(read(words), question[1]);
  }
  if (from_end(1) == ":" && from_end(7) == "what") {
    const Words question = cut_question(words, 7, "what");
    const Notes notes = read(words);
    std::string answer;
    for (size_t i = 2; i <= 5; ++i) {
      const Words& value = look_up(notes.attributes, {question[1], question[i]});
      answer += (i > 2 ? " ; " : "") + question[i] + " = " + join(value);
    }
    return answer;
  }
  if (from_end(1) == ":") {
    const Words question = cut_question(words, 6, "each");
    const Notes notes = read(words);
    std::string answer;
    for (size_t i = 1; i <= 4; ++i) {
      answer += (i > 1 ? " ; " : "") + question[i] + " = " + join(look_up(notes.facts, question[i]));
    }
    return answer;
  }
  const std::string kind = from_end(3);
  const Words question = cut_question(words, 3, kind);
  const Notes notes = read(words);
  if (kind == "all") return join(notes.also.at(question[1]));
  if (kind != "trace") throw std::runtime_error("an unknown question");
  Words answer;
  std::string name = question[1];
  while (notes.copies.count(name) != 0) answer.push_back(name = look_up(notes.copies, name));
  const Words& value = look_up(notes.numbers, name);
  answer.insert(answer.end(), value.begin(), value.end());
  return join(answer);
}

}  // namespace sluice::test
