#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "host/serving/token_budget.h"
#include "kernels/reference/oracle.h"

namespace sluice {

/// Who is there of one KV head whose flow evicts, by slot, as the reference has it.
class EvictedTokens {
 public:
  EvictedTokens(const FlowGraph& traced, const TokenBudget& budget, int prompt)
      : traced_(traced), budget_(budget), prompt_(prompt) {}

  /// Of the tokens that are there, by slot; those of the last rows are the last.
  const std::vector<int32_t>& positions() const { return positions_; }
  /// Slots that still have tokens of before once the row at `first` is to come.
  int staying(int first) const { return budget_.staying(first, prompt_); }

  /// Rows come, and a device has `seen` there, of each slot that stays its token. Goes on with these, and with what `states` has
  /// of them. What is wrong, or nothing: where errors of scores leave open who is lower, either may have left.
  std::string follow(std::span<const int32_t> seen, int first, int rows, bool decoding, oracle::States& states);

 private:
  /// Whether all of `gone` may have lower scores than those of `candidates` that are not among them.
  std::string fault_of_leaving(const oracle::HeldTokens& held, const std::vector<int32_t>& candidates,
                               const std::vector<int32_t>& gone) const;

  const FlowGraph& traced_;
  const TokenBudget& budget_;
  int prompt_;
  std::vector<int32_t> positions_;
};

}  // namespace sluice
