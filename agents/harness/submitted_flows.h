#pragma once

#include <string>

#include "agents/evaluation/flow_script.h"
#include "agents/harness/store_pool.h"

namespace sluice {

/// Submissions of a data folder as flows that generation may use: "submission:12". Only those that were judged to the end
/// (passed, below_threshold): they compile, and their numbers are right. For any thread.
class SubmittedFlows {
 public:
  explicit SubmittedFlows(std::string database) : stores_(std::move(database)) {}

  /// Throws HttpProblem: 400 for a name that is none or a submission that may not be used, which says why; 404 if it is missing.
  void check(const std::string& name) { script(name); }
  FlowScript script(const std::string& name);

 private:
  StorePool stores_;
};

}  // namespace sluice
