#include "kernels/cpu/attention/prompt_masks.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

namespace sluice::cpu {
namespace {

/// Takes the bits of blocks that have few out of a row's mask, and adds their places to `scattered`.
void take_few(std::span<uint32_t> mask, std::vector<int32_t>& scattered) {
  constexpr size_t kBlockWords = PromptMasks::kBlockTokens / 32;
  for (size_t word = 0; word < mask.size(); word += kBlockWords) {
    const std::span<uint32_t> block = mask.subspan(word, std::min(kBlockWords, mask.size() - word));
    const int seen =
        std::accumulate(block.begin(), block.end(), 0, [](int sum, uint32_t bits) { return sum + std::popcount(bits); });
    if (seen > PromptMasks::kFewTokens) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      for (; block[i] != 0; block[i] &= block[i] - 1) {
        scattered.push_back(static_cast<int32_t>(32 * (word + i)) + std::countr_zero(block[i]));
      }
    }
  }
}

}  // namespace

void PromptMasks::split(int64_t pass, const GroupPages& kept, int sequence, int rows) {
  if (pass == pass_) return;
  pass_ = pass;
  words_ = kept.mask_words(sequence);
  heads_ = kept.mask_heads;
  seen_.clear();
  scattered_.clear();
  const auto words = static_cast<size_t>(words_);
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(heads_) * words;
  masks_ = kept.masks.subspan(static_cast<size_t>(kept.mask_indptr[sequence]), count);
  if (kept.row_stride == 0) return;
  others_.assign(masks_.begin(), masks_.end());
  masks_ = others_;
  scattered_indptr_.assign(1, 0);
  for (size_t first = 0; first < count; first += words) {
    take_few(std::span(others_).subspan(first, words), scattered_);
    scattered_indptr_.push_back(scattered_.size());
  }
}

std::span<const uint32_t> PromptMasks::seen() {
  if (!seen_.empty()) return seen_;
  const auto words = static_cast<size_t>(words_);
  seen_.assign(words, 0);
  for (size_t first = 0; first < masks_.size(); first += words) {
    const std::span<const uint32_t> mask = masks_.subspan(first, words);
    std::transform(seen_.begin(), seen_.end(), mask.begin(), seen_.begin(), std::bit_or<>());
  }
  return seen_;
}

}  // namespace sluice::cpu
