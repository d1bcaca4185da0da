#pragma once

#include "agents/repl/evaluation.h"
#include "agents/traces/capture.h"
#include "scripting/graph/plan.h"

namespace sluice::repl {

/// Seconds of one decode step's attention in one KV head: medians of interleaved rounds on the device.
struct StepTimes {
  double dense = 0;     // attention to all pages
  double flow = 0;      // the index stage, then attention to the pages that it selects
  double selected = 0;  // attention to as many pages, without an index stage
  int pages = 0;        // that the flow selects
  int all_pages = 0;
};

/// Times `plan` on K, V and q of the newest step. The cached fields are there already, as in decoding.
StepTimes time_step(Device& device, const Plan& plan, const oracle::Row& row, const Watch& watch);

}  // namespace sluice::repl
