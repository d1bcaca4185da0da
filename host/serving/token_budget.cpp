#include "host/serving/token_budget.h"

#include <utility>

#include "scripting/base/error.h"
#include "scripting/graph/kept_tokens.h"
#include "scripting/pattern/analysis.h"

namespace sluice {

TokenBudget::TokenBudget(Eviction eviction, int most_positions) : eviction_(std::move(eviction)) {
  if (!eviction_.keep) return;
  try {
    last_readers_ = PatternAnalysis(*eviction_.keep).last_readers(most_positions);
  } catch (const InputError& error) {
    throw FlowError(eviction_.where, error.what(), error.hint());
  }
  check_kept_tokens(eviction_, last_readers_, most_positions, 1);
  if (!keeps_prompt()) check_kept_tokens(eviction_, last_readers_, most_positions, eviction_.chunk);
}

}  // namespace sluice
