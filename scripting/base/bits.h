#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

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

/// Sets from bit `at` on those of the first `count` bits of `from` that are set; the bits behind them are 0.
inline void add_bits(std::span<uint32_t> to, int64_t at, std::span<const uint32_t> from, int64_t count) {
  const auto shift = static_cast<unsigned>(at % 32);
  for (int64_t w = 0; 32 * w < count; ++w) {
    const uint64_t bits = static_cast<uint64_t>(from[static_cast<size_t>(w)]) << shift;
    const auto place = static_cast<size_t>(at / 32 + w);
    to[place] |= static_cast<uint32_t>(bits);
    if (bits >> 32 != 0) to[place + 1] |= static_cast<uint32_t>(bits >> 32);
  }
}

/// Whether the first `count` bits are set, and no other.
inline bool are_first_bits(std::span<const uint32_t> words, int64_t count) {
  for (size_t w = 0; w < words.size(); ++w) {
    const int64_t left = count - 32 * static_cast<int64_t>(w);
    const uint32_t wanted = left >= 32 ? ~uint32_t{0} : left <= 0 ? 0 : (uint32_t{1} << left) - 1;
    if (words[w] != wanted) return false;
  }
  return true;
}

inline bool has_bit(std::span<const uint32_t> words, int64_t bit) {
  return (words[static_cast<size_t>(bit / 32)] >> (bit % 32) & 1U) != 0;
}

/// Whether any of the bits [first, end) is set.
inline bool has_any_bit(std::span<const uint32_t> words, int64_t first, int64_t end) {
  while (first < end) {
    const int64_t next = std::min(end, (first / 32 + 1) * 32);
    const uint32_t some = ~uint32_t{0} >> (32 - (next - first));
    if ((words[static_cast<size_t>(first / 32)] >> (first % 32) & some) != 0) return true;
    first = next;
  }
  return false;
}

/// Clears those of the bits [at, at + count) that are clear in `from`, from bit `first` on. All three are multiples of `count`, a
/// power of two.
inline void keep_bits(std::span<uint32_t> to, int64_t at, std::span<const uint32_t> from, int64_t first, int count) {
  if (count >= 32) {
    for (int64_t w = 0; w < count / 32; ++w) {
      to[static_cast<size_t>(at / 32 + w)] &=
          static_cast<size_t>(first / 32 + w) < from.size() ? from[static_cast<size_t>(first / 32 + w)] : 0;
    }
    return;
  }
  const uint32_t some = (uint32_t{1} << count) - 1;
  const uint32_t kept = from[static_cast<size_t>(first / 32)] >> (first % 32) & some;
  to[static_cast<size_t>(at / 32)] &= ~((some ^ kept) << (at % 32));
}

/// Sets those of the bits [at, at + count) that are set in `from`, from bit `first` on. All three are multiples of `count`, a
/// power of two.
inline void join_bits(std::span<uint32_t> to, int64_t at, std::span<const uint32_t> from, int64_t first, int count) {
  if (count >= 32) {
    for (int64_t w = 0; w < count / 32; ++w) to[static_cast<size_t>(at / 32 + w)] |= from[static_cast<size_t>(first / 32 + w)];
    return;
  }
  const uint32_t some = (uint32_t{1} << count) - 1;
  to[static_cast<size_t>(at / 32)] |= (from[static_cast<size_t>(first / 32)] >> (first % 32) & some) << (at % 32);
}

/// How many of the bits [first, end) are set.
inline int64_t count_bits(std::span<const uint32_t> words, int64_t first, int64_t end) {
  int64_t count = 0;
  while (first < end) {
    const int64_t next = std::min(end, (first / 32 + 1) * 32);
    const uint32_t some = ~uint32_t{0} >> (32 - (next - first));
    count += std::popcount(words[static_cast<size_t>(first / 32)] >> (first % 32) & some);
    first = next;
  }
  return count;
}

/// How many pages of `page` bits, of the first `count` bits, have one that is set.
inline int count_pages(std::span<const uint32_t> words, int64_t count, int page) {
  int pages = 0;
  for (int64_t first = 0; first < count; first += page) pages += has_any_bit(words, first, std::min(count, first + page)) ? 1 : 0;
  return pages;
}

/// Which of the first `count` bits are set, ascending.
inline std::vector<int32_t> places_of_bits(std::span<const uint32_t> words, int64_t count) {
  std::vector<int32_t> places;
  for (int64_t bit = 0; bit < count; ++bit) {
    if ((words[static_cast<size_t>(bit / 32)] >> (bit % 32) & 1U) != 0) places.push_back(static_cast<int32_t>(bit));
  }
  return places;
}

inline void set_bit(std::span<uint32_t> words, int64_t bit) { words[static_cast<size_t>(bit / 32)] |= uint32_t{1} << (bit % 32); }

inline void clear_bit(std::span<uint32_t> words, int64_t bit) {
  words[static_cast<size_t>(bit / 32)] &= ~(uint32_t{1} << (bit % 32));
}

}  // namespace sluice
