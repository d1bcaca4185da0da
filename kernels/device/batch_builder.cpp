#include "kernels/device/batch_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "scripting/base/bits.h"
#include "scripting/base/error.h"

namespace sluice {
BatchBuilder::BatchBuilder(std::vector<int> pages) : groups_(pages.size()), spans_(pages.size()) {
  for (size_t g = 0; g < pages.size(); ++g) {
    groups_[g].page = pages[g];
    groups_[g].page_indptr = groups_[g].mask_indptr = groups_[g].beside_indptr = {0};
  }
}

void BatchBuilder::reserve(int sequences, int rows, int pages) {
  const auto count = static_cast<size_t>(sequences);
  query_indptr_.reserve(count + 1);
  positions_.reserve(static_cast<size_t>(rows));
  decoding_.reserve(count);
  seeds_.reserve(count);
  states_.reserve(count);
  prompt_rows_.reserve(count);
  for (Group& group : groups_) {
    group.lengths.reserve(count);
    group.page_indptr.reserve(count + 1);
    group.mask_indptr.reserve(count + 1);
    group.beside_indptr.reserve(count + 1);
    group.page_indices.reserve(static_cast<size_t>(pages));
    group.slots.reserve(static_cast<size_t>(rows));
    group.held.reserve(count);
    group.chunk_ends.reserve(count);
    if (group.heads_have_slots) group.head_slots.reserve(static_cast<size_t>(rows) * group.slot_heads());
  }
}

void BatchBuilder::reserve_masks(int words) {
  for (Group& group : groups_) group.masks.reserve(static_cast<size_t>(words));
}

void BatchBuilder::clear() {
  query_indptr_.resize(1);
  positions_.clear();
  decoding_.clear();
  seeds_.clear();
  states_.clear();
  prompt_rows_.clear();
  for (Group& group : groups_) {
    group.lengths.clear();
    group.page_indptr.resize(1);
    group.mask_indptr.resize(1);
    group.beside_indptr.resize(1);
    group.page_indices.clear();
    group.slots.clear();
    group.head_slots.clear();
    group.masks.clear();
    group.beside_pages.clear();
    group.beside_words.clear();
    group.held.clear();
    group.chunk_ends.clear();
  }
}

void BatchBuilder::add(const Sequence& sequence) {
  for (int i = 0; i < sequence.rows; ++i) positions_.push_back(sequence.first + i);
  query_indptr_.push_back(static_cast<int32_t>(positions_.size()));
  decoding_.push_back(sequence.decoding ? 1 : 0);
  seeds_.push_back(sequence.seed);
  states_.push_back(sequence.state);
  prompt_rows_.push_back(sequence.prompt_rows);
}

void BatchBuilder::add_at(std::span<const int32_t> positions, const Sequence& sequence) {
  Sequence none = sequence;
  none.rows = 0;
  positions_.insert(positions_.end(), positions.begin(), positions.end());
  add(none);
}

std::span<const int32_t> BatchBuilder::last_positions() const {
  return std::span(positions_).subspan(static_cast<size_t>(query_indptr_[query_indptr_.size() - 2]));
}

void BatchBuilder::keep(Group& group, std::span<const int32_t> pages, int first, int length) {
  const std::span<const int32_t> positions = last_positions();
  if (length == 0) length = positions.empty() ? 0 : positions.back() + 1;
  const int used = length - first;
  const auto wanted = static_cast<size_t>(std::max(0, pages_for(used, group.page)));
  if (used < 0 || pages.size() < wanted) {
    throw InternalError(fmt::format("{} pages of {} tokens cannot hold {}", pages.size(), group.page, used));
  }
  group.lengths.push_back(used);
  group.page_indices.insert(group.page_indices.end(), pages.begin(), pages.begin() + static_cast<ptrdiff_t>(wanted));
  group.page_indptr.push_back(static_cast<int32_t>(group.page_indices.size()));
  for (const int32_t position : positions) group.slots.push_back(position - first);
}

void BatchBuilder::keep(int group, std::span<const int32_t> pages, int length) {
  Group& kept = groups_[static_cast<size_t>(group)];
  keep(kept, pages, 0, length);
  kept.end_sequence();
}

void BatchBuilder::keep_window(int group, std::span<const int32_t> pages, int first, int window) {
  Group& kept = groups_[static_cast<size_t>(group)];
  keep(kept, pages, first, 0);
  const std::span<const int32_t> positions = last_positions();
  const bool sees_all = !positions.empty() && positions.back() - window + 1 <= first;
  if (!sees_all) {
    for (const int32_t position : positions) {
      for (int head = 0; head < kept.mask_heads; ++head) {
        const size_t row = kept.masks.size();
        kept.masks.resize(row + kept.mask_words(), 0);
        set_bits(std::span(kept.masks).subspan(row), std::max(0, position - window + 1 - first), position - first + 1);
      }
    }
  }
  kept.end_sequence();
}

std::span<uint32_t> BatchBuilder::keep_slots(int group, std::span<const int32_t> pages, int length,
                                             std::span<const int32_t> slots) {
  Group& kept = groups_[static_cast<size_t>(group)];
  const auto wanted = static_cast<size_t>(pages_for(length, kept.page));
  const size_t rows = last_positions().size();
  if (pages.size() < wanted || slots.size() != rows * kept.slot_heads()) {
    throw InternalError(fmt::format("{} pages of {} tokens cannot hold {} slots", pages.size(), kept.page, length));
  }
  kept.lengths.push_back(length);
  kept.page_indices.insert(kept.page_indices.end(), pages.begin(), pages.begin() + static_cast<ptrdiff_t>(wanted));
  kept.page_indptr.push_back(static_cast<int32_t>(kept.page_indices.size()));
  for (size_t row = 0; row < rows; ++row) kept.slots.push_back(slots[row * kept.slot_heads()]);
  if (kept.heads_have_slots) kept.head_slots.insert(kept.head_slots.end(), slots.begin(), slots.end());
  const size_t first = kept.masks.size();
  kept.masks.resize(first + rows * static_cast<size_t>(kept.mask_heads) * kept.mask_words(), 0);
  kept.end_sequence();
  return std::span(kept.masks).subspan(first);
}

void BatchBuilder::keep_under(int group, std::span<const int32_t> pages, const HeadPatterns& patterns) {
  const int32_t position = positions_.back();
  const std::span<uint32_t> masks = keep_slots(group, pages, position + 1, std::span(&position, 1));
  const Group& kept = groups_[static_cast<size_t>(group)];
  for (int head = 0; head < kept.mask_heads; ++head) {
    const auto first = static_cast<size_t>(head) * kept.mask_words();
    patterns.of_head(head).row(position, position + 1, masks.subspan(first, kept.mask_words()));
  }
}

void BatchBuilder::keep_staying(int group, std::span<const int32_t> pages, int held, int staying, int chunk_end) {
  Group& kept = groups_[static_cast<size_t>(group)];
  const auto rows = static_cast<int>(last_positions().size());
  const auto listed = static_cast<size_t>(pages_for(std::max(held, staying + rows), kept.page));
  if (pages.size() < listed || staying < 0 || staying > held) {
    throw InternalError(fmt::format("{} pages of {} tokens cannot hold {} tokens of before, of which {} stay, and {} rows",
                                    pages.size(), kept.page, held, staying, rows));
  }
  kept.lengths.push_back(staying + rows);
  kept.held.push_back(held);
  kept.chunk_ends.push_back(chunk_end);
  kept.page_indices.insert(kept.page_indices.end(), pages.begin(), pages.begin() + static_cast<ptrdiff_t>(listed));
  kept.page_indptr.push_back(static_cast<int32_t>(kept.page_indices.size()));
  for (int row = 0; row < rows; ++row) kept.slots.push_back(staying + row);
  kept.end_sequence();
}

void BatchBuilder::drop_masks(int group) {
  Group& kept = groups_[static_cast<size_t>(group)];
  if (kept.heads_have_slots) throw InternalError("heads whose slots differ have masks");
  kept.masks.resize(static_cast<size_t>(kept.mask_indptr[kept.mask_indptr.size() - 2]));
  kept.mask_indptr.back() = static_cast<int32_t>(kept.masks.size());
}

void BatchBuilder::see_beside(int group, const Pattern& pattern) {
  Group& kept = groups_[static_cast<size_t>(group)];
  const int position = positions_.back();
  if (decoding_.back() == 0 || kept.slots.back() != position) {
    throw InternalError("tokens beside a selection are seen by decode steps, where slots are positions");
  }
  seen_beside_.resize(static_cast<size_t>(position) / 32 + 1);
  pattern.row(position, position + 1, seen_beside_);
  const std::span<const uint32_t> mask = seen_beside_;
  const auto words = static_cast<size_t>(page_words(kept.page));
  const int together = std::max(1, 32 / kept.page);  // pages of a word, where pages are smaller
  for (size_t w = 0; w < mask.size(); w += words) {
    const std::span<const uint32_t> some = mask.subspan(w, std::min(words, mask.size() - w));
    if (std::all_of(some.begin(), some.end(), [](uint32_t word) { return word == 0; })) continue;
    for (int part = 0; part < together; ++part) {
      const uint32_t bits = together == 1 ? ~uint32_t{0} : ((uint32_t{1} << kept.page) - 1) << (part * kept.page);
      if (together > 1 && (some.front() & bits) == 0) continue;
      kept.beside_pages.push_back(static_cast<int32_t>(w / words) * together + part);
      for (size_t i = 0; i < words; ++i) {
        kept.beside_words.push_back(i < some.size() ? (some[i] & bits) >> (together > 1 ? part * kept.page : 0) : 0);
      }
    }
  }
  kept.beside_indptr.back() = static_cast<int32_t>(kept.beside_pages.size());
}

std::span<int32_t> BatchBuilder::Group::last_slots() {
  std::vector<int32_t>& all = heads_have_slots ? head_slots : slots;
  return std::span(all).last(slot_heads());
}

void BatchBuilder::Group::bound_beside(std::span<const uint32_t> mask) {
  const auto words = static_cast<size_t>(page_words(page));
  auto left = static_cast<size_t>(beside_indptr[beside_indptr.size() - 2]);
  for (size_t i = left; i < beside_pages.size(); ++i) {
    const std::span<uint32_t> own = std::span(beside_words).subspan(i * words, words);
    keep_bits(own, 0, mask, int64_t{beside_pages[i]} * page, page);
    if (!has_any_bit(own, 0, page)) continue;
    beside_pages[left] = beside_pages[i];
    std::copy(own.begin(), own.end(), beside_words.begin() + static_cast<ptrdiff_t>(left * words));
    ++left;
  }
  beside_pages.resize(left);
  beside_words.resize(left * words);
  beside_indptr.back() = static_cast<int32_t>(left);
}

void BatchBuilder::drop_unseen_pages(int group) {
  Group& kept = groups_[static_cast<size_t>(group)];
  const auto first_word = static_cast<size_t>(kept.mask_indptr[kept.mask_indptr.size() - 2]);
  const auto first_page = static_cast<size_t>(kept.page_indptr[kept.page_indptr.size() - 2]);
  const int pages = static_cast<int>(kept.page_indices.size() - first_page);
  const std::span<int32_t> own = kept.last_slots();
  const auto is_own = [&](int page) {
    return std::any_of(own.begin(), own.end(), [&](int slot) { return slot / kept.page == page; });
  };
  const int length = kept.lengths.back();
  const size_t words = kept.mask_words();
  const std::span<uint32_t> masks = std::span(kept.masks).subspan(first_word);
  seen_.assign(masks.begin(), masks.begin() + static_cast<ptrdiff_t>(words));
  for (size_t word = words; word < masks.size(); ++word) seen_[word % words] |= masks[word];
  kept.bound_beside(seen_);
  moved_.assign(static_cast<size_t>(pages), -1);
  int left = 0;  // pages that stay, so far
  int used = 0;  // slots in them
  for (int page = 0; page < pages; ++page) {
    const int end = std::min(length, (page + 1) * kept.page);
    if (!has_any_bit(seen_, page * kept.page, end) && !is_own(page)) continue;
    for (int slot = page * kept.page; left < page && slot < end; ++slot) {
      for (size_t head = 0; head < masks.size(); head += words) {
        const std::span<uint32_t> mask = masks.subspan(head, words);
        if (!has_bit(mask, slot)) continue;
        clear_bit(mask, slot);
        set_bit(mask, left * kept.page + slot % kept.page);
      }
    }
    kept.page_indices[first_page + static_cast<size_t>(left)] = kept.page_indices[first_page + static_cast<size_t>(page)];
    used = left * kept.page + end - page * kept.page;
    moved_[static_cast<size_t>(page)] = left;
    ++left;
  }
  kept.page_indices.resize(first_page + static_cast<size_t>(left));
  kept.page_indptr.back() = static_cast<int32_t>(kept.page_indices.size());
  kept.lengths.back() = used;
  for (auto i = static_cast<size_t>(kept.beside_indptr[kept.beside_indptr.size() - 2]); i < kept.beside_pages.size(); ++i) {
    kept.beside_pages[i] = moved_[static_cast<size_t>(kept.beside_pages[i])];
  }
  for (int32_t& slot : own) slot = moved_[static_cast<size_t>(slot / kept.page)] * kept.page + slot % kept.page;
  kept.slots.back() = own.front();
  bool sees_all = !kept.heads_have_slots && kept.slots.back() == used - 1;
  for (size_t head = 0; head < static_cast<size_t>(kept.mask_heads); ++head) {
    const std::span<uint32_t> mask = masks.subspan(head * kept.mask_words(), kept.mask_words());
    if (head > 0) std::copy_n(masks.begin() + static_cast<ptrdiff_t>(head * words), mask.size(), mask.begin());
    sees_all = sees_all && are_first_bits(mask, used);
  }
  kept.masks.resize(first_word + static_cast<size_t>(kept.mask_heads) * kept.mask_words());
  kept.mask_indptr.back() = static_cast<int32_t>(kept.masks.size());
  if (sees_all) drop_masks(group);
}

PassBatch BatchBuilder::batch() const {
  size_t used = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    spans_[g] = {};
    if (group.lengths.empty()) continue;
    used = g + 1;
    spans_[g] = {.lengths = group.lengths,
                 .page_indptr = group.page_indptr,
                 .page_indices = group.page_indices,
                 .slots = group.slots,
                 .head_slots = group.head_slots,
                 .mask_indptr = group.mask_indptr,
                 .masks = group.masks,
                 .mask_heads = group.mask_heads,
                 .row_stride = group.row_stride,
                 .beside = {group.beside_indptr, group.beside_pages, group.beside_words},
                 .held = group.held,
                 .last_readers = group.last_readers,
                 .chunk_ends = group.chunk_ends};
  }
  return {query_indptr_, positions_, decoding_, seeds_, states_, std::span(spans_).first(used), field_group_, prompt_rows_};
}

}  // namespace sluice
