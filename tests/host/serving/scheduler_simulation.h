#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "host/serving/scheduler.h"

/// Random workloads against a model of what must hold: the simulated device keeps, for every page and slot, which tokens were
/// written there, and every pass must find the right history in its pages.
namespace sluice::testing {

struct Setting {
  unsigned seed;
  int pages;  // of the first group, if it had all memory
  int page;
  SchedulerOptions options;
  bool share;
  std::vector<int> windows = {0};                     // by group
  std::vector<std::optional<Pattern>> patterns = {};  // by group; such groups keep pages as long as they are needed
  bool dense_prefill = false;                         // under the patterns

  bool has_pattern(int group) const {
    return static_cast<size_t>(group) < patterns.size() && patterns[static_cast<size_t>(group)].has_value();
  }
  /// Of a sequence.
  int most_tokens() const { return (patterns.empty() ? 1 : 3) * pages * page; }
  /// What groups see.
  std::vector<GroupView> views() const {
    std::vector<GroupView> views;
    for (size_t group = 0; group < patterns.size(); ++group) {
      GroupView& view = views.emplace_back();
      view.window = windows[group];
      if (!patterns[group]) continue;
      view.pattern = patterns[group];
      view.dense_prefill = dense_prefill;
      view.lives = std::make_shared<PageLives>(PatternAnalysis(*patterns[group]), most_tokens(), page);
    }
    return views;
  }
};

inline SchedulerOptions options_of(const Setting& setting, const std::vector<GroupView>& views) {
  SchedulerOptions options = setting.options;
  options.views = views;
  if (!views.empty()) options.most_positions = setting.most_tokens();
  return options;
}

inline PageCache::Options cache_options(const Setting& setting, const std::vector<GroupView>& views) {
  PageCache::Options options{.page = setting.page, .share = setting.share, .windows = setting.windows};
  for (const GroupView& view : views) options.lives.push_back(view.lives_of_prompts());
  return options;
}

/// Groups of one, two, one, two ... layers, in slabs of a few pages each where there are several.
inline PoolMap map_of(const Setting& setting) {
  const PageLayout layout = page_layout({.head_dim = 8, .group = 1, .page = setting.page}, {});
  if (setting.windows.size() == 1) return {1, 1, setting.pages, layout};
  std::vector<CacheGroup> groups;
  int layer = 0;
  for (size_t group = 0; group < setting.windows.size(); ++group) {
    groups.push_back({{layer++}, layout});
    if (group % 2 == 1) groups.back().layers.push_back(layer++);
  }
  const int slabs = setting.pages / 5;
  return {1, groups, layout.bytes * 6, slabs};
}

class Simulation {
 public:
  explicit Simulation(const Setting& setting)
      : setting_(setting),
        random_(setting.seed),
        map_(map_of(setting)),
        views_(setting.views()),
        cache_(map_, cache_options(setting, views_)),
        scheduler_(cache_, options_of(setting, views_)) {
    for (int group = 0; group < map_.groups(); ++group) {
      written_.emplace_back(static_cast<size_t>(map_.page_limit(group)) * static_cast<size_t>(setting.page));
    }
  }

  // Returns the number of passes.
  int run(int requests) {
    int passes = 0;
    while (submitted_ < requests || !live_.empty()) {
      if (submitted_ < requests && (live_.empty() || draw(0, 3) == 0)) submit();
      if (!live_.empty() && draw(0, 60) == 0) cancel();
      if (live_.empty()) continue;
      const uint64_t preemptions = scheduler_.preemptions();
      const auto admitted = scheduler_.admit();
      EXPECT_TRUE(!admitted.empty() || scheduler_.preemptions() == preemptions) << "somebody gave way to nobody";
      for (Sequence* sequence : admitted) check_admitted(*sequence);
      const ScheduledPass& pass = scheduler_.plan();
      if (pass.empty() && cache_.groups() > 1 && scheduler_.preemptions() > preemptions) {
        EXPECT_EQ(++emptied_, 1) << "whoever was alone gave up its pages, and could not run with others";
        continue;
      }
      EXPECT_FALSE(pass.empty()) << "requests wait, but nothing runs";
      if (pass.empty()) return passes;
      emptied_ = 0;
      check_pass(pass);
      write(pass);
      scheduler_.complete();
      ++passes;
      if (scheduler_.can_plan_ahead() && draw(0, 2) > 0) {
        run_ahead(pass.entries);
        ++ahead_;
      } else {
        generate(pass.entries);
      }
      check_users();
      if (::testing::Test::HasFailure()) return passes;
    }
    for (int group = 0; group < cache_.groups(); ++group) {
      EXPECT_EQ(cache_.available(group), map_.slabs() * map_.slab_pages(group)) << "group " << group;
    }
    return passes;
  }

  uint64_t preemptions() const { return scheduler_.preemptions(); }
  uint64_t shared_tokens() const { return shared_tokens_; }
  uint64_t copied_pages() const { return copied_pages_; }
  uint64_t passes_ahead() const { return ahead_; }
  uint64_t prefills_ahead() const { return prefills_ahead_; }
  uint64_t kept_pages() const { return kept_pages_; }
  uint64_t dropped_pages() const { return dropped_pages_; }

 private:
  /// What is written of a token's key and value in a group.
  std::vector<int32_t>& written(int group, int32_t page, int slot) {
    return written_[static_cast<size_t>(group)]
                   [static_cast<size_t>(page) * static_cast<size_t>(setting_.page) + static_cast<size_t>(slot)];
  }
  /// The same of the token at a position, by the batch's list, which begins with that of the sequence.
  std::vector<int32_t>& written(const PassBatch& batch, const ScheduledPass::Entry& entry, int group, int index, int position) {
    const int slot = position - entry.sequence->kept[static_cast<size_t>(group)].first * setting_.page;
    const auto pages = batch.groups[static_cast<size_t>(group)].pages(index, setting_.page);
    return written(group, pages[static_cast<size_t>(slot / setting_.page)], slot % setting_.page);
  }
  static std::vector<int32_t> history(const Sequence& sequence, int position) {
    return {sequence.tokens.begin(), sequence.tokens.begin() + position + 1};
  }

  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void submit() {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = static_cast<uint64_t>(++submitted_);
    sequence->priority = draw(0, 9) == 0 ? 1 : 0;
    sequence->caller = static_cast<uint64_t>(draw(0, static_cast<int>(setting_.seed % 3)));
    int capacity = setting_.most_tokens();
    while (!scheduler_.could_hold(capacity)) --capacity;
    sequence->prompt = draw(1, std::min(draw(0, 9) == 0 ? capacity : capacity / 2, setting_.patterns.empty() ? 60 : 300));
    sequence->most_tokens = std::min(capacity, sequence->prompt + draw(0, 40));
    sequence->prompt_logits = draw(0, 9) == 0;
    sequence->own_pages = draw(0, 4) == 0;
    // Few different beginnings, so that prefixes meet.
    const int family = draw(0, 2);
    const int common = draw(0, sequence->prompt);
    for (int i = 0; i < sequence->prompt; ++i) sequence->tokens.push_back(i < common ? family * 1000 + i : draw(0, 3));
    scheduler_.add(*sequence);
    live_[sequence->id] = std::move(sequence);
  }

  void cancel() {
    auto victim = std::next(live_.begin(), draw(0, static_cast<int>(live_.size()) - 1));
    scheduler_.remove(*victim->second);
    live_.erase(victim);
  }

  void check_admitted(Sequence& sequence) {
    copy(sequence);
    const int first_pages = cache_.lives(0) != nullptr ? sequence.computed : static_cast<int>(sequence.tokens.size());
    EXPECT_EQ(static_cast<int>(sequence.pages().size()), pages_for(first_pages, setting_.page));
    for (int group = 0; group < cache_.groups(); ++group) {
      EXPECT_EQ(sequence.kept[static_cast<size_t>(group)].first, cache_.first_page(group, sequence.computed));
    }
    EXPECT_LT(sequence.computed, static_cast<int>(sequence.tokens.size()));
    if (sequence.prompt_logits) {
      EXPECT_EQ(sequence.computed, 0);
    }
    if (setting_.options.decode_differs) {
      EXPECT_LT(sequence.computed, sequence.prompt);
    }
    shared_tokens_ += static_cast<uint64_t>(sequence.computed);
  }

  void copy(Sequence& sequence) {
    EXPECT_EQ(sequence.kept.front().copied.size() * static_cast<size_t>(setting_.page),
              sequence.own_pages ? static_cast<size_t>(sequence.computed) : 0U);
    for (int group = 0; group < cache_.groups(); ++group) {
      const KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
      for (size_t i = 0; i < kept.copied.size(); ++i) {
        if (kept.copied[i] == PageCache::kMissing) continue;
        EXPECT_EQ(cache_.users(group, kept.pages[i]), 1);
        for (int slot = 0; slot < setting_.page; ++slot) {
          written(group, kept.pages[i], slot) = written(group, kept.copied[i], slot);
        }
      }
      copied_pages_ += kept.copied.size();
    }
    scheduler_.filled(sequence);
  }

  void check_pass(const ScheduledPass& pass) {
    EXPECT_LE(static_cast<int>(pass.entries.size()), setting_.options.max_batch);
    EXPECT_LE(static_cast<int>(pass.tokens.size()), setting_.options.max_pass_tokens);
    EXPECT_LE(static_cast<int>(pass.logit_rows.size()), setting_.options.max_logit_rows);
    std::set<const Sequence*> seen;
    std::set<std::pair<int, const std::vector<int32_t>*>> targets;
    bool prefill = false;
    const PassBatch batch = pass.batch.batch();
    EXPECT_EQ(batch.rows(), static_cast<int>(pass.tokens.size()));
    for (size_t i = 0; i < pass.entries.size(); ++i) {
      const ScheduledPass::Entry& entry = pass.entries[i];
      const auto index = static_cast<int>(i);
      EXPECT_TRUE(seen.insert(entry.sequence).second);
      EXPECT_EQ(entry.first, entry.sequence->computed);
      if (entry.decoding) {
        EXPECT_EQ(entry.rows, 1);
      }
      EXPECT_FALSE(entry.decoding && prefill) << "decode steps come first";
      prefill = prefill || !entry.decoding;
      if (!entry.decoding) {
        EXPECT_LT(entry.first + entry.rows, static_cast<int>(entry.sequence->tokens.size()));
      }
      if (setting_.options.decode_differs) {
        EXPECT_EQ(entry.decoding, entry.first >= entry.sequence->prompt - 1);
      }
      for (int group = 0; group < cache_.groups(); ++group) check_group(pass, batch, index, group, targets);
      for (int row = entry.first; row < entry.first + entry.rows; ++row) {
        const int32_t token = pass.tokens[static_cast<size_t>(batch.query_indptr[i] + row - entry.first)];
        EXPECT_EQ(token, entry.sequence->tokens[static_cast<size_t>(row)]);
      }
    }
  }

  void check_group(const ScheduledPass& pass, const PassBatch& batch, int index, int group,
                   std::set<std::pair<int, const std::vector<int32_t>*>>& targets) {
    const ScheduledPass::Entry& entry = pass.entries[static_cast<size_t>(index)];
    const GroupPages& pages = batch.groups[static_cast<size_t>(group)];
    if (setting_.has_pattern(group)) return check_pattern_group(entry, batch, index, group, targets);
    const KeptPages& kept = entry.sequence->kept[static_cast<size_t>(group)];
    const int window = cache_.window(group);
    const int begin = kept.first * setting_.page;
    EXPECT_EQ(pages.lengths[index] + begin, entry.first + entry.rows);
    if (window > 0) {
      EXPECT_LE(static_cast<int>(kept.pages.size()), pages_for(window + setting_.options.max_pass_tokens, setting_.page) + 1);
    }
    // What rows see is this sequence's history, and what they do not see may be anything.
    const int first_seen = window == 0 ? 0 : std::max(0, entry.first - window + 1);
    for (int position = first_seen; position < entry.first; ++position) {
      ASSERT_EQ(written(batch, entry, group, index, position), history(*entry.sequence, position)) << "position " << position;
    }
    for (int row = 0; row < entry.rows; ++row) {
      const int position = entry.first + row;
      EXPECT_EQ(pages.slots[batch.query_indptr[index] + row], position - begin);
      // What is written is nobody else's.
      EXPECT_TRUE(targets.insert({group, &written(batch, entry, group, index, position)}).second);
      const int32_t page = kept.pages[static_cast<size_t>(position / setting_.page - kept.first)];
      EXPECT_EQ(cache_.users(group, page), 1) << "a shared page is written";
      for (int seen = begin; seen < begin + pages.lengths[index]; ++seen) {
        const bool wanted = seen <= position && (window == 0 || seen > position - window);
        bool got = seen <= position;
        if (pages.is_masked(index)) {
          const auto word = pages.mask_indptr[index] + row * pages.mask_words(index) + (seen - begin) / 32;
          got = (pages.masks[word] >> ((seen - begin) % 32) & 1) != 0;
        }
        ASSERT_EQ(got, wanted) << "position " << position << " and " << seen << " of group " << group;
      }
    }
  }

  /// Where the row at a position goes, by the batch's list, whatever pages that leaves out.
  std::vector<int32_t>& target(const PassBatch& batch, const ScheduledPass::Entry& entry, int group, int index, int position) {
    const GroupPages& pages = batch.groups[static_cast<size_t>(group)];
    const int slot = pages.slots[static_cast<size_t>(batch.query_indptr[static_cast<size_t>(index)] + position - entry.first)];
    return written(group, pages.pages(index, setting_.page)[static_cast<size_t>(slot / setting_.page)], slot % setting_.page);
  }

  /// Rows see the history of every position that the pattern names, and of no other.
  void check_pattern_group(const ScheduledPass::Entry& entry, const PassBatch& batch, int index, int group,
                           std::set<std::pair<int, const std::vector<int32_t>*>>& targets) {
    const GroupPages& pages = batch.groups[static_cast<size_t>(group)];
    const std::span<const int32_t> listed = pages.pages(index, setting_.page);
    const Pattern& pattern = *setting_.patterns[static_cast<size_t>(group)];
    const bool sees_all = setting_.dense_prefill && !entry.decoding;
    std::map<int, int> positions;  // of this pass's rows, by slot
    for (int row = 0; row < entry.rows; ++row) {
      const int slot = pages.slots[static_cast<size_t>(batch.query_indptr[static_cast<size_t>(index)] + row)];
      positions[slot] = entry.first + row;
      EXPECT_TRUE(targets.insert({group, &target(batch, entry, group, index, entry.first + row)}).second);
      EXPECT_EQ(cache_.users(group, listed[static_cast<size_t>(slot / setting_.page)]), 1) << "a shared page is written";
    }
    for (int row = 0; row < entry.rows; ++row) {
      std::vector<int> wanted;
      for (int seen = 0; seen <= entry.first + row; ++seen) {
        if (sees_all || pattern.sees(entry.first + row, seen)) wanted.push_back(seen);
      }
      std::vector<int> got;
      const int own = pages.slots[static_cast<size_t>(batch.query_indptr[static_cast<size_t>(index)] + row)];
      for (int slot = 0; slot < pages.lengths[index]; ++slot) {
        const auto word = pages.is_masked(index) ? pages.mask_indptr[index] + row * pages.mask_words(index) + slot / 32 : 0;
        if (pages.is_masked(index) ? (pages.masks[word] >> (slot % 32) & 1) == 0 : slot > own) continue;
        if (positions.contains(slot)) {
          got.push_back(positions[slot]);
          continue;
        }
        const std::vector<int32_t>& held =
            written(group, listed[static_cast<size_t>(slot / setting_.page)], slot % setting_.page);
        got.push_back(static_cast<int>(held.size()) - 1);
        ASSERT_EQ(held, history(*entry.sequence, got.back())) << "slot " << slot << " of group " << group;
      }
      ASSERT_EQ(got, wanted) << "position " << entry.first + row << " of group " << group;
    }
  }

  /// Pages that no later row reads are gone, but for one that the next is published after.
  void check_gone(const Sequence& sequence, int group) {
    if (!setting_.has_pattern(group) || (setting_.dense_prefill && sequence.computed < sequence.prompt - 1)) return;
    const Pattern& pattern = *setting_.patterns[static_cast<size_t>(group)];
    const KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
    for (int place = 0; place < static_cast<int>(kept.pages.size()); ++place) {
      if (kept.pages[static_cast<size_t>(place)] == PageCache::kMissing) continue;
      if (group == 0 && place == sequence.published - 1) continue;
      if (sequence.computed < (place + 1) * setting_.page) continue;
      bool is_read = false;
      for (int row = sequence.computed; row < setting_.most_tokens() && !is_read; ++row) {
        for (int token = place * setting_.page; token < (place + 1) * setting_.page; ++token) {
          is_read = is_read || pattern.sees(row, token);
        }
      }
      EXPECT_TRUE(is_read) << "page " << place << " of group " << group << " after " << sequence.computed << " tokens";
      ++kept_pages_;
    }
    dropped_pages_ += static_cast<uint64_t>(std::count(kept.pages.begin(), kept.pages.end(), PageCache::kMissing));
  }

  void write(const ScheduledPass& pass) {
    const PassBatch batch = pass.batch.batch();
    for (size_t i = 0; i < pass.entries.size(); ++i) {
      const ScheduledPass::Entry& entry = pass.entries[i];
      for (int group = 0; group < cache_.groups(); ++group) {
        for (int row = entry.first; row < entry.first + entry.rows; ++row) {
          std::vector<int32_t>& to = setting_.has_pattern(group) ? target(batch, entry, group, static_cast<int>(i), row)
                                                                 : written(batch, entry, group, static_cast<int>(i), row);
          to = history(*entry.sequence, row);
        }
      }
    }
  }

  /// Another pass before the tokens of the last one, whose entries these are, are known. Some of them end a sequence.
  void run_ahead(const std::vector<ScheduledPass::Entry> entries) {
    std::map<int32_t, const Sequence*> places;
    for (const ScheduledPass::Entry& entry : entries) {
      if (entry.logit_rows > 0) places.emplace(-1 - static_cast<int32_t>(places.size()), entry.sequence);
    }
    const uint64_t preemptions = scheduler_.preemptions();
    scheduler_.expect();
    for (Sequence* sequence : scheduler_.admit()) check_admitted(*sequence);
    const ScheduledPass& next = scheduler_.plan();
    EXPECT_FALSE(next.empty());
    // A page taken in place of an idle one may begin a slab that another group was to have.
    if (setting_.patterns.size() < 2 || !setting_.share) EXPECT_EQ(scheduler_.preemptions(), preemptions);
    check_pass(next);
    size_t row = 0;
    for (const ScheduledPass::Entry& entry : next.entries) {
      for (int i = 0; i < entry.rows; ++i, ++row) {
        if (next.tokens[row] >= 0) continue;
        EXPECT_TRUE(entry.decoding);
        EXPECT_EQ(places.at(next.tokens[row]), entry.sequence);
      }
    }
    prefills_ahead_ += next.has_prefill() ? 1 : 0;
    write(next);
    scheduler_.complete();
    for (const ScheduledPass::Entry& entry : entries) {
      if (entry.logit_rows == 0) continue;
      Sequence& sequence = *entry.sequence;
      const bool ends = sequence.computed >= sequence.most_tokens && sequence.unknown == 0;
      if (ends || draw(0, 20) == 0) {
        scheduler_.remove(sequence);
        live_.erase(uint64_t{sequence.id});
        continue;
      }
      scheduler_.learn(sequence, draw(0, 3));
      EXPECT_EQ(sequence.unknown, 0);
      const auto at = static_cast<size_t>(entry.first + entry.rows);  // of the token, as the next pass has written it
      for (int group = 0; group < cache_.groups(); ++group) {
        const KeptPages& kept = sequence.kept[static_cast<size_t>(group)];
        const auto place = static_cast<ptrdiff_t>(at / static_cast<size_t>(setting_.page)) - kept.first;
        if (place < 0 || place >= std::ssize(kept.pages)) continue;
        if (kept.pages[static_cast<size_t>(place)] == PageCache::kMissing) continue;
        written(group, kept.pages[static_cast<size_t>(place)], static_cast<int>(at) % setting_.page) =
            history(sequence, static_cast<int>(at));
      }
    }
    generate(next.entries);
  }

  void generate(const std::vector<ScheduledPass::Entry> entries) {
    for (const ScheduledPass::Entry& entry : entries) {
      if (entry.sequence == nullptr) continue;  // it has ended meanwhile
      Sequence& sequence = *entry.sequence;
      if (sequence.computed < static_cast<int>(sequence.tokens.size())) continue;
      if (static_cast<int>(sequence.tokens.size()) >= sequence.most_tokens) {
        scheduler_.remove(sequence);
        live_.erase(uint64_t{sequence.id});
      } else {
        sequence.tokens.push_back(draw(0, 3));
      }
    }
  }

  // Every page has as many users as sequences list it, and all others can be had.
  void check_users() {
    PageCounts used{};
    for (int group = 0; group < cache_.groups(); ++group) {
      std::map<int32_t, int> users;
      for (const auto& [id, sequence] : live_) {
        for (const int32_t page : sequence->kept[static_cast<size_t>(group)].pages) {
          if (page != PageCache::kMissing) ++users[page];
        }
        if (draw(0, 3) == 0) check_gone(*sequence, group);
      }
      used[static_cast<size_t>(group)] = static_cast<int>(users.size());
      for (int slab = 0; slab < map_.slabs(); ++slab) {
        const int32_t first = map_.first_page(group, slab);
        for (int32_t page = first; page < first + map_.slab_pages(group); ++page) {
          EXPECT_EQ(cache_.users(group, page), users.contains(page) ? users[page] : 0)
              << "page " << page << " of group " << group;
        }
      }
    }
    if (cache_.groups() == 1) {
      EXPECT_EQ(cache_.available(), setting_.pages - used[0]);
    }
  }

  Setting setting_;
  std::mt19937 random_;
  PoolMap map_;
  std::vector<GroupView> views_;
  PageCache cache_;
  Scheduler scheduler_;
  std::vector<std::vector<std::vector<int32_t>>> written_;  // [group][page * slots] tokens up to the one whose K and V lie there
  std::map<uint64_t, std::unique_ptr<Sequence>> live_;
  int submitted_ = 0;
  uint64_t shared_tokens_ = 0;
  uint64_t copied_pages_ = 0;
  uint64_t ahead_ = 0;
  uint64_t prefills_ahead_ = 0;
  uint64_t kept_pages_ = 0;
  uint64_t dropped_pages_ = 0;
  int emptied_ = 0;  // plans in a row that had nothing, while somebody waited
};

}  // namespace sluice::testing
