#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "host/serving/group_view.h"
#include "host/serving/page_cache.h"
#include "kernels/device/batch_builder.h"

namespace sluice {

/// What a group of layers keeps of a sequence.
struct KeptPages {
  std::vector<int32_t> pages;  // in the order of their tokens; PageCache::kMissing: not needed any more, or nobody has the fields
  int first = 0;               // place of the first of them among all pages of the sequence
  std::vector<int32_t> copied;  // after admission, until `filled`: pages to copy over the first of `pages`
  std::vector<int32_t> stale;   // after admission, until `filled`: places of pages of fields that are to be recomputed
  /// Of a group with slots: the token in each, -1 where there is none, [heads][slots] where those of heads differ; and how many
  /// of the last `pages` are spare, for rows of a pass whose slots are still needed by others of it.
  std::vector<int32_t> held;
  int spare = 0;

  int end() const { return first + static_cast<int>(pages.size()); }
  /// Those that are there.
  int count() const {
    return static_cast<int>(std::count_if(pages.begin(), pages.end(), [](int32_t page) { return page != PageCache::kMissing; }));
  }
};

/// A request as the scheduler sees it: tokens, pages and how far they have been computed.
struct Sequence {
  uint64_t id = 0;              // grows in order of arrival
  int priority = 0;             // higher first
  uint64_t caller = 0;          // whose it is
  std::vector<int32_t> tokens;  // prompt, then what was generated; room for all is reserved
  int prompt = 0;               // tokens of the prompt
  int most_tokens = 0;          // that the cache will ever hold
  bool prompt_logits = false;   // every row's logits are wanted, so nothing may be skipped
  int given_tokens = 0;         // whose K and V come from elsewhere, unless the prefix cache knows all of their full pages
  /// Something fills pages of it beside what is planned: it is not.
  bool filling = false;
  /// Tokens, the first, whose K and V are what computing them gives: no page beyond is part of a prefix.
  int exact = INT32_MAX;
  bool is_known_apart = false;  // pages beyond are known all the same (PageCache::publish_apart)
  bool own_pages = false;       // shares none: what the prefix cache knows is copied, and what it computes is not offered
  uint64_t seed = 0;
  RequestState* state = nullptr;  // may be null

  // Kept by the scheduler.
  std::vector<KeptPages> kept;  // by group
  int computed = 0;             // tokens whose K and V lie in these pages, or did
  int published = 0;            // pages offered to others
  int apart = 0;                // pages up to the last that is known apart
  int matched = 0;              // tokens found in the prefix cache at the first admission
  int unknown = 0;              // of `tokens`, at the end: places of tokens that are being computed
  int preemptions = 0;

  /// Of the first group, which has a place for all tokens unless it has slots.
  const std::vector<int32_t>& pages() const { return kept.front().pages; }
};

/// What one forward pass computes: entries of consecutive tokens, decode steps first, in the form that devices want.
struct ScheduledPass {
  struct Entry {
    Sequence* sequence = nullptr;
    int first = 0;  // position of the first token
    int rows = 0;
    int logit_row = 0;   // of the first row of logits
    int logit_rows = 0;  // 0, 1 (the last token's) or `rows`
    bool decoding = false;
  };

  std::vector<Entry> entries;
  std::vector<int32_t> tokens;      // [rows]
  std::vector<int32_t> logit_rows;  // rows whose logits are wanted, in order
  BatchBuilder batch;               // K and V, this pass's tokens included
  /// By group: tokens that go to their slots once the pass has run, and pages with slots that are new, to be cleared before it:
  /// what nobody sees is multiplied all the same, and has to be finite.
  std::vector<std::vector<TokenMove>> moves;
  std::vector<std::vector<int32_t>> fresh;

  explicit ScheduledPass(const std::vector<int>& pages) : batch(pages), moves(pages.size()), fresh(pages.size()) {}
  bool empty() const { return entries.empty(); }
  bool has_prefill() const { return !entries.empty() && !entries.back().decoding; }
};

struct SchedulerOptions {
  int max_batch = 64;         // sequences of a pass
  int max_pass_tokens = 512;  // rows of a pass, at least `max_batch`
  int max_logit_rows = 64;    // rows of logits of a pass, at least `max_batch`
  /// Generated tokens get other K and V by decode steps than by prefill (a flow runs in one and not in the other): after a
  /// preemption they are replayed as decode steps, and their pages are not shared.
  bool decode_differs = false;
  /// Of the cache: the group that has the fields of the flow, of which sequences have pages beside those with K and V; -1: none.
  int field_group = -1;
  /// By group. What a group without slots keeps is the cache's to say. Empty: a row sees what is kept.
  std::vector<GroupView> views = {};
  int most_positions = 0;  // of a sequence; 0: as many as the cache holds
  /// Tokens that decode steps see beside what the flow selects, in the groups without windows.
  std::optional<Pattern> beside = {};
  /// Rows of a prompt before its first decode step, the last ones, that are computed whatever is known of them, since the flow
  /// reads what they give their tokens (FlowGraph::prompt_rows_wanted).
  int own_rows = 0;
};

/// Continuous batching: chooses what the next pass computes. Running sequences decode first, then prompts advance in chunks.
/// A sequence is admitted when the pages for all of its tokens are there (in groups that forget: for those that are needed at a
/// time); if pages run out later, the running sequence of the lowest priority, the latest of equals, gives up its pages and is
/// computed again. Of those who wait nobody is admitted before whoever is next, and the first in rank (of the highest priority,
/// the earliest of equals) is not preempted, so everyone ends. In groups that forget it may be, once it is alone, if its pages
/// lie in too many slabs: whoever then admits again gives it pages that lie together. Knows neither models nor devices; nothing
/// allocates in passes that admit nobody.
///
/// Schedulers may share a cache (PageCache). The first in rank of each is then admitted once there is room for it and for some
/// pages more, which are kept free for it. If it has to give up its pages all the same, it is admitted again once there is room
/// for all that it will ever hold, so that it ends. While nobody of a scheduler runs, no other admits anybody in the way of its
/// first.
///
/// Callers share what there is: next is, of the highest priority, the earliest of the caller who has the fewest sequences
/// running, if need be in place of those of lower priority and of the latest of who has at least two more; and prompts of several
/// callers have as many rows of a pass each, as far as they want them: of a caller's prompts those of which little is left go
/// first, and a quarter of its rows is for the others.
class Scheduler {
 public:
  Scheduler(PageCache& cache, const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Queues a sequence, which must outlive its stay. It must fit the pool alone.
  void add(Sequence& sequence);
  /// Whether a sequence of so many tokens could run if it were alone.
  bool could_hold(int tokens) const;
  /// Of a sequence of so many tokens, those that are kept at a time, in the group that keeps the most, in whole pages.
  int64_t most_kept(int tokens) const;
  /// Tokens of the longest.
  int64_t longest() const;
  /// Tokens, the first, that are known and have K and V.
  static int known_tokens(const Sequence& sequence);
  /// Of these, the ones whose K and V are what computing a prompt gives.
  int offered_tokens(const Sequence& sequence) const;
  /// Makes the pages of so many tokens that are not known so by themselves (PageCache::publish_apart), the last though it is not
  /// full. The sequence is about to be removed.
  void publish_rest(Sequence& sequence, int tokens);
  /// Ends a sequence, wherever it is, and gives back its pages.
  void remove(Sequence& sequence);

  /// Moves sequences from waiting to running; their pages are there, `computed` counts the tokens found in the prefix cache.
  /// The caller may fill pages by other means and raise `computed` before the next call of `plan`.
  std::span<Sequence* const> admit();
  /// The slots of the first `tokens` tokens as Pool::write_layer has them, -1 of those that no later row reads.
  std::vector<int32_t> slots_of_tokens(int group, int tokens) const;
  /// K and V of the first `tokens` tokens have come from elsewhere, each to its slot.
  void given(Sequence& sequence, int tokens);
  /// The pages of `sequence` that were to be copied or recomputed (KeptPages) have been, or will have before anything that is run
  /// from now on.
  void filled(Sequence& sequence);
  /// The next pass; empty if nothing runs, which may be so while somebody waits: `admit` then admits. Stays valid until the next
  /// call.
  const ScheduledPass& plan();
  /// The pass that `plan` returned has run, or will have before anything that is run from now on.
  void complete();
  /// Whether there is something to plan before it is known which tokens the last pass gives, and nobody is in the way: nobody is
  /// to be preempted, as far as can be told of slabs, and of those who run nobody wants all logits.
  bool can_plan_ahead();
  /// Gives every sequence a place for the token that the last pass gives it, where another is to be computed from it: -1 - i for
  /// the i-th that it gives. The next pass has such tokens.
  void expect();
  /// The token that `expect` made a place for.
  void learn(Sequence& sequence, int32_t token);

  /// A pass with prompts took `seconds` for so many rows. Where several callers run and somebody decodes, or soon will, passes
  /// are then kept short: no caller's prompts hold up the tokens of others for long.
  void note_time(int rows, double seconds);

  /// Where nothing runs: whether others that share the cache are in the way of those who wait.
  bool waits_for_others() const;
  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  uint64_t preemptions() const { return preemptions_; }
  /// Pages that the states of a sequence are for, of a flow that layers of a group run; its prompt has `prompt` tokens.
  int state_pages(int group, int tokens, int prompt) const;
  /// The most words that the masks of a pass take in a group.
  int mask_words() const;
  /// Whether tokens of any group go to slots.
  bool has_slots() const { return sluice::has_slots(options_.views); }
  /// True if the next token of `sequence` is a decode step.
  bool decodes(const Sequence& sequence) const;

 private:
  static void insert_by_rank(std::vector<Sequence*>& list, Sequence& sequence);
  /// False if it is not on the list.
  static bool erase(std::vector<Sequence*>& list, const Sequence& sequence);
  /// Of those who wait, who is admitted next. There must be one.
  std::vector<Sequence*>::iterator next_waiting();
  int running_of(uint64_t caller) const;
  /// Who runs and is to be preempted for `newcomer`; null: nobody.
  Sequence* one_to_give_way(const Sequence& newcomer) const;
  /// Gives `sequence` its pages, and a place in the batch, if need be in place of others; nobody is preempted in vain.
  bool make_room(Sequence& sequence);
  /// Whether there is room for `newcomer` once some have given way: `giving_way_`, who are then not in `running_`. It holds the
  /// pages that the prefix cache knows.
  bool find_room(Sequence& newcomer);
  /// Undoes `find_room`.
  void give_up_room(Sequence& newcomer);
  /// Whether `newcomer` can run beside `running_` once `freed_` have been given up.
  bool fits(const Sequence& newcomer) const;
  /// Whether nobody but `sequence` has any pages, whatever scheduler it is of.
  bool is_alone(const Sequence& sequence) const;
  /// Pages that a sequence which is to be the first in rank will take before long; once it has given up its pages, all that it
  /// will still take. `keeps`: those that it has are its own, else they are copied.
  PageCounts missing_ahead(const Sequence& sequence, bool keeps) const;
  /// What is to be left for others, where schedulers share the cache: what they are promised, and, for others than the first in
  /// rank, what that one is.
  PageCounts left_for_others(bool is_first) const;
  /// Has the cache keep free what the first in rank will want, if there is room for it.
  void promise_first();
  /// Pages that a sequence that runs will soon want of a group.
  int growth(const Sequence& sequence, int group) const;
  /// Pages to take for `newcomer`, which holds those that the prefix cache knows.
  PageCounts missing_pages(const Sequence& newcomer) const;
  /// Tokens back that a row sees in a group, if no pattern says it; 0: all.
  int seen_window(int group) const;
  const GroupView* view(int group) const;
  /// Null: the group has none.
  const HeadSlots* slots(int group) const;
  /// Null: no token leaves the group.
  const TokenBudget* budget(int group) const;
  /// Rows up to the first end of a chunk behind a row of a prompt, in any group; no bound where no flow evicts.
  int chunk_end(const Sequence& sequence, int row) const;
  /// Tokens that decode steps see beside what the flow selects in a group; null: none.
  const Pattern* beside(int group) const;
  /// Whether a group gives pages back while a prompt is computed, and takes them as rows are.
  bool forgets(int group) const;
  /// The most pages of a group that a sequence of `tokens` tokens has at a time, of a prompt of `prompt`; chunks of prompts grow
  /// by what there is room for.
  int most_pages(int group, int tokens, int prompt) const;
  /// The place of the page that the next one which `sequence` publishes follows, once so many are published: it is kept as long.
  /// -1: none follows.
  int parent_place(const Sequence& sequence, int published) const;
  /// That of rows that decode, or of prompts.
  const Pattern* pattern(int group, bool decoding) const;
  /// Masks of a row, which KV heads have in turn.
  int mask_heads(int group) const;
  /// Of the rows of its prompts (GroupPages::row_stride).
  int row_stride(int group) const;
  /// What one of those sees in a group with a pattern.
  const Pattern& pattern_of(int group, int mask_head) const;
  /// Pages that `tokens` tokens of a sequence take in a group, if it forgets none of them but for the sake of slots; of a prompt
  /// of `prompt`.
  int pages_of(int group, int tokens, int prompt) const;
  /// Those that rows up to `end` take, once earlier ones have been given back.
  int pages_of_rows(int group, const Sequence& sequence, int end) const;
  /// Of rows [first, end) in a group with slots, those that cannot go to their slots before the pass has run: the last ones.
  int spare_rows(const HeadSlots& slots, int first, int end) const;
  int spare_pages(int group, int first, int end) const;
  /// Pages of a window that a group needs at once, for chunks of a prompt, too.
  int window_pages(int group) const;
  /// Adds the pages of `sequence` that nobody else uses, `giving_way_` aside, to `freed_`.
  void add_freed(const Sequence& sequence);
  void match_prefix(Sequence& sequence);
  void take_pages(Sequence& sequence);
  /// Of fields, of which the first `known` places are there, or missing though K and V are there.
  void take_fields(Sequence& sequence, int known);
  void release_pages(Sequence& sequence);
  void preempt(Sequence& sequence);
  /// Every sequence that runs has pages for its next row, or has been preempted.
  void grow();
  /// Pages of each group that rows of `sequence` up to `end` need and it does not have.
  PageCounts missing_for_rows(const Sequence& sequence, int end) const;
  /// Those that the next row of everyone who runs needs.
  PageCounts missing_for_next_rows() const;
  /// Rows of a prompt that there are pages for, `rows` at most.
  int rows_with_room(const Sequence& sequence, int rows) const;
  /// Whether `sequence`, which has had to give up its pages, leaves as few slabs as can be to its groups: it takes pages one by
  /// one, of slabs in use.
  bool packs(const Sequence& sequence) const;
  int32_t take_page(const Sequence& sequence, int group);
  /// Takes pages for rows up to `end`.
  void take_for_rows(Sequence& sequence, int end);
  /// Whether a row that is still to come needs a page, or may. Of groups with a window `first_page` tells it.
  bool needs(const Sequence& sequence, int group, int place) const;
  /// Gives back the pages that no later row needs, once rows from `first` on have been computed.
  void drop_unseen(Sequence& sequence, int first);
  /// Unless the next page that is published has to follow it.
  void drop_page(Sequence& sequence, int group, int place);
  void append(Sequence& sequence, int rows, bool decoding);
  /// Tells the pass where its last rows, those of `sequence` from `first` on, go in a group, and what they see.
  void place_rows(Sequence& sequence, int group, int first, int rows, bool decoding);
  void place_in_slots(KeptPages& kept, int group, const HeadSlots& slots, int first, int rows);
  /// Rows [first, end), which the pass has beside the slots, go to these once it has run.
  void move_spare_rows(KeptPages& kept, int group, const HeadSlots& slots, int first, int end);
  /// Of what one of the heads has in the first `length` slots, of which the last have tokens up to `end`.
  void find_stretches(const KeptPages& kept, const HeadSlots& slots, int head, int length, int spare, int end);
  /// Which slots the row at `position` sees.
  void mask_slots(const Pattern& pattern, int position, std::span<uint32_t> mask);
  /// Adds chunks of prompts to the pass until it is full.
  void append_prompts();
  /// Rows that the pass may have, in which decode steps stand already; `wishes_` says whose prompts are to follow.
  int most_rows() const;
  /// Whether somebody decodes, or has so little left of a prompt that long passes would hold up its first token.
  bool is_token_awaited() const;
  /// Whether so little of a prompt is left that it goes before others of its caller, since it holds up nobody.
  bool is_small(int prompt_rows) const;
  /// Of the rows that a caller has until the pass has `end`, those that are not for small prompts: a quarter while a large one
  /// runs, so that it ends however many small ones come.
  int kept_for_large(uint64_t caller, int end) const;
  /// Those of a caller, until the pass has `end` rows.
  void append_prompts_of(uint64_t caller, int end, bool small);
  /// Rows of its prompt that are still to be computed before it decodes.
  int prompt_rows(const Sequence& sequence) const {
    return sequence.filling || decodes(sequence) ? 0 : shareable(sequence) - sequence.computed;
  }
  void publish(Sequence& sequence);
  /// Whether all that the sequence will ever hold has been computed.
  static bool is_computed(const Sequence& sequence) { return sequence.computed >= sequence.most_tokens; }
  /// Sequences that the next pass has, of those that run: for others only the last token is awaited.
  int unfinished() const;
  /// Tokens of a prefix that other sequences could have computed in the same way.
  int shareable(const Sequence& sequence) const;
  /// Those of them that need not be computed for this one if they are known.
  int spared(const Sequence& sequence) const;

  PageCache& cache_;
  SchedulerOptions options_;
  const std::vector<int> groups_;  // of the cache, of which sequences have pages
  const int sharer_;
  std::vector<Sequence*> waiting_;  // by rank
  std::vector<Sequence*> running_;  // by rank
  std::vector<Sequence*> admitted_;
  std::vector<Sequence*> giving_way_;  // to the next newcomer
  FreedPages freed_;                   // by them
  struct Wish {
    uint64_t caller = 0;
    int rows = 0;
  };
  std::vector<Wish> wishes_;  // of callers, for rows of the next pass
  double row_seconds_ = 0;    // of late, in passes with prompts
  ScheduledPass pass_;
  std::vector<uint32_t> seen_;      // bits of the positions that a row sees
  std::vector<int32_t> row_slots_;  // of the rows of an entry, as BatchBuilder::keep_slots has them
  std::vector<int32_t> listed_;     // pages of a sequence, with others in place of those that are gone
  std::vector<int32_t> in_slots_;   // the token in each slot during a pass, -1: none
  /// Slots side by side whose tokens are so, too.
  struct SlotStretch {
    int slot = 0;
    int token = 0;
    int count = 0;
    bool follows(int next_slot, int next_token) const { return slot + count == next_slot && token + count == next_token; }
  };
  std::vector<SlotStretch> stretches_;
  uint64_t planned_ = 0;  // passes
  uint64_t preemptions_ = 0;
};

}  // namespace sluice
