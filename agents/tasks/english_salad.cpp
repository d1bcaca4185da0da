#include <fmt/format.h>

#include <algorithm>

#include "agents/tasks/english_document.h"
#include "agents/tasks/english_words.h"
#include "agents/tasks/generators.h"
#include "agents/tasks/salad_layout.h"
#include "scripting/base/error.h"

namespace sluice::english {
namespace {

constexpr int kDigits = 5;

constexpr const char* kInstruction =
    "Below are interleaved passages about several towns. Each passage begins with the name of its town. You will be asked for "
    "one "
    "figure of one town.";

std::string statement(const std::string& town, const std::string& property, const std::string& figure) {
  return fmt::format("In {}, the {} is {}.", town, property, figure);
}

Question question(const std::string& town, const std::string& property) {
  return {fmt::format("Question: What is the {} in {}? Answer with the number alone.", property, town),
          fmt::format("In {}, the {} is", town, property)};
}

struct Told {
  int town;
  int property;
  std::string figure;
};

}  // namespace

Samples salad(const SaladKind& kind, const TaskContext& context, Rng& rng, int tokens, int questions) {
  const auto& [task, pattern] = kind;
  Document document(task, context, rng, tokens, kInstruction, question("strange-mountain", "circumference"));
  const int least = pattern.empty() ? kLeastSaladLines : least_salad_lines(pattern);
  // Hay is the longest kind of line; where a statement happens to be longer, fewer lines are tried.
  int lines = document.capacity("The strange mountain was kept beside the ancient fountain until the rain came.", least);
  for (; lines >= least; --lines) {
    const SaladLayout layout = pattern.empty() ? salad_layout(rng, lines) : salad_layout_of(rng, lines, pattern);
    const auto towns = hyphenated_names(rng, layout.topics);
    const auto names = rng.distinct(properties(), layout.attributes);
    const auto figures = numbers(rng, layout.topics * layout.attributes, kDigits);
    std::vector<std::string> text;
    std::vector<Told> told;
    for (const SaladLayout::Line& line : layout.lines) {
      if (line.kind == SaladLayout::Line::Kind::kHeader) {
        text.push_back(fmt::format("## {}", towns[line.topic]));
      } else if (line.kind == SaladLayout::Line::Kind::kAttribute) {
        told.push_back({line.topic, line.attribute, figures[told.size()]});
        text.push_back(statement(towns[line.topic], names[line.attribute], told.back().figure));
      } else {
        text.push_back(hay(rng));
      }
    }
    if (!document.fill_with(text, true)) continue;
    Samples samples;
    for (const Told& asked : rng.distinct(told, std::min<size_t>(questions, told.size()))) {
      samples.push_back(
          document.ask(question(towns[asked.town], names[asked.property]), asked.figure, Scoring::kExact, Items::kNumbers, 1));
    }
    return samples;
  }
  throw InputError(fmt::format("task {} needs a longer context than {} tokens", task, tokens));
}

}  // namespace sluice::english
