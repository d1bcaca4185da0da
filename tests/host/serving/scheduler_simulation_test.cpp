// Random workloads against a model of what must hold: the simulated device keeps, for every page and slot, which tokens were
// written there, and every pass must find the right history in its pages.
#include "host/serving/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "scripting/base/error.h"

namespace sluice {
namespace {

struct Setting {
  unsigned seed;
  int pages;
  int page;
  SchedulerOptions options;
  bool share;
};

/// Slot of the pool that holds row `row` of a sequence.
int64_t slot_of(const PassBatch& batch, int sequence, int row, int page) {
  return int64_t{batch.pages(sequence, page)[static_cast<size_t>(row / page)]} * page + row % page;
}

class Simulation {
 public:
  explicit Simulation(const Setting& setting)
      : setting_(setting),
        random_(setting.seed),
        cache_(setting.pages, setting.page, setting.share),
        scheduler_(cache_, setting.options),
        written_(static_cast<size_t>(setting.pages) * static_cast<size_t>(setting.page)) {}

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
      const Pass& pass = scheduler_.plan();
      EXPECT_FALSE(pass.empty()) << "requests wait, but nothing runs";
      if (pass.empty()) return passes;
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
    EXPECT_EQ(cache_.available(), cache_.pages());
    return passes;
  }

  uint64_t preemptions() const { return scheduler_.preemptions(); }
  uint64_t shared_tokens() const { return shared_tokens_; }
  uint64_t copied_pages() const { return copied_pages_; }
  uint64_t passes_ahead() const { return ahead_; }
  uint64_t prefills_ahead() const { return prefills_ahead_; }

 private:
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void submit() {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = static_cast<uint64_t>(++submitted_);
    sequence->priority = draw(0, 9) == 0 ? 1 : 0;
    sequence->caller = static_cast<uint64_t>(draw(0, static_cast<int>(setting_.seed % 3)));
    const int capacity = setting_.pages * setting_.page;
    sequence->prompt = draw(1, std::min(draw(0, 9) == 0 ? capacity : capacity / 2, 60));
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
    EXPECT_EQ(static_cast<int>(sequence.pages.size()), pages_for(static_cast<int>(sequence.tokens.size()), setting_.page));
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
    EXPECT_EQ(sequence.copied.size() * static_cast<size_t>(setting_.page),
              sequence.own_pages ? static_cast<size_t>(sequence.computed) : 0U);
    for (size_t i = 0; i < sequence.copied.size(); ++i) {
      EXPECT_EQ(cache_.users(sequence.pages[i]), 1);
      for (int slot = 0; slot < setting_.page; ++slot) {
        const auto at = [&](int32_t page) -> auto& {
          return written_[static_cast<size_t>(page) * static_cast<size_t>(setting_.page) + static_cast<size_t>(slot)];
        };
        at(sequence.pages[i]) = at(sequence.copied[i]);
      }
    }
    copied_pages_ += sequence.copied.size();
    scheduler_.release_copied(sequence);
  }

  void check_pass(const Pass& pass) {
    EXPECT_LE(static_cast<int>(pass.entries.size()), setting_.options.max_batch);
    EXPECT_LE(static_cast<int>(pass.tokens.size()), setting_.options.max_pass_tokens);
    EXPECT_LE(static_cast<int>(pass.logit_rows.size()), setting_.options.max_logit_rows);
    std::set<const Sequence*> seen;
    std::set<int64_t> targets;
    bool prefill = false;
    const PassBatch batch = pass.batch();
    EXPECT_EQ(batch.rows(), static_cast<int>(pass.tokens.size()));
    for (size_t i = 0; i < pass.entries.size(); ++i) {
      const Pass::Entry& entry = pass.entries[i];
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
      EXPECT_EQ(batch.lengths[i], entry.first + entry.rows);
      // What is there already is this sequence's history.
      for (int row = 0; row < entry.first; ++row) {
        const std::vector<int32_t> history(entry.sequence->tokens.begin(), entry.sequence->tokens.begin() + row + 1);
        ASSERT_EQ(written_[static_cast<size_t>(slot_of(batch, index, row, setting_.page))], history) << "row " << row;
      }
      // What is written is nobody else's.
      for (int row = entry.first; row < entry.first + entry.rows; ++row) {
        EXPECT_TRUE(targets.insert(slot_of(batch, index, row, setting_.page)).second);
        EXPECT_EQ(cache_.users(entry.sequence->pages[static_cast<size_t>(row / setting_.page)]), 1) << "a shared page is written";
        const int32_t token = pass.tokens[static_cast<size_t>(batch.query_indptr[i] + row - entry.first)];
        EXPECT_EQ(token, entry.sequence->tokens[static_cast<size_t>(row)]);
      }
    }
  }

  void write(const Pass& pass) {
    const PassBatch batch = pass.batch();
    for (size_t i = 0; i < pass.entries.size(); ++i) {
      const Pass::Entry& entry = pass.entries[i];
      for (int row = entry.first; row < entry.first + entry.rows; ++row) {
        const auto place = static_cast<size_t>(slot_of(batch, static_cast<int>(i), row, setting_.page));
        written_[place].assign(entry.sequence->tokens.begin(), entry.sequence->tokens.begin() + row + 1);
      }
    }
  }

  /// Another pass before the tokens of the last one, whose entries these are, are known. Some of them end a sequence.
  void run_ahead(const std::vector<Pass::Entry> entries) {
    std::map<int32_t, const Sequence*> places;
    for (const Pass::Entry& entry : entries) {
      if (entry.logit_rows > 0) places.emplace(-1 - static_cast<int32_t>(places.size()), entry.sequence);
    }
    const uint64_t preemptions = scheduler_.preemptions();
    scheduler_.expect();
    for (Sequence* sequence : scheduler_.admit()) check_admitted(*sequence);
    const Pass& next = scheduler_.plan();
    EXPECT_FALSE(next.empty());
    EXPECT_EQ(scheduler_.preemptions(), preemptions);
    check_pass(next);
    size_t row = 0;
    for (const Pass::Entry& entry : next.entries) {
      for (int i = 0; i < entry.rows; ++i, ++row) {
        if (next.tokens[row] >= 0) continue;
        EXPECT_TRUE(entry.decoding);
        EXPECT_EQ(places.at(next.tokens[row]), entry.sequence);
      }
    }
    prefills_ahead_ += next.has_prefill() ? 1 : 0;
    write(next);
    scheduler_.complete();
    for (const Pass::Entry& entry : entries) {
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
      const int32_t page = sequence.pages[at / static_cast<size_t>(setting_.page)];
      written_[static_cast<size_t>(page) * static_cast<size_t>(setting_.page) + at % static_cast<size_t>(setting_.page)].assign(
          sequence.tokens.begin(), sequence.tokens.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    generate(next.entries);
  }

  void generate(const std::vector<Pass::Entry> entries) {
    for (const Pass::Entry& entry : entries) {
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

  // Every page has as many users as sequences list it.
  void check_users() {
    std::map<int32_t, int> users;
    for (const auto& [id, sequence] : live_) {
      for (const int32_t page : sequence->pages) ++users[page];
    }
    for (int32_t page = 0; page < setting_.pages; ++page) EXPECT_EQ(cache_.users(page), users[page]) << "page " << page;
    EXPECT_EQ(cache_.available(), setting_.pages - static_cast<int>(users.size() - zeros(users)));
  }

  static size_t zeros(const std::map<int32_t, int>& users) {
    size_t count = 0;
    for (const auto& [page, number] : users) count += number == 0 ? 1 : 0;
    return count;
  }

  Setting setting_;
  std::mt19937 random_;
  PageCache cache_;
  Scheduler scheduler_;
  std::vector<std::vector<int32_t>> written_;  // [page * slots] the tokens up to the one whose K and V lie there
  std::map<uint64_t, std::unique_ptr<Sequence>> live_;
  int submitted_ = 0;
  uint64_t shared_tokens_ = 0;
  uint64_t copied_pages_ = 0;
  uint64_t ahead_ = 0;
  uint64_t prefills_ahead_ = 0;
};

TEST(Scheduler, RandomWorkloadsKeepEveryInvariant) {
  uint64_t preemptions = 0;
  uint64_t shared = 0;
  uint64_t copied = 0;
  uint64_t ahead = 0;
  uint64_t prefills = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const bool differs = seed % 2 == 1;
    const bool share = seed % 3 != 0;
    const int pages = seed % 4 == 0 ? 12 : 40;
    Simulation simulation({seed, pages, 8, {6, seed % 5 == 0 ? 6 : 40, 6 + static_cast<int>(seed % 4), differs}, share});
    simulation.run(60);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    preemptions += simulation.preemptions();
    shared += simulation.shared_tokens();
    copied += simulation.copied_pages();
    ahead += simulation.passes_ahead();
    prefills += simulation.prefills_ahead();
  }
  EXPECT_GT(preemptions, 50U);  // or the simulation would not show what it should
  EXPECT_GT(shared, 500U);
  EXPECT_GT(copied, 50U);
  EXPECT_GT(ahead, 500U);
  EXPECT_GT(prefills, 100U);
}

}  // namespace
}  // namespace sluice
