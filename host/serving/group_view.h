#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "host/serving/token_budget.h"
#include "scripting/pattern/head_patterns.h"
#include "scripting/pattern/head_slots.h"
#include "scripting/pattern/page_lives.h"

namespace sluice {

/// What the rows of a group of layers see of a sequence, and where its tokens lie.
struct GroupView {
  int window = 0;                    // tokens back that a row sees, itself included; 0: all
  std::optional<Pattern> pattern{};  // in place of a window, with it in common: what rows of any KV head see
  std::vector<Pattern> heads{};      // where they differ: KV head h sees what the one at place h modulo their number says
  bool dense_prefill = false;        // it is that of decode steps: rows of prompts see those of the window
  /// Of the pattern, if its tokens go to slots, so that the group keeps no more than later rows read: a map for each of `heads`,
  /// or one. Null: a token's slot is its position.
  std::shared_ptr<const HeadSlots> slots = nullptr;
  /// Of the pattern, if slots are positions, and pages are given back once no later row reads any of their tokens. Where prompts
  /// are dense that is so of decode rows only. Null: all pages are kept.
  std::shared_ptr<const PageLives> lives = nullptr;
  /// Of layers whose flow evicts: rows see what is there. Null: no token leaves.
  std::shared_ptr<const TokenBudget> budget = nullptr;
  /// Of a flow with several programs: tokens that decode steps see beside what that of these layers selects.
  std::optional<Pattern> beside = {};

  bool sees_all() const { return window == 0 && !pattern && budget == nullptr; }
  /// Whether a token's slot is not its position.
  bool has_slots() const { return slots != nullptr || budget != nullptr; }
  /// Those that hold for rows of prompts, too.
  std::shared_ptr<const PageLives> lives_of_prompts() const { return dense_prefill ? nullptr : lives; }
};

/// Whether tokens of any group go to slots.
inline bool has_slots(std::span<const GroupView> views) {
  return std::any_of(views.begin(), views.end(), [](const GroupView& view) { return view.has_slots(); });
}

/// Whether pages of any group are given back before a sequence ends.
inline bool has_lives(std::span<const GroupView> views) {
  return std::any_of(views.begin(), views.end(), [](const GroupView& view) { return view.lives != nullptr; });
}

/// Whether decode steps of any group see other tokens than the same rows would in a prompt.
inline bool decodes_otherwise(std::span<const GroupView> views) {
  return std::any_of(views.begin(), views.end(), [](const GroupView& view) { return view.dense_prefill; });
}

}  // namespace sluice
