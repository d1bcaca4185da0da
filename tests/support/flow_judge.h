#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/reference/oracle.h"
#include "scripting/graph/graph.h"

namespace sluice::testing {

/// A decode sequence to judge a flow on.
struct JudgeOptions {
  int tokens = 100;  // in the cache at the first step
  int steps = 1;     // decode steps; every one appends a token
  uint64_t seed = 1;
  /// Distinct values that keys may have: 0: normal numbers; else whole multiples of 1/2, so that scores tie.
  int levels = 0;
  bool specials = false;  // infinities and NaN among the keys
};

struct Verdict {
  std::string fault;  // empty: the device agrees with the oracle
  int scores = 0;     // compared
  int known = 0;      // of them, those that float32 determines
};

/// Compiles `graph` (all passes), runs it on the CPU step by step, and compares fields, scores and selections of every step
/// with the oracle on the graph before passes.
Verdict judge(const FlowGraph& graph, const JudgeOptions& options);

/// Empty if `score` is what float32 may give for `expected`, else what is wrong.
std::string compare_number(float score, const oracle::Bounded& expected);

/// Empty if `selected` is the oracle's selection, or differs from it only by pages whose oracle scores float32 cannot tell
/// apart.
std::string compare_selection(const std::vector<int32_t>& selected, const oracle::Result& expected);

}  // namespace sluice::testing
