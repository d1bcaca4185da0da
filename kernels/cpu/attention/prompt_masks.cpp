#include "kernels/cpu/attention/prompt_masks.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

namespace sluice::cpu {

void PromptMasks::split(int64_t pass, const GroupPages& kept, int sequence, int rows) {
  if (pass == pass_) return;
  pass_ = pass;
  words_ = kept.mask_words(sequence);
  heads_ = kept.mask_heads;
  const auto words = static_cast<size_t>(words_);
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(heads_) * words;
  const std::span<const uint32_t> all = kept.masks.subspan(static_cast<size_t>(kept.mask_indptr[sequence]), count);
  masks_.assign(all.begin(), all.end());
  seen_.assign(words, 0);
  scattered_.clear();
  scattered_indptr_.assign(1, 0);
  constexpr size_t kBlockWords = kBlockTokens / 32;
  for (size_t first = 0; first < count; first += words) {
    const std::span<uint32_t> mask = std::span(masks_).subspan(first, words);
    for (size_t word = 0; word < words; word += kBlockWords) {
      const std::span<uint32_t> block = mask.subspan(word, std::min(kBlockWords, words - word));
      const int seen =
          std::accumulate(block.begin(), block.end(), 0, [](int sum, uint32_t bits) { return sum + std::popcount(bits); });
      if (seen == 0 || seen > kFewTokens) continue;
      for (size_t i = 0; i < block.size(); ++i) {
        for (; block[i] != 0; block[i] &= block[i] - 1) {
          scattered_.push_back(static_cast<int32_t>(32 * (word + i)) + std::countr_zero(block[i]));
        }
      }
    }
    scattered_indptr_.push_back(scattered_.size());
    std::transform(seen_.begin(), seen_.end(), mask.begin(), seen_.begin(), std::bit_or<>());
  }
}

}  // namespace sluice::cpu
