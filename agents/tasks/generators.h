#pragma once

#include "agents/tasks/task.h"

// The generators of docs/TASKS.md, one function a task and dialect. All have the signature of `Generator`.

namespace sluice::mini {

using Samples = std::vector<Sample>;

Samples needle_single(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples needle_multikey(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples needle_multivalue(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples needle_multiquery(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples variable_tracking(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples common_words(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples frequent_words(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples salad(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples trace(const TaskContext& context, Rng& rng, int tokens, int questions);

}  // namespace sluice::mini

namespace sluice::english {

using Samples = std::vector<Sample>;

Samples needle_single(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples needle_multikey(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples needle_multivalue(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples needle_multiquery(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples variable_tracking(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples common_words(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples frequent_words(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples salad(const TaskContext& context, Rng& rng, int tokens, int questions);
Samples trace(const TaskContext& context, Rng& rng, int tokens, int questions);

}  // namespace sluice::english
