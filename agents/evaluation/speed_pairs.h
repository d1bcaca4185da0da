#pragma once

#include <vector>

#include "agents/evaluation/suite.h"
#include "agents/tasks/rng.h"

namespace sluice {

/// How many pairs of dense attention and flow are timed of a task, and in which of its batches. Which batches those are is chosen
/// by chance, anew for every evaluation: a flow that knew the first documents of a problem set, or of a server's seed, could be
/// fast in those alone.
class SpeedPairs {
 public:
  explicit SpeedPairs(const Suite& suite);

  /// Pairs of each of `batches` batches. `only_times`: they are run for nothing else, so that one is enough.
  std::vector<int> of_batches(size_t batches, bool only_times);

 private:
  const int of_task_;
  Rng chance_ = Rng(Seed::secret(), "timed batches");
};

}  // namespace sluice
