#pragma once

#include <string_view>

#include "agents/tasks/task.h"

// The generators of docs/TASKS.md, one function a task and dialect: each a `Generator`.

namespace sluice {

using Samples = std::vector<Sample>;
using GeneratorFunction = Samples(const TaskContext& context, Rng& rng, int tokens, int questions);

/// A task of interleaved topics.
struct SaladKind {
  const char* task;
  std::string_view pattern;  // of the whole document (salad_layout.h); empty: any
};
using SaladFunction = Samples(const SaladKind& kind, const TaskContext& context, Rng& rng, int tokens, int questions);

namespace mini {
GeneratorFunction needle_multivalue, needle_multiquery, variable_tracking, trace;
SaladFunction salad;
}  // namespace mini

namespace english {
GeneratorFunction needle_single, needle_multikey, needle_multivalue, needle_multiquery, variable_tracking, common_words,
    frequent_words, trace;
SaladFunction salad;
}  // namespace english

}  // namespace sluice
