#include "kernels/device/batch_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "scripting/base/bits.h"

namespace sluice {
namespace {

/// A place in the pool: the page, and the token in it.
using Place = std::pair<int32_t, int>;

Place place_of(const GroupPages& kept, int page, int slot) {
  return {kept.page_indices[static_cast<size_t>(kept.page_indptr[1] + slot / page)], slot % page};
}

/// What the second of two sequences, which has one row, sees in a head.
std::set<Place> seen_places(const GroupPages& kept, int page, int head) {
  std::set<Place> places;
  for (int slot = 0; slot < kept.lengths[1]; ++slot) {
    const bool seen = kept.is_masked(1) ? has_bit(kept.mask(1, 0, head), slot) : slot <= kept.slots[1];
    if (seen) places.insert(place_of(kept, page, slot));
  }
  return places;
}

TEST(BatchBuilder, PagesThatARowDoesNotSeeLeaveItsListAndNothingElseChanges) {
  std::mt19937 random(5);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  for (int run = 0; run < 500; ++run) {
    const int page = 8 << below(3);
    const int length = 1 + below(300);
    std::vector<int32_t> pages(static_cast<size_t>((length + page - 1) / page));
    std::iota(pages.begin(), pages.end(), 100);
    std::shuffle(pages.begin(), pages.end(), random);
    BatchBuilder builder(page);
    const int heads = 1 + 2 * below(2);
    builder.set_mask_heads(0, heads);
    builder.add({.first = 0, .rows = 1, .decoding = true}, std::vector<int32_t>{7});
    const std::vector<int> slot = {below(length)};
    builder.add_at(slot, {.decoding = true});
    const std::span<uint32_t> masks = builder.keep_slots(0, pages, length, slot);
    const size_t words = masks.size() / static_cast<size_t>(heads);
    const int share = 1 + below(60);
    const bool has_beside = slot[0] == length - 1;  // where slots are positions
    const Pattern beside = Pattern::strided(1 + below(40), 1 + below(90));
    if (has_beside) builder.see_beside(0, beside);
    std::vector<std::set<Place>> by_head(static_cast<size_t>(heads));
    std::set<Place> wanted;  // by any head
    for (int i = 0; i < length * heads; ++i) {
      if (below(share) != 0) continue;
      const auto head = static_cast<size_t>(i % heads);
      const int token = i / heads;
      set_bit(masks.subspan(head * words, words), token);
      by_head[head].insert({pages[static_cast<size_t>(token / page)], token % page});
      wanted.insert({pages[static_cast<size_t>(token / page)], token % page});
    }
    builder.drop_unseen_pages(0);
    const PassBatch batch = builder.batch();
    const GroupPages& kept = batch.groups[0];
    for (int head = 0; head < heads; ++head) {
      ASSERT_EQ(seen_places(kept, page, head), by_head[static_cast<size_t>(head)]) << run << ", head " << head;
    }
    ASSERT_EQ(place_of(kept, page, kept.slots[1]), (Place{pages[static_cast<size_t>(slot[0] / page)], slot[0] % page})) << run;
    std::set<int32_t> needed = {pages[static_cast<size_t>(slot[0] / page)]};
    for (const Place& place : wanted) needed.insert(place.first);
    ASSERT_EQ(kept.page_indptr[2] - kept.page_indptr[1], static_cast<int>(needed.size())) << run;
    ASSERT_LE(kept.lengths[1], static_cast<int>(needed.size()) * page) << run;
    ASSERT_GT(kept.lengths[1], (static_cast<int>(needed.size()) - 1) * page) << run;
    ASSERT_EQ(kept.page_indices[0], 7);
    std::set<Place> told;
    for (int i = kept.beside.indptr[1]; i < kept.beside.indptr[2]; ++i) {
      const auto words = kept.beside.words.subspan(static_cast<size_t>(i * page_words(page)), page_words(page));
      ASSERT_TRUE(has_any_bit(words, 0, page)) << run;
      for (int token = 0; token < page; ++token) {
        if (has_bit(words, token)) told.insert(place_of(kept, page, kept.beside.pages[i] * page + token));
      }
    }
    std::set<Place> beside_and_seen;
    for (int token = 0; token < length && has_beside; ++token) {
      const Place place = {pages[static_cast<size_t>(token / page)], token % page};
      if (beside.sees(slot[0], token) && wanted.contains(place)) beside_and_seen.insert(place);
    }
    ASSERT_EQ(told, beside_and_seen) << run;
  }
}

TEST(BatchBuilder, HeadsKeepSlotsOfTheirOwnWhenPagesLeave) {
  std::mt19937 random(6);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  constexpr int kPage = 8;
  constexpr int kHeads = 3;
  for (int run = 0; run < 300; ++run) {
    BatchBuilder builder(kPage);
    builder.set_mask_heads(0, kHeads);
    builder.set_head_slots(0);
    builder.add({.first = 3, .rows = 2, .decoding = false});
    const std::vector<int32_t> chunk = {3, 0, 5, 4, 1, 7};
    builder.keep_slots(0, std::vector<int32_t>{7}, 8, chunk);
    const int length = kHeads + below(200);
    std::vector<int32_t> pages(static_cast<size_t>(pages_for(length, kPage)));
    std::iota(pages.begin(), pages.end(), 100);
    std::shuffle(pages.begin(), pages.end(), random);
    builder.add({.first = 500, .rows = 1, .decoding = true});
    const std::vector<int32_t> own = {below(length), below(length), below(length)};
    const std::span<uint32_t> masks = builder.keep_slots(0, pages, length, own);
    const size_t words = masks.size() / kHeads;
    const int share = 1 + below(40);
    std::vector<std::set<Place>> seen(kHeads);
    for (int i = 0; i < length * kHeads; ++i) {
      if (below(share) != 0) continue;
      set_bit(masks.subspan(static_cast<size_t>(i % kHeads) * words, words), i / kHeads);
      seen[static_cast<size_t>(i % kHeads)].insert({pages[static_cast<size_t>(i / kHeads / kPage)], i / kHeads % kPage});
    }
    builder.drop_unseen_pages(0);
    const PassBatch batch = builder.batch();
    const GroupPages& kept = batch.groups[0];
    ASSERT_TRUE(kept.is_masked(1)) << "slots of the first head say nothing of the others";
    for (int head = 0; head < kHeads; ++head) {
      const int32_t slot = own[static_cast<size_t>(head)];
      ASSERT_EQ(place_of(kept, kPage, kept.slot(2, head)), (Place{pages[static_cast<size_t>(slot / kPage)], slot % kPage}));
      ASSERT_EQ(seen_places(kept, kPage, head), seen[static_cast<size_t>(head)]) << run << ", head " << head;
      ASSERT_EQ(kept.slot(1, head), chunk[static_cast<size_t>(kHeads + head)]);
    }
    ASSERT_EQ(kept.slots[2], kept.slot(2, 0));
    for (int page = 0; page < kept.page_indptr[2] - kept.page_indptr[1]; ++page) {
      bool is_needed = false;
      for (int head = 0; head < kHeads; ++head) {
        is_needed = is_needed || kept.slot(2, head) / kPage == page ||
                    has_any_bit(kept.mask(1, 0, head), page * kPage, std::min(kept.lengths[1], (page + 1) * kPage));
      }
      ASSERT_TRUE(is_needed) << run << ", page " << page;
    }
  }
}

}  // namespace
}  // namespace sluice
