#include "tests/tasks/english_solver.h"

#include <algorithm>
#include <map>
#include <regex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/tasks/fixtures.h"

namespace sluice::test {
namespace {

struct Rule {
  std::string next, value, recall;
};

struct Notes {
  std::map<std::string, std::vector<std::string>> codes;
  std::map<std::string, std::string> numbers;
  std::map<std::string, std::string> copies;
  std::map<std::pair<std::string, std::string>, std::string> figures;
  std::map<std::string, Rule> rules;
  std::map<std::string, int> listed;
};

Notes read(const std::string& prompt) {
  static const std::regex kCode(R"(The access code for (\S+) is (\d+)\.)");
  static const std::regex kNumber(R"(Variable ([A-Z]+) is set to (\d+)\.)");
  static const std::regex kCopy(R"(Variable ([A-Z]+) copies ([A-Z]+)\.)");
  static const std::regex kFigure(R"(In (\S+), the (.+) is (\d+)\.)");
  static const std::regex kRule(R"(Rule of ([A-Z]+): value (\d+), recall ([A-Z]+), then (?:go to )?([A-Z]+)\.)");
  static const std::regex kList(R"([a-z]+(?: [a-z]+){7})");
  Notes notes;
  std::smatch m;
  for (const std::string& line : lines_of(prompt)) {
    if (std::regex_match(line, m, kCode)) notes.codes[m[1]].push_back(m[2]);
    if (std::regex_match(line, m, kNumber)) notes.numbers[m[1]] = m[2];
    if (std::regex_match(line, m, kCopy)) notes.copies[m[1]] = m[2];
    if (std::regex_match(line, m, kFigure)) notes.figures[{m[1], m[2]}] = m[3];
    if (std::regex_match(line, m, kRule)) notes.rules[m[1]] = {m[4], m[2], m[3]};
    if (std::regex_match(line, m, kList)) {
      for (const std::string& word : words_of(line)) ++notes.listed[word];
    }
  }
  return notes;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string most_frequent(const Notes& notes, size_t wanted) {
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [word, count] : notes.listed) order.emplace_back(-count, word);
  std::sort(order.begin(), order.end());
  if (order.at(wanted - 1).first == order.at(wanted).first) throw std::runtime_error("the last place is shared");
  std::vector<std::string> words;
  for (size_t i = 0; i < wanted; ++i) words.push_back(order[i].second);
  return join(words);
}

std::string run(const Notes& notes, std::string place) {
  std::string answer;
  std::map<std::string, std::string> codes;
  while (place != "STOP") {
    const Rule& rule = notes.rules.at(place);
    codes[place] = rule.recall == place ? rule.value : codes.at(rule.recall);
    answer += (answer.empty() ? "at " : "\nat ") + place + " value " + rule.value + " recall " + rule.recall + " code " +
              codes[place] + " to " + rule.next;
    place = rule.next;
  }
  return answer;
}

}  // namespace

std::string solve_english(const std::string& prompt) {
  const size_t at = prompt.rfind("Question: ");
  if (at == std::string::npos) throw std::runtime_error("no question");
  const std::string question = prompt.substr(at, prompt.find('\n', at) - at);
  const Notes notes = read(prompt.substr(0, at));
  std::smatch m;
  if (std::regex_search(question, m, std::regex("the access code for ([^? ]+)\\?"))) return join(notes.codes.at(m[1]));
  if (std::regex_search(question, m, std::regex("all the access codes for ([^? ]+)\\?"))) return join(notes.codes.at(m[1]));
  if (std::regex_search(question, m, std::regex("the access codes for ([^?]+)\\?"))) {
    std::vector<std::string> codes;
    const std::string names = m[1];
    static const std::regex kName("[^, ]+");
    for (auto name = std::sregex_iterator(names.begin(), names.end(), kName); name != std::sregex_iterator(); ++name) {
      codes.push_back(notes.codes.at(name->str()).at(0));
    }
    return join(codes);
  }
  if (std::regex_search(question, m, std::regex("Starting from variable ([A-Z]+)"))) {
    std::vector<std::string> answer;
    std::string name = m[1];
    while (notes.copies.count(name) != 0) answer.push_back(name = notes.copies.at(name));
    answer.push_back(notes.numbers.at(name));
    return join(answer);
  }
  if (question.find("four words") != std::string::npos) return most_frequent(notes, 4);
  if (question.find("three words") != std::string::npos) return most_frequent(notes, 3);
  if (std::regex_search(question, m, std::regex("What is the (.+) in ([^?]+)\\?"))) return notes.figures.at({m[2], m[1]});
  if (std::regex_search(question, m, std::regex("Start at ([A-Z]+)"))) return run(notes, m[1]);
  throw std::runtime_error("an unknown question");
}

}  // namespace sluice::test
