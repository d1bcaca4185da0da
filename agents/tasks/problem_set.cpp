#include "agents/tasks/problem_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "agents/tasks/chat.h"
#include "agents/tasks/math_answer.h"
#include "scripting/base/error.h"
#include "scripting/base/input_text.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr size_t kLargestFile = size_t{256} << 20;
constexpr const char* kShape = R"(each line is {"problem": "...", "answer": "..."}, with an optional "id")";

[[noreturn]] void refuse(const std::string& name, int line, const std::string& message) {
  throw InputError(fmt::format("{}:{}: {}", name, line, message), kShape);
}

/// Text of a string or number member.
std::string text_of(const json& member, const char* key, const std::string& name, int line) {
  if (member.is_string() && !member.get_ref<const std::string&>().empty()) return member.get<std::string>();
  if (member.is_number()) return member.dump();
  refuse(name, line, fmt::format("\"{}\" is {}, not text or a number", key, member.is_string() ? "empty" : member.type_name()));
}

json read_json(std::string_view text, const std::string& name, int line) {
  try {
    return parse_json(text, fmt::format("{}:{}", name, line));
  } catch (const InputError& error) {
    throw InputError(error.what(), kShape);
  }
}

Problem parse_line(std::string_view text, const std::string& name, int line) {
  const json entry = read_json(text, name, line);
  if (!entry.is_object()) refuse(name, line, "not a JSON object");
  Problem problem;
  const char* known = nullptr;
  for (const char* key : {"problem", "question", "prompt"}) {
    if (!entry.contains(key)) continue;
    if (known != nullptr) refuse(name, line, fmt::format("both \"{}\" and \"{}\"; one of them is the question", known, key));
    problem.question = text_of(entry[key], key, name, line);
    known = key;
  }
  if (problem.question.empty()) refuse(name, line, "neither \"problem\", \"question\" nor \"prompt\"");
  if (!entry.contains("answer")) refuse(name, line, "no \"answer\"");
  problem.answer = text_of(entry["answer"], "answer", name, line);
  problem.id = entry.contains("id") ? text_of(entry["id"], "id", name, line) : std::to_string(line);
  return problem;
}

}  // namespace

std::vector<Problem> parse_problems(std::string_view text, const std::string& name) {
  std::vector<Problem> problems;
  std::unordered_set<std::string> ids;
  int line = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line;
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Problem problem = parse_line(content, name, line);
    if (!ids.insert(problem.id).second) refuse(name, line, fmt::format("the id \"{:.60}\" is used twice", problem.id));
    problems.push_back(std::move(problem));
  }
  if (problems.empty()) throw InputError(fmt::format("{}: no problems in it", name), kShape);
  return problems;
}

std::vector<Problem> load_problems(const std::string& path) {
  return parse_problems(read_input(path, kLargestFile), name_of_input(path));
}

Sample problem_sample(const Problem& problem, const TaskContext& context, int max_tokens) {
  Sample sample;
  const ChatFormat chat = chat_format(context.tokenizer, context.chat, Thinking::kAllowed);
  sample.prompt =
      chat.before + problem.question + "\n\nReason step by step, and put the final answer within \\boxed{}." + chat.after;
  sample.answer = last_boxed(problem.answer).value_or(problem.answer);
  sample.scoring = Scoring::kBoxed;
  sample.max_tokens = max_tokens;
  sample.must_end = false;
  return sample;
}

}  // namespace sluice
