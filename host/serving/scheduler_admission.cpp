// Admission: who of those who wait is next, who gives way, and the pages that a newcomer begins with.

#include <algorithm>

#include "host/serving/scheduler.h"

namespace sluice {
namespace {

bool before(const Sequence* a, const Sequence* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

}  // namespace

void Scheduler::insert_by_rank(std::vector<Sequence*>& list, Sequence& sequence) {
  list.insert(std::upper_bound(list.begin(), list.end(), &sequence, before), &sequence);
}

bool Scheduler::erase(std::vector<Sequence*>& list, const Sequence& sequence) {
  const auto found = std::find(list.begin(), list.end(), &sequence);
  if (found == list.end()) return false;
  list.erase(found);
  return true;
}

std::span<Sequence* const> Scheduler::admit() {
  admitted_.clear();
  if (waiting_.empty()) cache_.drop_claim(sharer_);
  while (!waiting_.empty()) {
    Sequence& sequence = **next_waiting();
    if (!make_room(sequence)) {
      if (running_.empty()) cache_.claim(sharer_, missing_ahead(sequence, true));
      break;
    }
    cache_.drop_claim(sharer_);
    erase(waiting_, sequence);
    insert_by_rank(running_, sequence);
    admitted_.push_back(&sequence);
  }
  if (!admitted_.empty()) {
    // Shared pages are listed once per sequence, so a pass may list more pages than the pool has.
    int listed = 0;
    for (const Sequence* sequence : running_) listed += pages_for(sequence->most_tokens, cache_.page());
    if (has_slots()) listed += options_.max_batch + pages_for(options_.max_pass_tokens, cache_.page());  // spare ones
    pass_.batch.reserve(options_.max_batch, options_.max_pass_tokens, listed);
    listed_.reserve(static_cast<size_t>(listed));
    promise_first();
  }
  return admitted_;
}

int Scheduler::running_of(uint64_t caller) const {
  return static_cast<int>(
      std::count_if(running_.begin(), running_.end(), [&](const Sequence* each) { return each->caller == caller; }));
}

std::vector<Sequence*>::iterator Scheduler::next_waiting() {
  const int priority = waiting_.front()->priority;
  auto next = waiting_.begin();
  int fewest = running_of((*next)->caller);
  for (auto each = next + 1; each != waiting_.end() && (*each)->priority == priority && fewest > 0; ++each) {
    if ((*each)->caller == (*next)->caller) continue;
    const int running = running_of((*each)->caller);
    if (running < fewest) next = each, fewest = running;
  }
  return next;
}

Sequence* Scheduler::one_to_give_way(const Sequence& newcomer) const {
  if (running_.empty()) return nullptr;
  if (running_.back()->priority < newcomer.priority) return running_.back();
  int most = running_of(newcomer.caller) + 1;
  Sequence* last = nullptr;
  for (Sequence* each : running_) {
    if (each->priority != newcomer.priority || each->caller == newcomer.caller) continue;
    // Whoever was admitted a moment ago had the fewest, and gives way to nobody.
    if (std::find(admitted_.begin(), admitted_.end(), each) != admitted_.end()) continue;
    const int running = running_of(each->caller);
    if (running <= most && (last == nullptr || each->caller != last->caller)) continue;
    most = running;
    last = each;
  }
  return last;
}

bool Scheduler::make_room(Sequence& sequence) {
  if (!find_room(sequence)) return false;
  for (Sequence* each : giving_way_) preempt(*each);
  take_pages(sequence);
  return true;
}

bool Scheduler::find_room(Sequence& newcomer) {
  giving_way_.clear();
  if (unfinished() >= options_.max_batch && one_to_give_way(newcomer) == nullptr) return false;
  match_prefix(newcomer);
  freed_.pages = {};
  std::fill(freed_.of_slabs.begin(), freed_.of_slabs.end(), 0);
  while (!fits(newcomer)) {
    Sequence* const last = one_to_give_way(newcomer);
    if (last == nullptr) {
      give_up_room(newcomer);
      return false;
    }
    add_freed(*last);
    erase(running_, *last);
    giving_way_.push_back(last);
  }
  return true;
}

void Scheduler::give_up_room(Sequence& newcomer) {
  for (Sequence* each : giving_way_) insert_by_rank(running_, *each);
  giving_way_.clear();
  release_pages(newcomer);
}

bool Scheduler::fits(const Sequence& newcomer) const {
  if (unfinished() >= options_.max_batch) return false;
  // Where pages of its known prefix are in the way, `take_pages` gives them up.
  if (running() == 0 && is_alone(newcomer) && cache_.claimed_before(sharer_) == PageCounts{}) return true;
  // Growth for everyone who runs, or the newcomer would be thrown out again at once.
  PageCounts wanted = running() == 0 ? missing_ahead(newcomer, !newcomer.own_pages) : missing_pages(newcomer);
  for (const Sequence* each : running_) {
    for (const int group : groups_) wanted[static_cast<size_t>(group)] += growth(*each, group);
  }
  return cache_.has_room(wanted + left_for_others(running() == 0) + cache_.claimed_before(sharer_), freed_);
}

bool Scheduler::is_alone(const Sequence& sequence) const {
  if (!cache_.is_shared()) return true;
  int64_t own = 0;
  for (const int group : groups_) own += sequence.kept[static_cast<size_t>(group)].count();
  return cache_.uses() == own;
}

PageCounts Scheduler::missing_ahead(const Sequence& sequence, bool keeps) const {
  constexpr int kFewPages = 4;
  constexpr int kPart = 16;  // of the pool: who asks for as many tokens as there may be rarely gets them
  const int ahead =
      pages_for(static_cast<int>(sequence.tokens.size()), cache_.page()) + std::max(kFewPages, cache_.pages() / kPart);
  const int all = std::min(pages_for(sequence.most_tokens, cache_.page()), sequence.preemptions == 0 ? ahead : cache_.pages());
  PageCounts missing{};
  for (const int group : groups_) {
    const int has = sequence.kept[static_cast<size_t>(group)].count();
    const int most = std::min(all, most_pages(group, sequence.most_tokens, sequence.prompt));
    missing[static_cast<size_t>(group)] = std::max(0, most - (keeps ? has : 0));
  }
  return missing;
}

bool Scheduler::waits_for_others() const {
  return !waiting_.empty() && (cache_.uses() > 0 || cache_.claimed_before(sharer_) != PageCounts{});
}

PageCounts Scheduler::left_for_others(bool is_first) const {
  return cache_.is_shared() ? cache_.promised(is_first ? sharer_ : -1) : PageCounts{};
}

void Scheduler::promise_first() {
  cache_.promise(sharer_, {});
  if (!cache_.is_shared() || running_.empty()) return;
  const Sequence& first = *running_.front();
  for (const PageCounts& missing : {missing_ahead(first, true), missing_for_rows(first, first.computed + 1)}) {
    if (!cache_.has_room(missing + left_for_others(true))) continue;
    cache_.promise(sharer_, missing);
    return;
  }
}

int Scheduler::growth(const Sequence& sequence, int group) const {
  const KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
  if (slots(group) != nullptr || budget(group) != nullptr)
    return std::clamp(pages_of(group, sequence.most_tokens, sequence.prompt) - kept.end(), 0, 1);
  if (!forgets(group)) return 1;
  const auto tokens = static_cast<int>(sequence.tokens.size());
  const int left = pages_for(tokens, cache_.page()) - kept.first;
  return std::max(1, std::min(left, most_pages(group, tokens, sequence.prompt)) - kept.count());
}

PageCounts Scheduler::missing_pages(const Sequence& newcomer) const {
  PageCounts missing{};
  for (const int group : groups_) {
    const KeptPages& kept = newcomer.kept[static_cast<size_t>(group)];
    const auto tokens = static_cast<int>(newcomer.tokens.size());
    const int wanted =
        std::min(pages_of(group, tokens, newcomer.prompt) - kept.first, most_pages(group, tokens, newcomer.prompt));
    missing[static_cast<size_t>(group)] = std::max(0, wanted - (newcomer.own_pages ? 0 : kept.count()));
  }
  return missing;
}

void Scheduler::add_freed(const Sequence& sequence) {
  for (const int group : groups_) {
    const KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
    for (size_t i = 0; i < kept.pages.size(); ++i) {
      const int32_t page = kept.pages[i];
      if (page == PageCache::kMissing) continue;
      int users = cache_.users(group, page);
      if (users > 1) {
        // Who shares a page has it at the same place among all of its pages.
        users -= static_cast<int>(std::count_if(giving_way_.begin(), giving_way_.end(), [&](const Sequence* each) {
          const KeptPages& theirs = each->kept[static_cast<size_t>(group)];
          const int place = kept.first + static_cast<int>(i) - theirs.first;
          return place >= 0 && place < static_cast<int>(theirs.pages.size()) && theirs.pages[static_cast<size_t>(place)] == page;
        }));
      }
      if (users == 1) cache_.add_freed(group, page, freed_);
    }
  }
}

void Scheduler::match_prefix(Sequence& sequence) {
  if (sequence.prompt_logits) return;
  const std::span<const int32_t> tokens(sequence.tokens);
  std::array<std::vector<int32_t>*, kMostGroups> lists{};
  for (const int group : groups_) lists[static_cast<size_t>(group)] = &sequence.kept[static_cast<size_t>(group)].pages;
  const int found =
      cache_.match(tokens.first(static_cast<size_t>(spared(sequence))), std::span(lists).first(sequence.kept.size()));
  for (const int group : groups_) {
    sequence.kept[static_cast<size_t>(group)].first = cache_.first_page(group, found * cache_.page());
  }
  if (found < sequence.given_tokens / cache_.page()) return release_pages(sequence);
  const PageLives* const lives = cache_.lives(0);  // other groups found what they need
  if (lives == nullptr) return;
  std::vector<int32_t>& pages = sequence.kept.front().pages;
  for (int place = found - 1; place >= 0; --place) {
    if (place == parent_place(sequence, found) || lives->is_needed(place, found * cache_.page())) continue;
    cache_.release(0, pages[static_cast<size_t>(place)]);
    pages[static_cast<size_t>(place)] = PageCache::kMissing;
  }
}

void Scheduler::take_pages(Sequence& sequence) {
  // Who shares the cache and is the first in rank finds room for all that it will ever hold.
  const bool is_first = cache_.is_shared() && running_.empty();
  const auto wanted = [&] {
    return (is_first ? missing_ahead(sequence, !sequence.own_pages) : missing_pages(sequence)) + left_for_others(is_first);
  };
  // Where there is no room it is alone: its pages are packed anew, without the known ones, and it copies nothing.
  if (!cache_.make_room(wanted())) {
    release_pages(sequence);
    cache_.make_room(wanted());
  }
  const auto found = static_cast<int>(sequence.pages().size());
  sequence.computed = found * cache_.page();
  sequence.published = sequence.own_pages ? 0 : found;
  if (sequence.preemptions == 0) sequence.matched = sequence.computed;
  const PageCounts missing = missing_pages(sequence);
  for (const int group : groups_) {
    KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
    if (group == options_.field_group) {
      take_fields(sequence, static_cast<int>(kept.pages.size()));
      continue;
    }
    if (sequence.own_pages) kept.copied.swap(kept.pages);
    if (!forgets(group)) {
      for (int i = 0; i < missing[static_cast<size_t>(group)]; ++i) kept.pages.push_back(cache_.take(group, packs(sequence)));
      continue;
    }
    // Groups that forget take their pages as rows are computed, but for those that are filled from elsewhere.
    const PageLives* const lives = cache_.lives(group);
    for (const int32_t copied : kept.copied) {
      kept.pages.push_back(copied == PageCache::kMissing ? copied : cache_.take(group, packs(sequence)));
    }
    const int given = lives != nullptr && found == 0 ? sequence.given_tokens : 0;
    for (int place = 0; place < pages_for(given, cache_.page()); ++place) {
      kept.pages.push_back(lives->is_needed(place, given) ? cache_.take(group, packs(sequence)) : PageCache::kMissing);
    }
  }
}

void Scheduler::take_fields(Sequence& sequence, int known) {
  KeptPages& kept = sequence.kept[static_cast<size_t>(options_.field_group)];
  if (sequence.own_pages) {  // all are computed anew, from the K and V that are copied
    cache_.release(options_.field_group, kept.pages);
    std::fill(kept.pages.begin(), kept.pages.end(), PageCache::kMissing);
  }
  for (int place = 0; place < known; ++place) {
    int32_t& page = kept.pages[static_cast<size_t>(place)];
    if (page != PageCache::kMissing) continue;
    page = cache_.take(options_.field_group);
    kept.stale.push_back(place);
  }
  const int all = pages_for(static_cast<int>(sequence.tokens.size()), cache_.page());
  while (kept.end() < all) kept.pages.push_back(cache_.take(options_.field_group));
}

}  // namespace sluice
