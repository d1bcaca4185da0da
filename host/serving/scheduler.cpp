#include "host/serving/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "scripting/base/error.h"

namespace sluice {
namespace {

bool before(const Sequence* a, const Sequence* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

void insert_by_rank(std::vector<Sequence*>& list, Sequence& sequence) {
  list.insert(std::upper_bound(list.begin(), list.end(), &sequence, before), &sequence);
}

bool erase(std::vector<Sequence*>& list, const Sequence& sequence) {
  const auto found = std::find(list.begin(), list.end(), &sequence);
  if (found == list.end()) return false;
  list.erase(found);
  return true;
}

}  // namespace

PassBatch Pass::batch() const {
  PassBatch batch;
  batch.query_indptr = queries.indptr();
  batch.lengths = cache.lengths();
  batch.page_indptr = cache.indptr();
  batch.page_indices = cache.indices();
  batch.decoding = decoding;
  batch.seeds = seeds;
  batch.states = states;
  return batch;
}

Scheduler::Scheduler(PageCache& cache, const SchedulerOptions& options) : cache_(cache), options_(options), pass_(cache.page()) {
  if (options.max_batch < 1 || options.max_pass_tokens < options.max_batch || options.max_logit_rows < options.max_batch) {
    throw InternalError("a pass must have room for one row of every running sequence");
  }
  const auto batch = static_cast<size_t>(options.max_batch);
  running_.reserve(2 * batch);  // those whose last token is awaited are beside the others
  admitted_.reserve(batch);
  giving_way_.reserve(2 * batch);
  wishes_.reserve(2 * batch);
  pass_.entries.reserve(batch);
  pass_.decoding.reserve(batch);
  pass_.seeds.reserve(batch);
  pass_.states.reserve(batch);
  pass_.tokens.reserve(static_cast<size_t>(options.max_pass_tokens));
  pass_.logit_rows.reserve(static_cast<size_t>(options.max_logit_rows));
  pass_.queries.reserve(options.max_batch, 0);
}

void Scheduler::add(Sequence& sequence) {
  const int pages = pages_for(sequence.most_tokens, cache_.page());
  if (pages > cache_.pages()) throw InternalError(fmt::format("a sequence of {} pages in a pool of {}", pages, cache_.pages()));
  sequence.tokens.reserve(static_cast<size_t>(sequence.most_tokens) + 1);
  sequence.pages.reserve(static_cast<size_t>(pages));
  if (sequence.own_pages) sequence.copied.reserve(static_cast<size_t>(pages));
  insert_by_rank(waiting_, sequence);
}

void Scheduler::remove(Sequence& sequence) {
  for (Pass::Entry& entry : pass_.entries) {
    if (entry.sequence == &sequence) entry.sequence = nullptr;
  }
  if (!erase(running_, sequence)) erase(waiting_, sequence);
  release_pages(sequence);
}

bool Scheduler::decodes(const Sequence& sequence) const {
  const int prefill = options_.decode_differs ? sequence.prompt - 1 : static_cast<int>(sequence.tokens.size()) - 1;
  return sequence.computed >= prefill;
}

int Scheduler::shareable(const Sequence& sequence) const {
  // The last token always runs, for its logits; under a flow every token from the prompt's last on is a decode step.
  return options_.decode_differs ? sequence.prompt - 1 : static_cast<int>(sequence.tokens.size()) - 1;
}

std::span<Sequence* const> Scheduler::admit() {
  admitted_.clear();
  while (!waiting_.empty()) {
    Sequence& sequence = **next_waiting();
    if (!make_room(sequence)) break;
    erase(waiting_, sequence);
    insert_by_rank(running_, sequence);
    admitted_.push_back(&sequence);
  }
  if (!admitted_.empty()) {
    // Shared pages are listed once per sequence, so a pass may list more pages than the pool has.
    int listed = 0;
    for (const Sequence* sequence : running_) listed += pages_for(sequence->most_tokens, cache_.page());
    pass_.cache.reserve(options_.max_batch, listed);
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
  int freed = 0;
  while (!fits(newcomer, freed)) {
    Sequence* const last = one_to_give_way(newcomer);
    if (last == nullptr) {
      give_up_room(newcomer);
      return false;
    }
    freed += pages_freed_by(*last);
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

bool Scheduler::fits(const Sequence& newcomer, int freed) const {
  if (unfinished() >= options_.max_batch) return false;
  // Pages to copy from are held beside the copies. The pool may not have room for both, but it has for the sequence alone.
  if (newcomer.own_pages && running() == 0) return true;
  // A page of growth for everyone who runs, or the newcomer would be thrown out again at once.
  return missing_pages(newcomer) + running() <= cache_.available() + freed;
}

int Scheduler::missing_pages(const Sequence& newcomer) const {
  const int shared = newcomer.own_pages ? 0 : static_cast<int>(newcomer.pages.size());
  return pages_for(static_cast<int>(newcomer.tokens.size()), cache_.page()) - shared;
}

int Scheduler::pages_freed_by(const Sequence& sequence) const {
  int freed = 0;
  for (size_t i = 0; i < sequence.pages.size(); ++i) {
    const int32_t page = sequence.pages[i];
    int users = cache_.users(page);
    if (users > 1) {
      // Who shares a page shares all before it, so it has the same place in everyone's list.
      users -= static_cast<int>(std::count_if(giving_way_.begin(), giving_way_.end(), [&](const Sequence* each) {
        return i < each->pages.size() && each->pages[i] == page;
      }));
    }
    if (users == 1) ++freed;
  }
  return freed;
}

void Scheduler::match_prefix(Sequence& sequence) {
  if (sequence.prompt_logits) return;
  const std::span<const int32_t> tokens(sequence.tokens);
  cache_.match(tokens.first(static_cast<size_t>(shareable(sequence))), sequence.pages);
  if (static_cast<int>(sequence.pages.size()) * cache_.page() < sequence.least_match) release_pages(sequence);
}

void Scheduler::take_pages(Sequence& sequence) {
  if (missing_pages(sequence) > cache_.available()) release_pages(sequence);  // it is alone, and copies nothing
  const int needed = missing_pages(sequence);
  const auto found = static_cast<int>(sequence.pages.size());
  sequence.computed = found * cache_.page();
  sequence.published = sequence.own_pages ? 0 : found;
  if (sequence.own_pages) sequence.copied.swap(sequence.pages);
  if (sequence.preemptions == 0) sequence.matched = sequence.computed;
  for (int i = 0; i < needed; ++i) sequence.pages.push_back(cache_.take());
}

void Scheduler::release_pages(Sequence& sequence) {
  cache_.release(sequence.pages);
  sequence.pages.clear();
}

void Scheduler::release_copied(Sequence& sequence) {
  cache_.release(sequence.copied);
  sequence.copied.clear();
}

void Scheduler::preempt(Sequence& sequence) {
  erase(running_, sequence);
  release_pages(sequence);
  sequence.computed = 0;
  sequence.published = 0;
  ++sequence.preemptions;
  ++preemptions_;
  insert_by_rank(waiting_, sequence);
}

bool Scheduler::needs_page(const Sequence& sequence) const {
  return pages_for(sequence.computed + 1, cache_.page()) > static_cast<int>(sequence.pages.size());
}

// Every sequence that decodes has a page for its next token, or has been preempted.
void Scheduler::grow_decoding() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (!decodes(sequence) || is_computed(sequence) || !needs_page(sequence)) continue;
    while (cache_.available() == 0 && running_.back() != &sequence) preempt(*running_.back());
    if (cache_.available() > 0) {
      sequence.pages.push_back(cache_.take());
    } else {
      preempt(sequence);  // the last in rank: everyone before it has its page
    }
  }
}

const Pass& Scheduler::plan() {
  pass_.entries.clear();
  pass_.tokens.clear();
  pass_.logit_rows.clear();
  pass_.queries.clear();
  pass_.cache.clear();
  pass_.decoding.clear();
  pass_.seeds.clear();
  pass_.states.clear();

  grow_decoding();
  for (Sequence* sequence : running_) {
    if (decodes(*sequence) && !is_computed(*sequence)) append(*sequence, 1, true);
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
                     [&](const Sequence* each) { return !is_computed(*each) && is_small(prompt_rows(*each)); });
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
    if (rows > 0) append(*sequence, rows, false);
  }
}

void Scheduler::append(Sequence& sequence, int rows, bool decoding) {
  const int first = sequence.computed;
  const int end = first + rows;
  const auto row = static_cast<int32_t>(pass_.tokens.size());
  const bool last = end == static_cast<int>(sequence.tokens.size());  // otherwise a token that is known already follows
  Pass::Entry entry{&sequence, first, rows, static_cast<int>(pass_.logit_rows.size()), 0, decoding};
  entry.logit_rows = sequence.prompt_logits ? rows : (last ? 1 : 0);
  for (int i = rows - entry.logit_rows; i < rows; ++i) pass_.logit_rows.push_back(row + i);
  pass_.entries.push_back(entry);
  pass_.tokens.insert(pass_.tokens.end(), sequence.tokens.begin() + first, sequence.tokens.begin() + end);
  pass_.queries.append(rows);
  const auto pages = static_cast<size_t>(pages_for(end, cache_.page()));
  pass_.cache.append(std::span<const int32_t>(sequence.pages).first(pages), end);
  pass_.decoding.push_back(decoding ? 1 : 0);
  pass_.seeds.push_back(sequence.seed);
  pass_.states.push_back(sequence.state);
}

void Scheduler::complete() {
  for (const Pass::Entry& entry : pass_.entries) {
    entry.sequence->computed = entry.first + entry.rows;
    publish(*entry.sequence);
  }
}

int Scheduler::unfinished() const {
  return static_cast<int>(
      std::count_if(running_.begin(), running_.end(), [](const Sequence* each) { return !is_computed(*each); }));
}

bool Scheduler::can_plan_ahead() {
  admitted_.clear();
  if (!waiting_.empty()) {
    Sequence& next = **next_waiting();
    // Where it fits as it is, somebody may still give way to whoever comes after it.
    if (one_to_give_way(next) != nullptr && find_room(next)) {
      give_up_room(next);
      return false;
    }
  }
  int growing = 0;
  for (const Sequence* sequence : running_) {
    if (sequence->prompt_logits) return false;
    if (!is_computed(*sequence) && decodes(*sequence) && needs_page(*sequence)) ++growing;
  }
  return unfinished() > 0 && growing <= cache_.available();
}

void Scheduler::expect() {
  int32_t given = 0;
  for (const Pass::Entry& entry : pass_.entries) {
    if (entry.logit_rows == 0) continue;
    const int32_t place = -1 - given++;
    if (entry.sequence == nullptr || is_computed(*entry.sequence)) continue;
    entry.sequence->tokens.push_back(place);
    ++entry.sequence->unknown;
  }
}

void Scheduler::learn(Sequence& sequence, int32_t token) {
  sequence.tokens[sequence.tokens.size() - static_cast<size_t>(sequence.unknown--)] = token;
  publish(sequence);
}

void Scheduler::publish(Sequence& sequence) {
  if (sequence.own_pages) return;
  const int page = cache_.page();
  const int known = std::min(sequence.computed, static_cast<int>(sequence.tokens.size()) - sequence.unknown);
  const int limit = options_.decode_differs ? std::min(known, sequence.prompt - 1) : known;
  for (; (sequence.published + 1) * page <= limit; ++sequence.published) {
    const auto index = static_cast<size_t>(sequence.published);
    const int32_t parent = index == 0 ? PrefixIndex::kRoot : sequence.pages[index - 1];
    const std::span<const int32_t> tokens(sequence.tokens);
    sequence.pages[index] = cache_.publish(parent, tokens.subspan(index * static_cast<size_t>(page), static_cast<size_t>(page)),
                                           sequence.pages[index]);
  }
}

}  // namespace sluice
