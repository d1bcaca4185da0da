#pragma once

#include <optional>

#include "store/records.h"

namespace sluice::store {

/// A row of the queue: a submission that is to be judged, or a trial of one with a seed of its own.
struct Job {
  int64_t id = 0;
  SubmissionId submission = 0;
  std::optional<int64_t> trial = {};  // its row
};

}  // namespace sluice::store
