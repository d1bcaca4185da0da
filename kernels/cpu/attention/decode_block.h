#pragma once

namespace sluice::cpu {

/// Tokens between two looks at the running maximum of decode attention.
inline constexpr int kDecodeBlockTokens = 128;

/// K or V of the tokens of one block of decode attention: a pointer to the rows [page, dim] of each page.
template <typename T>
struct BlockRows {
  static constexpr int kMostPages = kDecodeBlockTokens / 8;

  const T* pages[kMostPages];
  const T* next_pages[kMostPages];  // of the following block, to be prefetched
  int page = 0;                     // tokens
  int tokens = 0;
  int dim = 0;
  const uint32_t* mask = nullptr;  // a bit for each token that is seen; null: all are
};

}  // namespace sluice::cpu
