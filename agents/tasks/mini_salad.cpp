#include <algorithm>

#include "agents/tasks/generators.h"
#include "agents/tasks/mini_document.h"
#include "agents/tasks/salad_layout.h"

namespace sluice::mini {

Samples salad(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("salad", context, rng, tokens, 4, kLeastSaladLines);
  const SaladLayout layout = salad_layout(rng, document.size());
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
  Samples samples;
  for (const Told& asked : rng.distinct(told, std::min<size_t>(questions, told.size()))) {
    samples.push_back(document.ask({"what", topic(asked.topic), attribute(asked.attribute), "="}, asked.value));
  }
  return samples;
}

}  // namespace sluice::mini
