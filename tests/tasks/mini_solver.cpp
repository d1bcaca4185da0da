#include "tests/tasks/mini_solver.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/tasks/fixtures.h"

namespace sluice::test {
namespace {

using Words = std::vector<std::string>;

struct Notes {
  std::map<std::string, Words> facts;
  std::map<std::string, Words> also;
  std::map<std::string, Words> numbers;       // var A = v w
  std::map<std::string, std::string> copies;  // var B <- A
  std::map<std::pair<std::string, std::string>, Words> attributes;
  struct Rule {
    std::string next, value, recall;
  };
  std::map<std::string, Rule> rules;
};

template <typename Map>
const typename Map::mapped_type& look_up(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  if (found == map.end()) throw std::runtime_error("the prompt does not tell");
  return found->second;
}

template <typename Map, typename Value>
void tell(Map& map, const typename Map::key_type& key, Value value) {
  if (!map.emplace(key, std::move(value)).second) throw std::runtime_error("the prompt tells something twice");
}

Notes read(const Words& document) {
  Notes notes;
  for (size_t end = document.size(); end >= 8; end -= 8) {  // statements are aligned to the end; the rest is offset
    const Words s(document.begin() + end - 8, document.begin() + end);
    if (s[0] == "key" && s[2] == "=" && s[7] == ";") {
      tell(notes.facts, s[1], Words{s[3], s[4], s[5], s[6]});
    } else if (s[0] == "also" && s[2] == "=" && s[7] == ";") {
      Words& values = notes.also[s[1]];
      values.insert(values.begin(), s[3]);  // read backwards
    } else if (s[0] == "var" && s[2] == "=" && s[7] == ";") {
      tell(notes.numbers, s[1], Words{s[3], s[4]});
    } else if (s[0] == "var" && s[2] == "<-" && s[7] == ";") {
      tell(notes.copies, s[1], s[3]);
    } else if (s[0] == "in" && s[3] == "=" && s[7] == ";") {
      tell(notes.attributes, {s[1], s[2]}, Words{s[4], s[5]});
    } else if (s[0] == "rule" && s[2] == "to" && s[5] == "from" && s[7] == ";") {
      tell(notes.rules, s[1], Notes::Rule{s[3], s[4], s[6]});
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
    codes[place] = rule.recall == place ? rule.value : look_up(codes, rule.recall);
    for (const std::string& word :
         {std::string("at"), place, rule.value, rule.recall, codes[place], std::string("to"), rule.next, std::string(";")}) {
      answer.push_back(word);
    }
    place = rule.next;
  }
  return join(answer);
}

std::string most_frequent(const Words& document, size_t wanted) {
  std::map<std::string, int> counts;
  for (const std::string& word : document) ++counts[word];
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [word, count] : counts) order.emplace_back(-count, word);
  std::sort(order.begin(), order.end());
  if (order.at(wanted - 1).first == order.at(wanted).first) throw std::runtime_error("the last place is shared");
  Words words;
  for (size_t i = 0; i < wanted; ++i) words.push_back(order[i].second);
  return join(words);
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
  if (from_end(1) == ":" && (from_end(2) == "common" || from_end(2) == "frequent")) {
    const std::string kind = cut_question(words, 2, from_end(2))[0];
    return most_frequent(words, kind == "common" ? 4 : 3);
  }
  if (from_end(1) == ":" && from_end(3) == "run") {
    const Words question = cut_question(words, 3, "run");
    return run(read(words), question[1]);
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
  if (from_end(1) == "=" && from_end(4) == "what") {
    const Words question = cut_question(words, 4, "what");
    return join(look_up(read(words).attributes, {question[1], question[2]}));
  }
  const std::string kind = from_end(3);
  const Words question = cut_question(words, 3, kind);
  const Notes notes = read(words);
  if (kind == "ask") return join(look_up(notes.facts, question[1]));
  if (kind == "all") return join(look_up(notes.also, question[1]));
  if (kind != "trace") throw std::runtime_error("an unknown question");
  Words answer;
  std::string name = question[1];
  while (notes.copies.count(name) != 0) answer.push_back(name = notes.copies.at(name));
  const Words& value = look_up(notes.numbers, name);
  answer.insert(answer.end(), value.begin(), value.end());
  return join(answer);
}

}  // namespace sluice::test
