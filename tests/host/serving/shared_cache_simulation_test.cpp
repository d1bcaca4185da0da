// Schedulers of several flows on one cache, under random workloads: the simulated device keeps what was written to every slot of
// K and V and of what each page of fields was computed, and every pass must find the right history in its pages. Flows come and
// go with their fields.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "host/serving/kv_cache.h"
#include "host/serving/scheduler.h"

namespace sluice {
namespace {

struct SharedSetting {
  unsigned seed = 0;
  int slabs = 8;
  int slab_pages = 4;
  int page = 8;
  bool prefixes = true;
  int flows = 2;  // with fields, beside dense attention
  int max_batch = 4;
  int max_pass_tokens = 24;
};

uint64_t mixed(uint64_t a, uint64_t b) { return (a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9ULL; }

class SharedSimulation {
 public:
  explicit SharedSimulation(const SharedSetting& setting)
      : setting_(setting),
        random_(setting.seed),
        layout_(page_layout({.head_dim = 8, .group = 1, .page = setting.page}, {})),
        map_(1, {{{0, 1}, layout_}}, layout_.bytes * static_cast<size_t>(2 * setting.slab_pages + 1), setting.slabs),
        cache_(map_, {.page = setting.page, .share = setting.prefixes, .windows = {0}}) {
    sides_.resize(static_cast<size_t>(setting.flows) + 1);
    for (size_t i = 0; i < sides_.size(); ++i) begin(i);
  }

  /// False if something failed, or nobody got on.
  bool run(int requests) {
    int64_t most_passes = 0;
    while (submitted_ < requests || live() > 0) {
      if (submitted_ < requests && (live() == 0 || draw(0, 3) == 0)) most_passes += 40 + 12 * int64_t{submit(any_side())};
      if (draw(0, 80) == 0) begin(any_side());  // its requests end with it
      if (draw(0, 60) == 0) cancel(any_side());
      step(any_side());
      if (::testing::Test::HasFailure()) return false;
      if (++turns_ > most_passes * static_cast<int64_t>(sides_.size())) {
        ADD_FAILURE() << "nobody gets on: " << live() << " requests live after " << turns_ << " turns";
        return false;
      }
    }
    EXPECT_EQ(cache_.uses(), 0);
    return true;
  }

  uint64_t found_tokens() const { return found_; }
  uint64_t stale_pages() const { return stale_; }
  uint64_t preemptions() const { return preemptions_; }

 private:
  /// A flow's scheduler, or that of dense attention (the first).
  struct Side {
    int field_group = -1;
    std::unique_ptr<Scheduler> scheduler;
    std::map<uint64_t, std::unique_ptr<Sequence>> live;
    std::map<int32_t, uint64_t> fields;  // by page: of what it was computed
  };

  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  size_t any_side() { return static_cast<size_t>(draw(0, static_cast<int>(sides_.size()) - 1)); }
  size_t live() const {
    size_t count = 0;
    for (const Side& side : sides_) count += side.live.size();
    return count;
  }

  /// A new flow in place of the one there.
  void begin(size_t index) {
    Side& side = sides_[index];
    if (side.scheduler) {
      for (auto& [id, sequence] : side.live) side.scheduler->remove(*sequence);
      preemptions_ += side.scheduler->preemptions();
      side.live.clear();
      side.fields.clear();
      side.scheduler.reset();
      if (side.field_group >= 0) {
        cache_.remove_fields(side.field_group);
        map_.remove_fields(side.field_group);
      }
    }
    if (index > 0) {
      PageLayout fields = layout_;
      fields.has_tokens = false;
      fields.bytes = static_cast<size_t>(64 * draw(1, 4));
      side.field_group = map_.add_fields({{1}, fields});
      cache_.add_fields(map_, side.field_group);
    }
    SchedulerOptions options;
    options.max_batch = setting_.max_batch;
    options.max_pass_tokens = setting_.max_pass_tokens;
    options.max_logit_rows = setting_.max_batch;
    options.decode_differs = index > 0;
    options.field_group = side.field_group;
    side.scheduler = std::make_unique<Scheduler>(cache_, options);
  }

  int submit(size_t index) {
    Side& side = sides_[index];
    auto sequence = std::make_unique<Sequence>();
    sequence->id = static_cast<uint64_t>(++submitted_);
    sequence->caller = static_cast<uint64_t>(draw(0, 1));
    sequence->priority = draw(0, 9) == 0 ? 1 : 0;
    int capacity = setting_.slabs * setting_.slab_pages * setting_.page;
    while (!side.scheduler->could_hold(capacity)) --capacity;
    sequence->prompt = draw(1, draw(0, 5) == 0 ? capacity : std::max(1, capacity / 2));
    sequence->most_tokens = std::min(capacity, sequence->prompt + draw(0, 40));
    sequence->own_pages = draw(0, 5) == 0;
    const int family = draw(0, 1);
    const int common = draw(0, sequence->prompt);
    for (int i = 0; i < sequence->prompt; ++i) sequence->tokens.push_back(i < common ? family * 1000 + i : draw(0, 3));
    side.scheduler->add(*sequence);
    const int most = sequence->most_tokens;
    side.live[sequence->id] = std::move(sequence);
    return most;
  }

  void cancel(size_t index) {
    Side& side = sides_[index];
    if (side.live.empty()) return;
    const auto victim = std::next(side.live.begin(), draw(0, static_cast<int>(side.live.size()) - 1));
    side.scheduler->remove(*victim->second);
    side.live.erase(victim);
  }

  /// Of the tokens up to a position.
  static uint64_t history(const Sequence& sequence, int position) {
    uint64_t hash = 1;
    for (int i = 0; i <= position; ++i) hash = mixed(hash, static_cast<uint64_t>(sequence.tokens[static_cast<size_t>(i)]));
    return hash;
  }
  uint64_t& slot(int32_t page, int at) { return slots_[{page, at}]; }
  /// Of what fields of a page with so many tokens are computed.
  uint64_t content(int32_t page, int tokens) {
    uint64_t hash = 2;
    for (int i = 0; i < tokens; ++i) hash = mixed(hash, slot(page, i));
    return hash;
  }

  void admit(Side& side, Sequence& sequence) {
    KeptPages& kept = sequence.kept.front();
    for (size_t i = 0; i < kept.copied.size(); ++i) {
      EXPECT_EQ(cache_.users(0, kept.pages[i]), 1);
      for (int at = 0; at < setting_.page; ++at) slot(kept.pages[i], at) = slot(kept.copied[i], at);
    }
    if (side.field_group >= 0) {
      const KeptPages& fields = sequence.kept[static_cast<size_t>(side.field_group)];
      EXPECT_EQ(fields.pages.size(), kept.pages.size());
      for (const int32_t place : fields.stale) {
        const auto index = static_cast<size_t>(place);
        EXPECT_LE((place + 1) * setting_.page, sequence.computed);
        side.fields[fields.pages[index]] = content(kept.pages[index], setting_.page);
        ++stale_;
      }
    }
    side.scheduler->filled(sequence);
    found_ += static_cast<uint64_t>(sequence.computed);
  }

  void step(size_t index) {
    Side& side = sides_[index];
    const auto plan = [&]() -> const ScheduledPass& {
      for (Sequence* sequence : side.scheduler->admit()) admit(side, *sequence);
      return side.scheduler->plan();
    };
    const ScheduledPass* planned = &plan();
    if (planned->empty()) planned = &plan();  // the only one that ran may have given up its pages, and gets others
    const ScheduledPass& pass = *planned;
    if (pass.empty()) {
      EXPECT_TRUE(side.live.empty() || side.scheduler->waits_for_others()) << "requests wait, but nothing runs";
      return;
    }
    const PassBatch batch = pass.batch.batch();
    EXPECT_EQ(batch.field_group, side.field_group);
    for (size_t i = 0; i < pass.entries.size(); ++i) check_and_write(side, batch, pass.entries[i], static_cast<int>(i));
    side.scheduler->complete();
    for (const ScheduledPass::Entry& entry : pass.entries) generate(side, *entry.sequence);
    check_users();
  }

  void check_and_write(Side& side, const PassBatch& batch, const ScheduledPass::Entry& entry, int index) {
    const Sequence& sequence = *entry.sequence;
    const int end = entry.first + entry.rows;
    const auto pages = batch.groups[0].pages(index, setting_.page);
    for (int position = 0; position < entry.first; ++position) {
      ASSERT_EQ(slot(pages[static_cast<size_t>(position / setting_.page)], position % setting_.page), history(sequence, position))
          << "position " << position;
    }
    const bool has_fields = side.field_group >= 0;
    const auto of_fields = has_fields ? batch.groups[static_cast<size_t>(side.field_group)].pages(index, setting_.page) : pages;
    ASSERT_EQ(of_fields.size(), pages.size());
    for (int place = 0; has_fields && place * setting_.page < entry.first; ++place) {
      const auto at = static_cast<size_t>(place);
      const int tokens = std::min(setting_.page, entry.first - place * setting_.page);
      ASSERT_EQ(side.fields[of_fields[at]], content(pages[at], tokens)) << "fields of page " << place;
    }
    for (int position = entry.first; position < end; ++position) {
      const auto at = static_cast<size_t>(position / setting_.page);
      EXPECT_EQ(cache_.users(0, pages[at]), 1) << "a shared page is written";
      slot(pages[at], position % setting_.page) = history(sequence, position);
      if (!has_fields) continue;
      EXPECT_EQ(cache_.users(side.field_group, of_fields[at]), 1) << "a shared page of fields is written";
      side.fields[of_fields[at]] = content(pages[at], position % setting_.page + 1);
    }
  }

  void generate(Side& side, Sequence& sequence) {
    if (sequence.computed < static_cast<int>(sequence.tokens.size())) return;
    if (static_cast<int>(sequence.tokens.size()) < sequence.most_tokens && draw(0, 30) > 0) {
      sequence.tokens.push_back(draw(0, 3));
      return;
    }
    side.scheduler->remove(sequence);
    side.live.erase(uint64_t{sequence.id});
  }

  /// Every page has as many users as sequences list it, and no two groups have the same memory.
  void check_users() {
    int64_t uses = 0;
    std::map<std::pair<int, int32_t>, int> users;
    std::map<size_t, int> owners;  // of slabs
    for (const Side& side : sides_) {
      for (const auto& [id, sequence] : side.live) {
        for (size_t group = 0; group < sequence->kept.size(); ++group) {
          const auto index = static_cast<int>(group);
          for (const int32_t page : sequence->kept[group].pages) {
            ++users[{index, page}];
            ++uses;
            const size_t slab = static_cast<size_t>(page) * map_.page_bytes(index) / slab_bytes();
            EXPECT_EQ(owners.emplace(slab, index).first->second, index) << "slab " << slab;
          }
        }
      }
    }
    EXPECT_EQ(cache_.uses(), uses);
    for (const auto& [page, count] : users) EXPECT_EQ(cache_.users(page.first, page.second), count);
  }
  size_t slab_bytes() const { return map_.bytes() / static_cast<size_t>(map_.slabs()); }

  SharedSetting setting_;
  std::mt19937 random_;
  PageLayout layout_;
  PoolMap map_;
  PageCache cache_;
  std::vector<Side> sides_;
  std::map<std::pair<int32_t, int>, uint64_t> slots_;
  int submitted_ = 0;
  int64_t turns_ = 0;
  uint64_t found_ = 0, stale_ = 0, preemptions_ = 0;
};

TEST(SharedCacheSimulation, PagesHoldTheRightHistoryAndAllEnd) {
  uint64_t found = 0;
  uint64_t stale = 0;
  uint64_t preemptions = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SharedSetting setting;
    setting.seed = seed;
    setting.slabs = 6 + static_cast<int>(seed % 7) * 2;
    setting.slab_pages = 1 + static_cast<int>(seed % 4);
    setting.prefixes = seed % 5 != 0;
    setting.flows = 1 + static_cast<int>(seed % 3);
    setting.max_batch = 1 + static_cast<int>(seed % 5);
    SharedSimulation simulation(setting);
    ASSERT_TRUE(simulation.run(90)) << "seed " << seed;
    found += simulation.found_tokens();
    stale += simulation.stale_pages();
    preemptions += simulation.preemptions();
  }
  EXPECT_GT(found, 5000U);
  EXPECT_GT(stale, 100U);
  EXPECT_GT(preemptions, 100U);
}

// Nobody takes the pages that the first of another scheduler's requests will soon want, and none at all once it has given up its
// own.
TEST(SharedCacheSimulation, TheFirstOfEachSchedulerIsInterruptedOnceAtMost) {
  const PageLayout layout = page_layout({.head_dim = 8, .group = 1, .page = 8}, {});
  const PoolMap map(1, {{{0}, layout}}, layout.bytes * 2, 20);
  PageCache cache(map, {.page = 8, .share = false, .windows = {0}});
  const SchedulerOptions options{.max_batch = 4, .max_pass_tokens = 40, .max_logit_rows = 4};
  Scheduler one(cache, options);
  Scheduler other(cache, options);
  std::vector<std::unique_ptr<Sequence>> sequences;
  const auto add = [&](Scheduler& scheduler, int prompt, int most) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = sequences.size() + 1;
    sequence->prompt = prompt;
    sequence->most_tokens = most;
    sequence->tokens.assign(static_cast<size_t>(prompt), 1);
    scheduler.add(*sequence);
    sequences.push_back(std::move(sequence));
  };
  add(one, 16, 80);
  for (int i = 0; i < 4; ++i) add(other, 16, 80);
  size_t ended = 0;
  for (int turn = 0; turn < 2000 && ended < sequences.size(); ++turn) {
    Scheduler& scheduler = turn % 2 == 0 ? one : other;
    scheduler.admit();
    if (scheduler.plan().empty()) continue;
    scheduler.complete();
    for (const auto& sequence : sequences) {
      if (sequence->computed < static_cast<int>(sequence->tokens.size())) continue;
      if (static_cast<int>(sequence->tokens.size()) < sequence->most_tokens) {
        sequence->tokens.push_back(1);
      } else if (!sequence->pages().empty()) {
        (sequence == sequences.front() ? one : other).remove(*sequence);
        ++ended;
      }
    }
  }
  EXPECT_EQ(ended, sequences.size());
  EXPECT_LE(sequences[0]->preemptions, 1);
  EXPECT_LE(sequences[1]->preemptions, 1);
}

// What was promised to one who has ended is nobody's, though nobody else was there when it ended.
TEST(SharedCacheSimulation, PromisesEndWithRequests) {
  const PageLayout layout = page_layout({.head_dim = 8, .group = 1, .page = 8}, {});
  const PoolMap map(1, {{{0}, layout}}, layout.bytes * 2, 20);
  PageCache cache(map, {.page = 8, .share = false, .windows = {0}});
  const SchedulerOptions options{.max_batch = 4, .max_pass_tokens = 40, .max_logit_rows = 4};
  Scheduler one(cache, options);
  Sequence sequence;
  sequence.id = 1;
  sequence.tokens.assign(16, 1);
  sequence.prompt = 16;
  sequence.most_tokens = 140;
  {
    const Scheduler other(cache, options);
    one.add(sequence);
    one.admit();
    EXPECT_NE(cache.promised(), PageCounts{});
  }
  one.remove(sequence);
  EXPECT_EQ(cache.promised(), PageCounts{});
}

// Small requests of one flow come without end; a large one of another gets its turn.
TEST(SharedCacheSimulation, WhoNeedsMuchIsNotPassedOverForEver) {
  const PageLayout layout = page_layout({.head_dim = 8, .group = 1, .page = 8}, {});
  const PoolMap map(1, {{{0}, layout}}, layout.bytes * 2, 20);
  PageCache cache(map, {.page = 8, .share = false, .windows = {0}});
  const SchedulerOptions options{.max_batch = 8, .max_pass_tokens = 40, .max_logit_rows = 8};
  Scheduler small(cache, options);
  Scheduler large(cache, options);
  std::vector<std::unique_ptr<Sequence>> sequences;
  const auto add = [&](Scheduler& scheduler, int prompt) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = sequences.size() + 1;
    sequence->prompt = prompt;
    sequence->most_tokens = prompt;
    sequence->tokens.assign(static_cast<size_t>(prompt), 1);
    scheduler.add(*sequence);
    sequences.push_back(std::move(sequence));
    return sequences.back().get();
  };
  const auto turn = [&](Scheduler& scheduler) {
    scheduler.admit();
    const ScheduledPass& pass = scheduler.plan();
    if (pass.empty()) return;
    scheduler.complete();
    std::vector<Sequence*> done;
    for (const ScheduledPass::Entry& entry : pass.entries) {
      if (entry.sequence->computed >= entry.sequence->most_tokens) done.push_back(entry.sequence);
    }
    for (Sequence* sequence : done) scheduler.remove(*sequence);
  };
  for (int i = 0; i < 6; ++i) add(small, 30);
  turn(small);
  const Sequence* const wanted = add(large, 150);
  int turns = 0;
  for (; turns < 200 && wanted->computed < wanted->most_tokens; ++turns) {
    add(small, 30);
    turn(small);
    turn(large);
  }
  EXPECT_LT(turns, 60);
}

}  // namespace
}  // namespace sluice
