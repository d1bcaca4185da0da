#include "kernels/cpu/attention/beside.h"

#include <algorithm>

#include "scripting/base/bits.h"

namespace sluice::cpu {

int join_beside(const BesideTokens& beside, int sequence, int page, std::span<const uint32_t> visible,
                std::span<const uint32_t> tokens, std::span<int32_t> positions, int count, std::span<uint32_t> mask) {
  const auto first = beside.empty() ? size_t{0} : static_cast<size_t>(beside.indptr[sequence]);
  const auto end = beside.empty() ? size_t{0} : static_cast<size_t>(beside.indptr[sequence + 1]);
  const auto pages = beside.pages.subspan(first, end - first);
  const auto words = static_cast<size_t>(page_words(page));
  const std::span<const int32_t> selected = positions.first(static_cast<size_t>(count));
  const auto is_selected = [&](int32_t place) { return std::binary_search(selected.begin(), selected.end(), place); };
  const auto added =
      static_cast<int>(std::count_if(pages.begin(), pages.end(), [&](int32_t place) { return !is_selected(place); }));

  const int all = count + added;
  std::fill_n(mask.begin(), (static_cast<size_t>(all) * page + 31) / 32, 0);
  // From the last on, so that every page moves behind where it was.
  auto next = static_cast<int>(pages.size()) - 1;
  for (int to = all - 1, from = count - 1; to >= 0; --to) {
    const int64_t bit = int64_t{to} * page;
    const bool takes_selected = from >= 0 && (next < 0 || positions[from] >= pages[next]);
    if (takes_selected) {
      if (tokens.empty()) {
        set_bits(mask, bit, bit + page);
      } else {
        join_bits(mask, bit, tokens, int64_t{from} * page, page);
      }
      if (next >= 0 && positions[from] == pages[next]) {
        if (!tokens.empty()) add_bits(mask, bit, beside.words.subspan((first + next) * words, words), page);
        --next;
      }
      positions[to] = positions[from--];
    } else {
      positions[to] = pages[next];
      add_bits(mask, bit, beside.words.subspan((first + next) * words, words), page);
      --next;
    }
    if (!visible.empty()) keep_bits(mask, bit, visible, int64_t{positions[to]} * page, page);
  }
  return all;
}

}  // namespace sluice::cpu
