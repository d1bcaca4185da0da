#include "host/serving/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "scripting/base/error.h"

namespace sluice {
namespace {

/// Those with K and V, and that with the fields of the flow. Others are of other schedulers' flows.
std::vector<int> groups_of(const PageCache& cache, int field_group) {
  std::vector<int> groups;
  for (int group = 0; group < cache.groups(); ++group) {
    if (group == field_group || (cache.has_group(group) && !cache.has_fields(group))) groups.push_back(group);
  }
  return groups;
}

/// Rows of a sequence that read whatever is there.
int dense_rows(const Sequence& sequence, const GroupView& view) { return view.dense_prefill ? sequence.prompt - 1 : 0; }

/// Tokens of a page, by group of the cache.
std::vector<int> page_sizes(const PageCache& cache, const std::vector<int>& groups) {
  std::vector<int> sizes(static_cast<size_t>(groups.back()) + 1, cache.page());
  return sizes;
}

}  // namespace

Scheduler::Scheduler(PageCache& cache, const SchedulerOptions& options)
    : cache_(cache),
      options_(options),
      groups_(groups_of(cache, options.field_group)),
      sharer_(cache.add_sharer()),
      freed_(cache.no_pages()),
      pass_(page_sizes(cache, groups_)) {
  if (options.max_batch < 1 || options.max_pass_tokens < options.max_batch || options.max_logit_rows < options.max_batch) {
    throw InternalError("a pass must have room for one row of every running sequence");
  }
  const auto batch = static_cast<size_t>(options.max_batch);
  running_.reserve(2 * batch);  // those whose last token is awaited are beside the others
  admitted_.reserve(batch);
  giving_way_.reserve(2 * batch);
  wishes_.reserve(2 * batch);
  pass_.entries.reserve(batch);
  pass_.tokens.reserve(static_cast<size_t>(options.max_pass_tokens));
  pass_.logit_rows.reserve(static_cast<size_t>(options.max_logit_rows));
  pass_.batch.reserve(options.max_batch, options.max_pass_tokens, 0);
  pass_.batch.reserve_masks(mask_words());
  for (const int group : groups_) {
    pass_.batch.set_mask_heads(group, mask_heads(group));
    pass_.batch.set_row_stride(group, row_stride(group));
    if (budget(group) != nullptr) pass_.batch.set_last_readers(group, budget(group)->last_readers());
    if (slots(group) != nullptr && slots(group)->heads() > 1) pass_.batch.set_head_slots(group);
  }
  pass_.batch.set_field_group(options.field_group);
}

Scheduler::~Scheduler() { cache_.remove_sharer(sharer_); }

int Scheduler::window_pages(int group) const {
  // Its first and its last page may be partly of it; chunks grow by what there is room for.
  return pages_for(cache_.window(group), cache_.page()) + 1;
}

int Scheduler::most_pages(int group, int tokens, int prompt) const {
  const int all = pages_of(group, tokens, prompt);
  if (cache_.window(group) > 0) return std::min(all, window_pages(group));
  const PageLives* const lives = cache_.lives(group);
  return lives == nullptr ? all : std::min(all, lives->most(tokens) + 1);  // and the one that the next is published after
}

int64_t Scheduler::longest() const {
  int64_t held = 0;
  for (int64_t step = int64_t{1} << 30; step > 0; step /= 2) {
    if (held + step <= INT32_MAX && could_hold(static_cast<int>(held + step))) held += step;
  }
  return held;
}

bool Scheduler::could_hold(int tokens) const {
  PageCounts wanted{};
  for (const int group : groups_) wanted[static_cast<size_t>(group)] = most_pages(group, tokens, tokens);
  return cache_.holds(wanted);
}

int64_t Scheduler::most_kept(int tokens) const {
  int pages = 0;
  for (const int group : groups_) pages = std::max(pages, most_pages(group, tokens, tokens));
  return int64_t{pages} * cache_.page();
}

void Scheduler::add(Sequence& sequence) {
  const int pages = pages_for(sequence.most_tokens, cache_.page());
  if (!could_hold(sequence.most_tokens)) {
    throw InternalError(fmt::format("a sequence of {} pages in a pool of {}", pages, cache_.pages()));
  }
  sequence.tokens.reserve(static_cast<size_t>(sequence.most_tokens) + 1);
  sequence.kept.resize(static_cast<size_t>(groups_.back()) + 1);
  for (const int group : groups_) {
    const int of_pass = pages_for(options_.max_pass_tokens, cache_.page()) + 1;
    int most = cache_.window(group) == 0 ? pages : std::min(pages, window_pages(group) + of_pass);
    if (slots(group) != nullptr || budget(group) != nullptr)
      most = pages_of(group, sequence.most_tokens, sequence.prompt) + of_pass;
    KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
    kept.pages.reserve(static_cast<size_t>(most));
    if (slots(group) != nullptr) {
      kept.held.assign(static_cast<size_t>(slots(group)->heads()) * static_cast<size_t>(slots(group)->used(sequence.most_tokens)),
                       -1);
    }
    if (sequence.own_pages) kept.copied.reserve(static_cast<size_t>(most));
    if (group == options_.field_group) kept.stale.reserve(static_cast<size_t>(pages));
  }
  insert_by_rank(waiting_, sequence);
}

void Scheduler::remove(Sequence& sequence) {
  for (ScheduledPass::Entry& entry : pass_.entries) {
    if (entry.sequence == &sequence) entry.sequence = nullptr;
  }
  if (!erase(running_, sequence)) erase(waiting_, sequence);
  release_pages(sequence);
  promise_first();
  if (waiting_.empty()) cache_.drop_claim(sharer_);
}

bool Scheduler::decodes(const Sequence& sequence) const {
  const int prefill = options_.decode_differs ? sequence.prompt - 1 : static_cast<int>(sequence.tokens.size()) - 1;
  return sequence.computed >= prefill;
}

int Scheduler::shareable(const Sequence& sequence) const {
  // The last token always runs, for its logits; under a flow every token from the prompt's last on is a decode step.
  return options_.decode_differs ? sequence.prompt - 1 : static_cast<int>(sequence.tokens.size()) - 1;
}

int Scheduler::spared(const Sequence& sequence) const {
  return options_.own_rows == 0 ? shareable(sequence) : std::max(0, sequence.prompt - 1 - options_.own_rows);
}

void Scheduler::release_pages(Sequence& sequence) {
  for (int group = 0; group < static_cast<int>(sequence.kept.size()); ++group) {
    KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
    cache_.release(group, kept.pages);
    cache_.release(group, kept.copied);
    kept.pages.clear();
    kept.copied.clear();
    kept.stale.clear();
    kept.first = 0;
    std::fill(kept.held.begin(), kept.held.end(), -1);
    kept.spare = 0;
  }
}

void Scheduler::filled(Sequence& sequence) {
  for (const int group : groups_) {
    KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
    cache_.release(group, kept.copied);
    kept.copied.clear();
    for (const int32_t place : kept.stale) {
      if (sequence.own_pages) break;
      int32_t& page = kept.pages[static_cast<size_t>(place)];
      page = cache_.publish_beside(sequence.pages()[static_cast<size_t>(place)], group, page);
    }
    kept.stale.clear();
  }
}

void Scheduler::preempt(Sequence& sequence) {
  erase(running_, sequence);
  release_pages(sequence);
  sequence.computed = 0;
  sequence.published = 0;
  sequence.filling = false;
  sequence.exact = INT32_MAX;
  sequence.is_known_apart = false;
  sequence.apart = 0;
  ++sequence.preemptions;
  ++preemptions_;
  insert_by_rank(waiting_, sequence);
}

PageCounts Scheduler::missing_for_rows(const Sequence& sequence, int end) const {
  PageCounts missing{};
  for (const int group : groups_) {
    const auto index = static_cast<size_t>(group);
    missing[index] = std::max(0, pages_of_rows(group, sequence, end) - sequence.kept[index].end()) +
                     spare_pages(group, sequence.computed, end);
  }
  return missing;
}

PageCounts Scheduler::missing_for_next_rows() const {
  PageCounts missing{};
  for (const Sequence* sequence : running_) {
    if (is_computed(*sequence)) continue;
    const PageCounts more = missing_for_rows(*sequence, sequence->computed + 1);
    for (size_t group = 0; group < missing.size(); ++group) missing[group] += more[group];
  }
  return missing;
}

void Scheduler::grow() {
  promise_first();
  // For everyone at once where that can be: pages that are taken one by one may lie in more slabs than need be.
  cache_.make_room(missing_for_next_rows());
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (is_computed(sequence)) continue;
    const PageCounts missing = missing_for_rows(sequence, sequence.computed + 1);
    if (missing == PageCounts{}) continue;
    const auto has_room = [&] { return cache_.has_room(missing + left_for_others(i == 0)); };
    while (!has_room() && running_.back() != &sequence) preempt(*running_.back());
    if (cache_.make_room(missing + left_for_others(i == 0))) {
      take_for_rows(sequence, sequence.computed + 1);
    } else {
      preempt(sequence);  // the last in rank: everyone before it has its page
    }
    if (i == 0) promise_first();
  }
}

int Scheduler::rows_with_room(const Sequence& sequence, int rows) const {
  const bool forgets_any = has_slots() || std::any_of(groups_.begin(), groups_.end(), [&](int group) { return forgets(group); });
  if (!forgets_any) return rows;  // it has the pages of all of its tokens
  if (packs(sequence)) {
    rows = std::min(rows, cache_.page() - sequence.computed % cache_.page());
  }
  const PageCounts left = left_for_others(&sequence == running_.front());
  while (rows > 0 && !cache_.has_room(missing_for_rows(sequence, sequence.computed + rows) + left)) {
    // Up to the page before.
    rows = (pages_for(sequence.computed + rows, cache_.page()) - 1) * cache_.page() - sequence.computed;
  }
  // A single row has its pages, and needs none to spare.
  return std::max(has_slots() ? 1 : 0, rows);
}

bool Scheduler::packs(const Sequence& sequence) const {
  // What lives of a large chunk may be left in more slabs than need be, so that no other group gets them.
  return groups_.size() > 1 && sequence.preemptions > 0 && has_lives(options_.views);
}

int32_t Scheduler::take_page(const Sequence& sequence, int group) {
  const int32_t page = cache_.take(group, packs(sequence));
  const GroupView* const own = view(group);
  if (own != nullptr && (own->slots || own->lives)) pass_.fresh[static_cast<size_t>(group)].push_back(page);
  return page;
}

void Scheduler::take_for_rows(Sequence& sequence, int end) {
  for (const int group : groups_) {
    KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
    while (kept.end() < pages_of_rows(group, sequence, end)) kept.pages.push_back(take_page(sequence, group));
    kept.spare = spare_pages(group, sequence.computed, end);
    for (int i = 0; i < kept.spare; ++i) kept.pages.push_back(take_page(sequence, group));
  }
}

int Scheduler::parent_place(const Sequence& sequence, int published) const {
  const int most = options_.decode_differs ? sequence.prompt - 1 : sequence.most_tokens;  // that will ever be published
  const bool publishes = cache_.shares() && !sequence.own_pages && !has_slots() && (published + 1) * cache_.page() <= most;
  return publishes ? published - 1 : -1;
}

void Scheduler::drop_page(Sequence& sequence, int group, int place) {
  int32_t& page = sequence.kept[static_cast<size_t>(group)].pages[static_cast<size_t>(place)];
  if (page == PageCache::kMissing || (group == 0 && place == parent_place(sequence, sequence.published))) return;
  cache_.release(group, page);
  page = PageCache::kMissing;
}

bool Scheduler::needs(const Sequence& sequence, int group, int place) const {
  const GroupView* const own = view(group);
  if (own == nullptr || !own->lives || sequence.computed < dense_rows(sequence, *own)) return true;
  return own->lives->is_needed(place, sequence.computed);
}

void Scheduler::drop_unseen(Sequence& sequence, int first) {
  for (const int group : groups_) {
    KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
    cache_.release(group, std::span<const int32_t>(kept.pages).last(static_cast<size_t>(kept.spare)));
    kept.pages.resize(kept.pages.size() - static_cast<size_t>(kept.spare));
    kept.spare = 0;
    if (const TokenBudget* const own = budget(group); own != nullptr && sequence.computed >= sequence.prompt) {
      // What a prompt had beside the budget.
      const auto used = static_cast<size_t>(pages_for(own->tokens(), cache_.page()));
      if (kept.pages.size() <= used) continue;
      cache_.release(group, std::span<const int32_t>(kept.pages).subspan(used));
      kept.pages.resize(used);
      continue;
    }
    if (const GroupView* const own = view(group); own != nullptr && own->lives) {
      const int dense = dense_rows(sequence, *own);
      if (sequence.computed < dense) continue;
      // The last first, as PageCache::release does.
      const std::span<const int32_t> ended = own->lives->ending(first <= dense ? 0 : first, sequence.computed);
      for (auto place = ended.rbegin(); place != ended.rend(); ++place) drop_page(sequence, group, *place);
      continue;
    }
    const int needed = std::min(cache_.first_page(group, sequence.computed), kept.end());
    if (needed <= kept.first) continue;
    const int count = needed - kept.first;
    cache_.release(group, std::span<const int32_t>(kept.pages).first(static_cast<size_t>(count)));
    kept.pages.erase(kept.pages.begin(), kept.pages.begin() + count);
    kept.first = needed;
  }
}

const ScheduledPass& Scheduler::plan() {
  pass_.entries.clear();
  pass_.tokens.clear();
  pass_.logit_rows.clear();
  pass_.batch.clear();
  for (std::vector<TokenMove>& moves : pass_.moves) moves.clear();
  for (std::vector<int32_t>& pages : pass_.fresh) pages.clear();

  grow();
  for (Sequence* sequence : running_) {
    if (!sequence->filling && decodes(*sequence) && !is_computed(*sequence)) append(*sequence, 1, true);
  }
  append_prompts();
  ++planned_;
  return pass_;
}

void Scheduler::note_time(int rows, double seconds) {
  const double now = seconds / std::max(rows, 1);
  row_seconds_ = row_seconds_ == 0 ? now : (row_seconds_ + now) / 2;
}

int Scheduler::most_rows() const {
  constexpr double kMostSeconds = 0.04;  // of a pass: a dozen are half a second
  constexpr int kLeast = 16;             // beside the decode rows, or prompts would stand still where many decode
  const bool is_shared = std::any_of(running_.begin(), running_.end(),
                                     [&](const Sequence* each) { return each->caller != running_.front()->caller; });
  const bool is_short = row_seconds_ * options_.max_pass_tokens <= kMostSeconds;
  if (!is_shared || is_short || !is_token_awaited()) return options_.max_pass_tokens;
  const auto rows = static_cast<int>(kMostSeconds / row_seconds_);
  const int least = std::max(kLeast, static_cast<int>(wishes_.size()));  // a row for every caller
  return std::min(options_.max_pass_tokens, std::max(static_cast<int>(pass_.tokens.size()) + least, rows));
}

bool Scheduler::is_token_awaited() const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const Sequence* each) { return !is_computed(*each) && !each->filling && is_small(prompt_rows(*each)); });
}

void Scheduler::append_prompts() {
  wishes_.clear();
  for (const Sequence* sequence : running_) {
    const int rows = prompt_rows(*sequence);
    if (rows == 0) continue;
    auto wish = std::find_if(wishes_.begin(), wishes_.end(), [&](const Wish& each) { return each.caller == sequence->caller; });
    if (wish == wishes_.end()) wish = wishes_.insert(wish, {sequence->caller, 0});
    wish->rows += rows;
  }
  // Who wants the least first: what it leaves of its share is for the others.
  std::sort(wishes_.begin(), wishes_.end(), [](const Wish& a, const Wish& b) { return a.rows < b.rows; });
  const int most = most_rows();
  for (size_t i = 0; i < wishes_.size(); ++i) {
    const int left = std::max(0, most - static_cast<int>(pass_.tokens.size()));
    const auto callers = static_cast<int>(wishes_.size() - i);
    const int end = static_cast<int>(pass_.tokens.size()) + (left + callers - 1) / callers;
    append_prompts_of(wishes_[i].caller, end - kept_for_large(wishes_[i].caller, end), true);
    append_prompts_of(wishes_[i].caller, end, false);
  }
}

bool Scheduler::is_small(int prompt_rows) const { return prompt_rows <= options_.max_pass_tokens / 8; }

int Scheduler::kept_for_large(uint64_t caller, int end) const {
  constexpr int kPart = 4;
  const bool has_large = std::any_of(running_.begin(), running_.end(), [&](const Sequence* each) {
    return each->caller == caller && !is_small(prompt_rows(*each));
  });
  if (!has_large) return 0;
  // Rounded up in some passes and down in others, so that a single row is kept now and then, not always or never.
  const auto turn = static_cast<int>(planned_ % kPart);
  return (std::max(0, end - static_cast<int>(pass_.tokens.size())) + turn) / kPart;
}

void Scheduler::append_prompts_of(uint64_t caller, int end, bool small) {
  for (Sequence* sequence : running_) {
    const int wanted = sequence->caller == caller ? prompt_rows(*sequence) : 0;
    if (wanted == 0 || is_small(wanted) != small) continue;
    int rows = std::min(wanted, end - static_cast<int>(pass_.tokens.size()));
    if (sequence->prompt_logits) rows = std::min(rows, options_.max_logit_rows - static_cast<int>(pass_.logit_rows.size()));
    rows = std::min(rows, chunk_end(*sequence, sequence->computed) - sequence->computed);
    if (rows > 0) rows = rows_with_room(*sequence, rows);
    if (rows > 0) append(*sequence, rows, false);
  }
}

void Scheduler::append(Sequence& sequence, int rows, bool decoding) {
  const int first = sequence.computed;
  const int end = first + rows;
  const auto row = static_cast<int32_t>(pass_.tokens.size());
  const bool last = end == static_cast<int>(sequence.tokens.size());  // otherwise a token that is known already follows
  ScheduledPass::Entry entry{&sequence, first, rows, static_cast<int>(pass_.logit_rows.size()), 0, decoding};
  entry.logit_rows = sequence.prompt_logits ? rows : (last ? 1 : 0);
  for (int i = rows - entry.logit_rows; i < rows; ++i) pass_.logit_rows.push_back(row + i);
  pass_.entries.push_back(entry);
  pass_.tokens.insert(pass_.tokens.end(), sequence.tokens.begin() + first, sequence.tokens.begin() + end);
  cache_.make_room(missing_for_rows(sequence, end) + left_for_others(&sequence == running_.front()));
  take_for_rows(sequence, end);
  pass_.batch.add({.first = first,
                   .rows = rows,
                   .decoding = decoding,
                   .seed = sequence.seed,
                   .state = sequence.state,
                   .prompt_rows = sequence.prompt - 1});
  for (const int group : groups_) place_rows(sequence, group, first, rows, decoding);
}

void Scheduler::complete() {
  for (const ScheduledPass::Entry& entry : pass_.entries) {
    entry.sequence->computed = entry.first + entry.rows;
    publish(*entry.sequence);
    drop_unseen(*entry.sequence, entry.first);
  }
}

int Scheduler::unfinished() const {
  return static_cast<int>(
      std::count_if(running_.begin(), running_.end(), [](const Sequence* each) { return !is_computed(*each); }));
}

bool Scheduler::can_plan_ahead() {
  admitted_.clear();
  promise_first();
  if (!waiting_.empty()) {
    Sequence& next = **next_waiting();
    // Where it fits as it is, somebody may still give way to whoever comes after it.
    if (one_to_give_way(next) != nullptr && find_room(next)) {
      give_up_room(next);
      return false;
    }
  }
  if (std::any_of(running_.begin(), running_.end(), [](const Sequence* each) { return each->prompt_logits; })) return false;
  return unfinished() > 0 && cache_.has_room(missing_for_next_rows() + left_for_others(false));
}

void Scheduler::expect() {
  int32_t given = 0;
  for (const ScheduledPass::Entry& entry : pass_.entries) {
    if (entry.logit_rows == 0) continue;
    const int32_t place = -1 - given++;
    if (entry.sequence == nullptr || is_computed(*entry.sequence)) continue;
    entry.sequence->tokens.push_back(place);
    ++entry.sequence->unknown;
  }
}

}  // namespace sluice
