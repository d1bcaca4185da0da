#pragma once

#include "tests/support/masked_attention.h"

namespace sluice::testing {

inline std::vector<int> slots_from(int first, int count, int step = 1) {
  std::vector<int> slots;
  for (int i = 0; i < count; ++i) slots.push_back(first + i * step);
  return slots;
}

/// Rows of one pass: decode steps and chunks, masked and not, the last with gaps between its rows, over lists from part of a page
/// to several thousand tokens.
inline std::vector<MaskedAttention::Sequence> masked_sequences() {
  const auto run = slots_from;
  return {
      {.slots = {0}, .length = 1, .decoding = true},
      {.slots = {39}, .length = 40, .decoding = true},
      {.slots = {3000}, .length = 3001, .decoding = true},
      {.slots = {200}, .length = 700, .decoding = true},
      {.slots = {200}, .length = 700, .decoding = true, .masked = false},  // a row in the middle of what is there
      {.slots = run(0, 70, 1), .length = 70},
      {.slots = run(400, 150, 1), .length = 550},
      {.slots = run(3, 60, 7), .length = 500},
      {.slots = run(100, 90, 1), .length = 300, .masked = false},
      {.slots = run(2, 80, 5), .length = 417, .masked = false},
      {.slots = {5, 6, 900}, .length = 1200, .masked = false},
      {.slots = run(1000, 300, 1), .length = 1500, .in_stretches = true},
      {.slots = run(0, 130, 2), .length = 2049, .in_stretches = true},
      {.slots = run(900, 40, 1), .length = 1000, .in_stretches = true},
      {.slots = run(900, 70, 1), .length = 1100, .in_patches = true},
      {.slots = run(50, 40, 3), .length = 3005, .in_patches = true},
  };
}

}  // namespace sluice::testing
