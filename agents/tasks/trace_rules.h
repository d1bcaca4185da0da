#pragma once

#include <vector>

#include "agents/tasks/rng.h"

namespace sluice {

/// One rule of a trace: at this place note `value`, recall the code of the place `recall` and go on to `next`.
struct TraceRule {
  int place = 0;
  int next = 0;    // kTraceEnd at the end
  int value = 0;   // index of a value
  int recall = 0;  // a place visited earlier in the same trace, or `place` itself
  int code = 0;    // what has to be written: the code of `recall`, or `value` where that is the place itself
};

inline constexpr int kTraceEnd = -1;

/// Chains of rules over different places. `asked` of them have `steps` rules; the rest is distraction.
struct TraceRules {
  std::vector<std::vector<TraceRule>> chains;
  int asked = 0;
  int rules() const;
};

/// What a trace may have at most.
struct TraceExtent {
  int steps = 64;
  int rules = 250;
};

/// As many rules and steps as fit a document of `lines` lines; fewer steps than `most` only where fewer lines fit. At most
/// `questions` chains are to be asked for. Values are indices below `values`.
TraceRules trace_rules(Rng& rng, int lines, int questions, int values, const TraceExtent& most = {});

}  // namespace sluice
