#include <algorithm>

#include "agents/tasks/generators.h"
#include "agents/tasks/mini_document.h"
#include "agents/tasks/salad_layout.h"

namespace sluice::mini {
namespace {

constexpr int kAsked = 4;              // attributes of one topic
constexpr int kAnsweredAttribute = 5;  // words: K = v w ;
constexpr SaladExtent kMost = {.topics = 4, .attributes = 8};

}  // namespace

Samples salad(const SaladKind& kind, const TaskContext& context, Rng& rng, int tokens, int questions) {
  const auto& [task, pattern] = kind;
  const int least = pattern.empty() ? kLeastSaladLines : least_salad_lines(pattern);
  Document document(task, context, rng, tokens, 3 + kAsked, least);
  const SaladLayout layout =
      pattern.empty() ? salad_layout(rng, document.size(), kMost) : salad_layout_of(rng, document.size(), pattern, kMost);
  const Words keys = document.keys(layout.topics + layout.attributes);
  const auto topic = [&](int index) { return keys[index]; };
  const auto attribute = [&](int index) { return keys[layout.topics + index]; };
  struct Told {
    int topic;
    int attribute;
    Words value;
  };
  std::vector<Told> told;
  for (int i = 0; i < document.size(); ++i) {
    const SaladLayout::Line& line = layout.lines[i];
    if (line.kind == SaladLayout::Line::Kind::kHeader) {
      document.line(i) = {"topic",           topic(line.topic), document.filler(), document.filler(),
                          document.filler(), document.filler(), document.filler(), ";"};
    } else if (line.kind == SaladLayout::Line::Kind::kAttribute) {
      const Words value = document.values(2);
      document.line(i) = {"in", topic(line.topic), attribute(line.attribute), "=", value[0], value[1], document.filler(), ";"};
      told.push_back({line.topic, line.attribute, value});
    }
  }
  document.distract(Kind::kAttribute, {keys.begin(), keys.begin() + layout.topics});
  Samples samples;
  for (int i = 0; i < questions; ++i) {
    const int asked_topic = rng.pick(told).topic;
    std::vector<Told> of_topic;
    for (const Told& one : told) {
      if (one.topic == asked_topic) of_topic.push_back(one);
    }
    Words question = {"what", topic(asked_topic)};
    Words answer;
    for (const Told& one : rng.distinct(of_topic, kAsked)) {
      question.push_back(attribute(one.attribute));
      if (!answer.empty()) answer.push_back(";");
      answer.insert(answer.end(), {attribute(one.attribute), "=", one.value[0], one.value[1]});
    }
    question.push_back(":");
    samples.push_back(document.ask(question, answer, kAnsweredAttribute));
  }
  return samples;
}

}  // namespace sluice::mini
