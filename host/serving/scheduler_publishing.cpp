// What others may find of a sequence's pages, and from when on.

#include <algorithm>

#include "host/serving/scheduler.h"

namespace sluice {

void Scheduler::learn(Sequence& sequence, int32_t token) {
  sequence.tokens[sequence.tokens.size() - static_cast<size_t>(sequence.unknown--)] = token;
  publish(sequence);
}

void Scheduler::publish(Sequence& sequence) {
  // Pages of slots are nobody else's, and lie in no order of tokens.
  if (sequence.own_pages || has_slots()) return;
  const int page = cache_.page();
  const int computed = offered_tokens(sequence);
  const int limit = std::min(computed, sequence.exact);
  while ((sequence.published + 1) * page <= limit) {
    const auto index = static_cast<size_t>(sequence.published);
    std::vector<int32_t>& pages = sequence.kept.front().pages;
    if (pages[index] == PageCache::kMissing) return;  // dropped before its tokens were known
    const int32_t parent = index == 0 ? PrefixIndex::kRoot : pages[index - 1];
    const std::span<const int32_t> tokens(sequence.tokens);
    pages[index] =
        cache_.publish(parent, tokens.subspan(index * static_cast<size_t>(page), static_cast<size_t>(page)), pages[index]);
    for (const int group : groups_) {
      if (group == 0) continue;
      KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
      const int place = sequence.published - kept.first;
      if (place < 0 || place >= static_cast<int>(kept.pages.size())) continue;  // dropped before its tokens were known
      int32_t& beside = kept.pages[static_cast<size_t>(place)];
      if (beside == PageCache::kMissing) continue;
      beside = cache_.publish_beside(pages[index], group, beside);
    }
    ++sequence.published;
    // The page before was kept for this one to follow it.
    if (index > 0 && !needs(sequence, 0, static_cast<int>(index) - 1)) drop_page(sequence, 0, static_cast<int>(index) - 1);
  }
  if (!sequence.is_known_apart) return;
  sequence.apart = std::max(sequence.apart, sequence.published);
  for (; (sequence.apart + 1) * page <= computed; ++sequence.apart) {
    cache_.publish_apart(sequence.pages()[static_cast<size_t>(sequence.apart)]);
  }
}

int Scheduler::known_tokens(const Sequence& sequence) {
  return std::min(sequence.computed, static_cast<int>(sequence.tokens.size()) - sequence.unknown);
}

int Scheduler::offered_tokens(const Sequence& sequence) const {
  const int known = known_tokens(sequence);
  return options_.decode_differs ? std::min(known, sequence.prompt - 1) : known;
}

void Scheduler::publish_rest(Sequence& sequence, int tokens) {
  if (sequence.own_pages || has_slots()) return;
  const int end = std::min(pages_for(tokens, cache_.page()), static_cast<int>(sequence.pages().size()));
  for (int place = sequence.published; place < end; ++place) {
    const int32_t page = sequence.pages()[static_cast<size_t>(place)];
    if (page != PageCache::kMissing) cache_.publish_apart(page);
  }
}

}  // namespace sluice
