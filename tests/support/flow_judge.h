#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/reference/oracle.h"
#include "scripting/graph/plan.h"

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

/// A compiled flow on one request, layer 1 of 3, KV head 1 of 2.
class JudgedFlow {
 public:
  virtual ~JudgedFlow() = default;
  /// Appends tokens of k, v [tokens, dim].
  virtual void append(std::span<const float> keys, std::span<const float> values) = 0;
  /// Runs the index stage; fills `scores` [scored_selections(plan.graph), pages]. Returns the selection, ascending.
  virtual std::vector<int32_t> select(std::span<const float> query, std::span<float> scores) = 0;
  /// Ends the step that `select` has begun, if the plan has an after stage, on what attention gave: masses [pages, page, group].
  virtual void end_step(std::span<float> masses) = 0;
};
using MakeJudgedFlow = std::function<std::unique_ptr<JudgedFlow>(const Plan& plan, int max_pages, uint64_t seed)>;

/// On the CPU.
std::unique_ptr<JudgedFlow> judged_on_cpu(const Plan& plan, int max_pages, uint64_t seed);

/// Compiles `graph` (all passes), runs it step by step, and has oracle::fault_of judge every step. A flow with cached fields runs
/// with these in pages of their own, too: throws unless it gives the same bits.
Verdict judge(const FlowGraph& graph, const JudgeOptions& options, const MakeJudgedFlow& make = judged_on_cpu);

}  // namespace sluice::testing
