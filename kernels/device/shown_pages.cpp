#include "kernels/device/shown_pages.h"

#include <algorithm>

#include "scripting/base/bits.h"

namespace sluice {

int find_shown_pages(const PassBatch& batch, const GroupPages& kept, int sequence, int page, int32_t* places) {
  const int pages = pages_for(kept.lengths[sequence], page);
  const int own = kept.slots[batch.query_indptr[sequence + 1] - 1] / page;
  int count = 0;
  for (int place = 0; place < pages; ++place) {
    const int64_t first = int64_t{place} * page;
    const int64_t end = std::min<int64_t>(kept.lengths[sequence], first + page);
    bool is_shown = place == own;
    for (int head = 0; !is_shown && head < kept.mask_heads; ++head) {
      is_shown = has_any_bit(kept.mask(sequence, batch.query_rows(sequence) - 1, head), first, end);
    }
    if (is_shown) places[count++] = place;
  }
  return count;
}

}  // namespace sluice
