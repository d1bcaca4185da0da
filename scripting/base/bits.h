#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace sluice {

/// Sets bits `first` to `end` - 1, counted from the lowest of the first word on.
inline void set_bits(std::span<uint32_t> words, int64_t first, int64_t end) {
  if (first >= end) return;
  const auto from = static_cast<size_t>(first / 32);
  const auto to = static_cast<size_t>((end - 1) / 32);
  const uint32_t begin = ~uint32_t{0} << (first % 32);
  const uint32_t rest = ~uint32_t{0} >> (31 - (end - 1) % 32);
  if (from == to) {
    words[from] |= begin & rest;
    return;
  }
  words[from] |= begin;
  std::fill(words.begin() + static_cast<ptrdiff_t>(from) + 1, words.begin() + static_cast<ptrdiff_t>(to), ~uint32_t{0});
  words[to] |= rest;
}

inline bool has_bit(std::span<const uint32_t> words, int64_t bit) {
  return (words[static_cast<size_t>(bit / 32)] >> (bit % 32) & 1U) != 0;
}

inline void set_bit(std::span<uint32_t> words, int64_t bit) { words[static_cast<size_t>(bit / 32)] |= uint32_t{1} << (bit % 32); }

}  // namespace sluice
