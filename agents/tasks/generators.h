#pragma once

#include "agents/tasks/task.h"

// The generators of docs/TASKS.md, one function a task and dialect: each a `Generator`.

namespace sluice {

using Samples = std::vector<Sample>;
using GeneratorFunction = Samples(const TaskContext& context, Rng& rng, int tokens, int questions);

namespace mini {
GeneratorFunction needle_multivalue, needle_multiquery, variable_tracking, salad, trace;
}  // namespace mini

namespace english {
GeneratorFunction needle_single, needle_multikey, needle_multivalue, needle_multiquery, variable_tracking, common_words,
    frequent_words, salad, trace;
}  // namespace english

}  // namespace sluice
