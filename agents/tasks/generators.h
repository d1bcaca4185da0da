#pragma once

#include "agents/tasks/task.h"

// The generators of docs/TASKS.md, one function a task and dialect: each a `Generator`.

namespace sluice {

using Samples = std::vector<Sample>;
using GeneratorFunction = Samples(const TaskContext& context, Rng& rng, int tokens, int questions);

namespace mini {
GeneratorFunction needle_multivalue, needle_multiquery, variable_tracking, salad, salad_easy, salad_medium, salad_hard,
    salad_very_hard, trace;
}  // namespace mini

namespace english {
GeneratorFunction needle_single, needle_multikey, needle_multivalue, needle_multiquery, variable_tracking, common_words,
    frequent_words, salad, salad_easy, salad_medium, salad_hard, salad_very_hard, trace;
}  // namespace english

}  // namespace sluice
