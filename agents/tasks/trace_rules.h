#pragma once

#include <span>
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

/// Chains of rules over different places. The first `asked` of them are asked for; the rest is distraction.
struct TraceRules {
  std::vector<std::vector<TraceRule>> chains;
  int asked = 0;
  int rules() const;
};

/// Chains of as many rules as `steps` says of each: at least one chain, of one rule. The first `questions` of them are asked for,
/// one at least and all at most. Values are indices below `values`. Throws InternalError for other steps.
TraceRules trace_rules(Rng& rng, std::span<const int> steps, int questions, int values);

}  // namespace sluice
