// Where the rows of a pass go in each group of layers, and what of it they see.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "host/serving/scheduler.h"
#include "scripting/base/bits.h"
#include "scripting/base/error.h"

namespace sluice {

int Scheduler::mask_words() const {
  // Where pages are given back, a sequence may be longer than the pool.
  const int64_t held = has_lives(options_.views) ? longest() : int64_t{cache_.pages()} * cache_.page();
  const int64_t most = options_.most_positions > 0 ? std::min<int64_t>(options_.most_positions, held) : held;
  int64_t words = 0;
  for (const int group : groups_) {
    const auto words_of = [&](int64_t rows, int64_t slots) { return rows * mask_heads(group) * ((slots + 31) / 32); };
    const int64_t rows = options_.max_pass_tokens;
    // A row of a window has a bit for each of its slots, and sees at least those before the rows of its pass.
    const int window = seen_window(group);
    int64_t of_group = window > 0 ? words_of(rows, window + rows + cache_.page()) : 0;
    if (slots(group) != nullptr) {
      of_group = words_of(rows, slots(group)->used(slots(group)->length()) + rows + 2 * cache_.page());
    } else if (pattern(group, true) != nullptr) {
      of_group += words_of(pattern(group, false) != nullptr ? rows : options_.max_batch, most);
    }
    if (beside(group) != nullptr)
      of_group +=
          int64_t{options_.max_batch} * pages_for(static_cast<int>(most), cache_.page()) * (1 + page_words(cache_.page()));
    words = std::max(words, of_group);
  }
  constexpr int64_t kMost = int64_t{1} << 28;  // a gigabyte
  if (words > kMost) {
    throw InputError(
        fmt::format("masks of {} rows of a pass over {} tokens take {} GB", options_.max_pass_tokens, most, words >> 28),
        "take smaller chunks of prompts, or a smaller pool");
  }
  return static_cast<int>(words);
}

const GroupView* Scheduler::view(int group) const {
  const auto index = static_cast<size_t>(group);
  return index < options_.views.size() ? &options_.views[index] : nullptr;
}

int Scheduler::seen_window(int group) const {
  const GroupView* const own = view(group);
  return own != nullptr ? own->window : cache_.window(group);
}

const HeadSlots* Scheduler::slots(int group) const {
  const GroupView* const own = view(group);
  return own != nullptr ? own->slots.get() : nullptr;
}

const Pattern* Scheduler::pattern(int group, bool decoding) const {
  const GroupView* const own = view(group);
  return own != nullptr && own->pattern && (decoding || !own->dense_prefill) ? &*own->pattern : nullptr;
}

bool Scheduler::forgets(int group) const { return cache_.window(group) > 0 || cache_.lives(group) != nullptr; }

int Scheduler::mask_heads(int group) const {
  const GroupView* const own = view(group);
  return own == nullptr || own->heads.empty() ? 1 : static_cast<int>(own->heads.size());
}

int Scheduler::row_stride(int group) const {
  int stride = 0;
  if (pattern(group, false) == nullptr) return stride;
  for (int head = 0; head < mask_heads(group); ++head) stride = std::gcd(stride, pattern_of(group, head).query_stride());
  return stride;
}

const Pattern& Scheduler::pattern_of(int group, int mask_head) const {
  const GroupView& own = *view(group);
  return own.heads.empty() ? *own.pattern : own.heads[static_cast<size_t>(mask_head)];
}

const TokenBudget* Scheduler::budget(int group) const {
  const GroupView* const own = view(group);
  return own != nullptr ? own->budget.get() : nullptr;
}

int Scheduler::chunk_end(const Sequence& sequence, int row) const {
  int end = INT32_MAX;
  for (const GroupView& view : options_.views) {
    if (view.budget != nullptr) end = std::min(end, view.budget->chunk_end(row, sequence.prompt - 1));
  }
  return end;
}

const Pattern* Scheduler::beside(int group) const {
  const GroupView* const own = view(group);
  if (own != nullptr && own->beside) return &*own->beside;
  return options_.beside && group != options_.field_group ? &*options_.beside : nullptr;
}

int Scheduler::state_pages(int group, int tokens, int prompt) const {
  const TokenBudget* const own = budget(group);
  return pages_for(own == nullptr ? tokens : own->most_slots(tokens, prompt - 1), cache_.page());
}

int Scheduler::pages_of(int group, int tokens, int prompt) const {
  if (const TokenBudget* const own = budget(group)) return pages_for(own->most_slots(tokens, prompt - 1), cache_.page());
  const HeadSlots* const map = slots(group);
  return pages_for(map == nullptr ? tokens : map->used(tokens), cache_.page());
}

int Scheduler::pages_of_rows(int group, const Sequence& sequence, int end) const {
  if (const TokenBudget* const own = budget(group)) return pages_for(own->slots(end, sequence.prompt - 1), cache_.page());
  return pages_of(group, end, sequence.prompt);
}

int Scheduler::spare_rows(const HeadSlots& slots, int first, int end) const {
  // Slots of the rows of a pass ascend, and what a slot had before may be needed by any of them.
  int token = first;
  while (token < end && slots.free_from(token) <= first && (token == first || slots.follows(token))) ++token;
  return end - token;
}

int Scheduler::spare_pages(int group, int first, int end) const {
  const HeadSlots* const map = slots(group);
  return map == nullptr ? 0 : pages_for(spare_rows(*map, first, end), cache_.page());
}

std::vector<int32_t> Scheduler::slots_of_tokens(int group, int tokens) const {
  const HeadSlots* const all = slots(group);
  const PageLives* const lives = cache_.lives(group);
  if (all == nullptr && lives == nullptr) return {};
  const int heads = all == nullptr ? 1 : all->heads();
  std::vector<int32_t> places(static_cast<size_t>(tokens) * static_cast<size_t>(heads), -1);
  for (int i = 0; i < tokens * heads; ++i) {
    const int token = i / heads;
    const SlotMap* const map = all == nullptr ? nullptr : &all->of(i % heads);
    const bool is_read = map != nullptr ? map->last_reader(token) >= tokens : lives->is_needed(token / cache_.page(), tokens);
    if (is_read) places[static_cast<size_t>(i)] = map != nullptr ? map->slot(token) : token;
  }
  return places;
}

void Scheduler::given(Sequence& sequence, int tokens) {
  sequence.computed = tokens;
  for (const int group : groups_) {
    if (slots(group) == nullptr) continue;
    const std::vector<int32_t> places = slots_of_tokens(group, tokens);
    std::vector<int32_t>& held = sequence.kept[static_cast<size_t>(group)].held;
    const auto heads = static_cast<size_t>(slots(group)->heads());
    for (size_t i = 0; i < places.size(); ++i) {
      const size_t first = i % heads * (held.size() / heads);
      if (places[i] >= 0) held[first + static_cast<size_t>(places[i])] = static_cast<int32_t>(i / heads);
    }
  }
  publish(sequence);
}

void Scheduler::place_rows(Sequence& sequence, int group, int first, int rows, bool decoding) {
  KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
  if (const HeadSlots* const map = slots(group); map != nullptr) return place_in_slots(kept, group, *map, first, rows);
  if (const TokenBudget* const own = budget(group); own != nullptr) {
    const int prompt = sequence.prompt - 1;
    return pass_.batch.keep_staying(group, kept.pages, own->held(first, prompt), own->staying(first, prompt),
                                    own->chunk_end(first, prompt));
  }
  if (pattern(group, decoding) != nullptr) {
    const int begin = kept.first * cache_.page();  // of what is kept
    row_slots_.resize(static_cast<size_t>(rows));
    std::iota(row_slots_.begin(), row_slots_.end(), first - begin);
    const int length = first + rows - begin;
    listed_.assign(kept.pages.begin(), kept.pages.end());
    std::replace(listed_.begin(), listed_.end(), PageCache::kMissing, listed_.back());  // which nobody sees there
    const std::span<uint32_t> masks = pass_.batch.keep_slots(group, listed_, length, row_slots_);
    const auto words = static_cast<size_t>((length + 31) / 32);
    const int heads = mask_heads(group);
    for (int r = 0; r < rows * heads; ++r) {
      pattern_of(group, r % heads)
          .row(first + r / heads, begin, begin + length, masks.subspan(static_cast<size_t>(r) * words, words));
    }
    if (beside(group) != nullptr && decoding) pass_.batch.see_beside(group, *beside(group));
    // What a prompt's rows give its tokens is summed by position.
    if (rows == 1 && (decoding || options_.own_rows == 0)) pass_.batch.drop_unseen_pages(group);
    return;
  }
  const int window = seen_window(group);
  if (window == 0) {
    pass_.batch.keep(group, kept.pages);
    if (beside(group) != nullptr && decoding) pass_.batch.see_beside(group, *beside(group));
    return;
  }
  // A group may keep more than its rows see.
  const int unseen = std::max(0, (first - window + 1) / cache_.page() - kept.first);
  pass_.batch.keep_window(group, std::span<const int32_t>(kept.pages).subspan(static_cast<size_t>(unseen)),
                          (kept.first + unseen) * cache_.page(), window);
}

void Scheduler::find_stretches(const KeptPages& kept, const HeadSlots& slots, int head, int length, int spare, int end) {
  const size_t of_head = kept.held.size() / static_cast<size_t>(slots.heads());
  in_slots_.assign(static_cast<size_t>(length), -1);
  std::copy_n(kept.held.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(head) * of_head),
              std::min(in_slots_.size(), of_head), in_slots_.begin());
  std::iota(in_slots_.end() - spare, in_slots_.end(), end - spare);
  stretches_.clear();
  for (int slot = 0; slot < length; ++slot) {
    const int token = in_slots_[static_cast<size_t>(slot)];
    if (token < 0) continue;
    if (!stretches_.empty() && stretches_.back().follows(slot, token)) {
      ++stretches_.back().count;
    } else {
      stretches_.push_back({slot, token, 1});
    }
  }
}

void Scheduler::mask_slots(const Pattern& pattern, int position, std::span<uint32_t> mask) {
  constexpr size_t kFew = 16;
  if (stretches_.size() <= kFew) {
    for (const SlotStretch& stretch : stretches_) {
      seen_.resize(static_cast<size_t>(stretch.count + 31) / 32);
      pattern.row(position, stretch.token, stretch.token + stretch.count, seen_);
      add_bits(mask, stretch.slot, seen_, stretch.count);
    }
    return;
  }
  seen_.resize(static_cast<size_t>(position) / 32 + 1);
  pattern.row(position, position + 1, seen_);
  for (const SlotStretch& stretch : stretches_) {
    for (int i = 0; i < stretch.count && stretch.token + i <= position; ++i) {
      if (has_bit(seen_, stretch.token + i)) set_bit(mask, stretch.slot + i);
    }
  }
}

void Scheduler::place_in_slots(KeptPages& kept, int group, const HeadSlots& slots, int first, int rows) {
  const int page = cache_.page();
  const int end = first + rows;
  const int spare = spare_rows(slots, first, end);
  const int spare_slot = (static_cast<int>(kept.pages.size()) - kept.spare) * page;  // the first
  const int heads = slots.heads();
  const size_t of_head = kept.held.size() / static_cast<size_t>(heads);
  row_slots_.clear();
  for (int token = first; token < end - spare; ++token) {
    for (int head = 0; head < heads; ++head) {
      const int slot = slots.of(head).slot(token);
      row_slots_.push_back(slot);
      kept.held[static_cast<size_t>(head) * of_head + static_cast<size_t>(slot)] = token;
    }
  }
  for (int i = 0; i < spare; ++i) row_slots_.insert(row_slots_.end(), static_cast<size_t>(heads), spare_slot + i);
  const int length = spare > 0 ? spare_slot + spare : slots.used(end);

  const std::span<uint32_t> masks = pass_.batch.keep_slots(group, kept.pages, length, row_slots_);
  const auto words = static_cast<size_t>((length + 31) / 32);
  const int different = mask_heads(group);
  bool sees_all = heads == 1;
  for (int head = 0; head < different; ++head) {
    // Where heads have the same slots, these have the same tokens.
    if (head < heads) find_stretches(kept, slots, head, length, spare, end);
    for (int r = 0; r < rows; ++r) {
      const auto place = static_cast<size_t>(r) * static_cast<size_t>(different) + static_cast<size_t>(head);
      const std::span<uint32_t> mask = masks.subspan(place * words, words);
      mask_slots(pattern_of(group, head), first + r, mask);
      sees_all = sees_all && are_first_bits(mask, row_slots_[static_cast<size_t>(r)] + 1);
    }
  }
  sees_all = sees_all && row_slots_.back() == length - 1;
  if (sees_all) {
    pass_.batch.drop_masks(group);
  } else if (rows == 1) {
    pass_.batch.drop_unseen_pages(group);
  }
  if (spare > 0) move_spare_rows(kept, group, slots, end - spare, end);
}

void Scheduler::move_spare_rows(KeptPages& kept, int group, const HeadSlots& slots, int first, int end) {
  const int page = cache_.page();
  const int spare_slot = (static_cast<int>(kept.pages.size()) - kept.spare) * page;
  const size_t of_head = kept.held.size() / static_cast<size_t>(slots.heads());
  for (int token = first; token < end; ++token) {
    for (int head = 0; head < slots.heads(); ++head) {
      const SlotMap& map = slots.of(head);
      if (map.last_reader(token) < end) continue;
      const int from = spare_slot + token - first;
      const int to = map.slot(token);
      pass_.moves[static_cast<size_t>(group)].push_back({.from_page = kept.pages[static_cast<size_t>(from / page)],
                                                         .from_token = from % page,
                                                         .to_page = kept.pages[static_cast<size_t>(to / page)],
                                                         .to_token = to % page,
                                                         .head = head,
                                                         .heads = slots.heads()});
      kept.held[static_cast<size_t>(head) * of_head + static_cast<size_t>(to)] = token;
    }
  }
}

}  // namespace sluice
