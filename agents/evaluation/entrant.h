#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/report.h"
#include "agents/evaluation/runner.h"
#include "agents/evaluation/suite.h"
#include "scripting/base/error.h"

namespace sluice {

/// A flow on its way through a cascade: what becomes of it goes into its report.
struct Entrant {
  FlowReport report;
  std::optional<Candidate> candidate;  // empty: out before it ran, or by an error
  bool alive = true;                   // takes part in the next stage
  bool judged = false;                 // by a stage at least
  bool timing = true;                  // its speed is measured, as far as there is a candidate
  std::vector<TaskSpeed> timed;        // by task
  std::vector<TaskSpeed> timed_parts;  // by batch, of the task that runs
  double timing_seconds = 0;
  double waited = 0;       // seconds, for quiet
  bool had_quiet = false;  // where it was timed last, as far as that is known

  bool is_timed() const { return candidate && timing; }

  /// Does `work` of `stage`. Its errors are the flow's, but for what the machine lacks, which says nothing about a flow and is
  /// thrown on.
  void attempt(const std::string& stage, const std::function<void()>& work);

  void came_to(const std::string& stage, double seconds) { report.stages.push_back({stage, seconds}); }
  void stop(FlowStatus status, const std::string& stage, const std::string& message);
  /// A speed that could not be measured, which says nothing about the flow's answers: its status stays.
  void leave_untimed(const InputError& error);

  /// The batches of one task that were timed are that task's speed.
  void conclude_timing(const SuiteStage& stage, const SuiteTask& task);
  /// After all tasks. What is faster than the pages read allow was not measured rightly. What is answered otherwise where the
  /// clock looks was not scored.
  void conclude_speed();

 private:
  /// After an error at run time, not even the speed is of interest.
  void fail(const std::string& stage, const std::string& message);
};

}  // namespace sluice
