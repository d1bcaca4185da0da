#include "host/serving/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "host/serving/idle_pages.h"
#include "host/serving/page_cache.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

TEST(BlockPool, GivesEveryPageOnce) {
  BlockPool pool(5);
  std::set<int32_t> pages;
  for (int i = 0; i < 5; ++i) pages.insert(pool.allocate());
  EXPECT_EQ(pages, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.allocate(), -1);
}

TEST(BlockPool, CountsUsers) {
  BlockPool pool(1);
  const int32_t page = pool.allocate();
  pool.retain(page);
  EXPECT_EQ(pool.release(page), 1);
  EXPECT_EQ(pool.release(page), 0);
  EXPECT_EQ(pool.free_pages(), 0);
  pool.recycle(page);
  EXPECT_EQ(pool.free_pages(), 1);
}

TEST(BlockPool, NoticesMisuse) {
  BlockPool pool(2);
  EXPECT_THROW(pool.release(0), InternalError);
  const int32_t page = pool.allocate();
  EXPECT_THROW(pool.recycle(page), InternalError);
  pool.release(page);
  pool.recycle(page);
  EXPECT_THROW(pool.recycle(page), InternalError);
  EXPECT_THROW(pool.retain(page), InternalError) << "it is free";
}

TEST(PrefixIndex, TellsEqualTokensAfterDifferentParentsApart) {
  PrefixIndex index(8, 2);
  index.insert(PrefixIndex::kRoot, std::vector<int32_t>{1, 2}, 0);
  index.insert(PrefixIndex::kRoot, std::vector<int32_t>{3, 4}, 1);
  index.insert(0, std::vector<int32_t>{5, 6}, 2);
  EXPECT_EQ(index.find(0, std::vector<int32_t>{5, 6}), 2);
  EXPECT_EQ(index.find(1, std::vector<int32_t>{5, 6}), PrefixIndex::kNone);
  EXPECT_EQ(index.find(PrefixIndex::kRoot, std::vector<int32_t>{5, 6}), PrefixIndex::kNone);
  EXPECT_EQ(index.find(PrefixIndex::kRoot, std::vector<int32_t>{2, 1}), PrefixIndex::kNone);
}

TEST(PrefixIndex, ReusedParentDoesNotInheritChildren) {
  PrefixIndex index(4, 1);
  index.insert(PrefixIndex::kRoot, std::vector<int32_t>{1}, 0);
  index.insert(0, std::vector<int32_t>{9}, 1);
  index.erase(0);
  index.insert(PrefixIndex::kRoot, std::vector<int32_t>{1}, 0);  // even the same content: the child was of the page before
  EXPECT_EQ(index.find(0, std::vector<int32_t>{9}), PrefixIndex::kNone);
}

TEST(IdlePages, TheLongestIdleComesFirst) {
  IdlePages idle(4);
  for (const int32_t page : {2, 0, 3}) idle.add(page);
  idle.remove(0);
  idle.add(0);
  std::vector<int32_t> order;
  for (; idle.count() > 0; idle.remove(idle.oldest())) order.push_back(idle.oldest());
  EXPECT_EQ(order, (std::vector<int32_t>{2, 3, 0}));
  EXPECT_EQ(idle.oldest(), IdlePages::kNone);
  EXPECT_THROW(idle.remove(1), InternalError);
}

int match(PageCache& cache, const std::vector<int32_t>& tokens, std::vector<int32_t>& found) {
  std::vector<int32_t>* const lists[] = {&found};
  return cache.match(tokens, lists);
}

TEST(PageCache, SharesPublishedPagesAndEvictsThemLast) {
  PageCache cache(3, 2, true);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  std::vector<int32_t> pages = {cache.take(0), cache.take(0)};
  pages[0] = cache.publish(PrefixIndex::kRoot, std::vector<int32_t>{1, 2}, pages[0]);
  pages[1] = cache.publish(pages[0], std::vector<int32_t>{3, 4}, pages[1]);
  std::vector<int32_t> found;
  EXPECT_EQ(match(cache, tokens, found), 2);
  EXPECT_EQ(found, pages);
  EXPECT_EQ(cache.users(0, pages[0]), 2);
  cache.release(0, pages);
  cache.release(0, found);
  EXPECT_EQ(cache.available(), 3);
  EXPECT_EQ(cache.free_pages(), 1);
  cache.take(0);
  cache.take(0);  // evicts the second page: the first can still be found without it
  found.clear();
  EXPECT_EQ(match(cache, tokens, found), 1);
  EXPECT_EQ(cache.available(), 0);
  EXPECT_THROW(cache.take(0), InternalError);
}

TEST(PageCache, PublishingAnEqualPageReturnsTheKnownOne) {
  PageCache cache(4, 1, true);
  const int32_t first = cache.publish(PrefixIndex::kRoot, std::vector<int32_t>{7}, cache.take(0));
  const int32_t second = cache.publish(PrefixIndex::kRoot, std::vector<int32_t>{7}, cache.take(0));
  EXPECT_EQ(first, second);
  EXPECT_EQ(cache.users(0, first), 2);
  EXPECT_EQ(cache.free_pages(), 3);
}

TEST(PageCache, WithoutSharingNothingIsFound) {
  PageCache cache(2, 1, false);
  const int32_t page = cache.publish(PrefixIndex::kRoot, std::vector<int32_t>{7}, cache.take(0));
  std::vector<int32_t> found;
  EXPECT_EQ(match(cache, {7}, found), 0);
  cache.release(0, page);
  EXPECT_EQ(cache.free_pages(), 2);
}

/// Two groups of a layer each, in three slabs of two pages.
PoolMap map_of_two() {
  const PageLayout layout = page_layout({.head_dim = 8, .group = 1, .page = 8}, {});
  return {1, {{{0}, layout}, {{1}, layout}}, 3 * layout.bytes, 3};
}

TEST(PageCache, GroupsTakeSlabsFromEachOtherOnceNobodyUsesThem) {
  PageCache cache(map_of_two(), {.page = 8, .share = false, .windows = {0, 8}});
  std::vector<int32_t> first;
  for (int i = 0; i < 4; ++i) first.push_back(cache.take(0));
  const int32_t other = cache.take(1);
  EXPECT_EQ(cache.free_slabs(), 0);
  EXPECT_EQ(cache.available(0), 0);
  EXPECT_EQ(cache.available(1), 1);
  EXPECT_FALSE(cache.has_room({1, 1}));
  EXPECT_TRUE(cache.has_room({0, 1}));
  cache.release(0, std::span(first).first(1));
  EXPECT_EQ(cache.available(1), 1) << "a page of its slab is still used";
  cache.release(0, std::span(first).subspan(1, 1));
  EXPECT_EQ(cache.available(0), 2);
  EXPECT_EQ(cache.available(1), 3);
  EXPECT_TRUE(cache.has_room({2, 1}));
  EXPECT_FALSE(cache.has_room({1, 2})) << "the slab can be only one group's";
  for (int i = 0; i < 3; ++i) cache.take(1);
  EXPECT_EQ(cache.available(0), 0);
  EXPECT_THROW(cache.take(0), InternalError);
  cache.release(1, other);
  EXPECT_TRUE(cache.holds({4, 2}));
  EXPECT_FALSE(cache.holds({4, 3}));
}

TEST(PageCache, FindsAPrefixOfWhichEveryGroupHasWhatItNeeds) {
  const PageLayout layout = page_layout({.head_dim = 8, .group = 1, .page = 8}, {});
  PageCache cache(PoolMap(1, {{{0}, layout}, {{1}, layout}}, 9 * layout.bytes, 2), {.page = 8, .share = true, .windows = {0, 9}});
  std::vector<int32_t> tokens(33);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<int32_t> pages;
  std::vector<int32_t> beside;
  for (int i = 0; i < 4; ++i) {
    const int32_t parent = i == 0 ? PrefixIndex::kRoot : pages.back();
    pages.push_back(cache.publish(parent, std::span(tokens).subspan(static_cast<size_t>(8 * i), 8), cache.take(0)));
    beside.push_back(cache.publish_beside(pages.back(), 1, cache.take(1)));
  }
  std::vector<int32_t> found;
  std::vector<int32_t> found_beside;
  std::vector<int32_t>* const lists[] = {&found, &found_beside};
  // A row at 32 sees 24 to 32: the page of 24 to 31.
  EXPECT_EQ(cache.match(tokens, lists), 4);
  EXPECT_EQ(found, pages);
  EXPECT_EQ(found_beside, std::vector<int32_t>{beside[3]});
  EXPECT_EQ(cache.users(1, beside[3]), 2);
  EXPECT_EQ(cache.users(1, beside[2]), 1);
  cache.release(1, found_beside);
  cache.release(0, found);
  // The last page of the window's group goes when its room is wanted: a shorter prefix is all that is left of both.
  cache.release(1, std::span(beside).subspan(3));
  for (int i = 0; i < 4; ++i) cache.take(1);
  EXPECT_EQ(cache.available(1), 1);
  cache.take(1);
  found.clear();
  found_beside.clear();
  EXPECT_EQ(cache.match(tokens, lists), 3);
  EXPECT_EQ(found_beside, std::vector<int32_t>{beside[2]});
}

TEST(PageCache, TakesFromTheFullestSlab) {
  PageCache cache(map_of_two(), {.page = 8, .share = false, .windows = {0, 8}});
  std::vector<int32_t> pages;
  for (int i = 0; i < 4; ++i) pages.push_back(cache.take(0));
  for (int i = 0; i < 2; ++i) cache.take(1);
  // The first slab has a page in use, the second none: it is free to whoever needs one.
  for (const size_t page : {1, 3, 2}) cache.release(0, pages[page]);
  ASSERT_TRUE(cache.has_room({1, 1}));
  EXPECT_EQ(cache.take(0), pages[1]);
  cache.take(1);
}

TEST(PageCache, WhatNobodyUsesOrKnowsIsTakenBeforeWhatIsKnown) {
  PageCache cache(map_of_two(), {.page = 8, .share = true, .windows = {0, 8}});
  const std::vector<int32_t> tokens = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<int32_t> pages;
  for (int i = 0; i < 2; ++i) pages.push_back(cache.take(0));
  std::vector<int32_t> others;
  for (int i = 0; i < 4; ++i) others.push_back(cache.take(1));
  cache.publish(PrefixIndex::kRoot, tokens, pages[0]);
  cache.release(0, pages[0]);
  cache.release(1, others);
  EXPECT_EQ(cache.free_slabs(), 2);
  for (int i = 0; i < 3; ++i) cache.take(0);
  std::vector<int32_t> found;
  std::vector<int32_t> beside;
  std::vector<int32_t>* const lists[] = {&found, &beside};
  EXPECT_EQ(cache.match(tokens, lists), 0) << "the window's group has nothing of it";
  EXPECT_EQ(cache.free_pages(0), 1);
  EXPECT_EQ(cache.available(0), 2) << "the page that is known was not evicted";
}

/// After any history, pages that there is room for can be taken, in whatever order.
TEST(PageCache, WhatThereIsRoomForCanBeTaken) {
  std::mt19937 random(7);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  int promised = 0;
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    const PageLayout layout = page_layout({.head_dim = 8, .group = 1, .page = 8}, {});
    const int slab_pages = draw(2, 5);
    const PoolMap map(1, {{{0, 3}, layout}, {{1}, layout}, {{2}, layout}}, static_cast<size_t>(2 * slab_pages + 1) * layout.bytes,
                      draw(3, 8));
    const bool share = round % 2 == 0;
    PageCache cache(map, {.page = 8, .share = share, .windows = {0, 9, 20}});
    std::array<std::vector<int32_t>, 3> used;
    int32_t next_token = 0;
    const auto take = [&](int group) { used[static_cast<size_t>(group)].push_back(cache.take(group)); };
    for (int step = 0; step < 120; ++step) {
      PageCounts wanted{};
      for (int group = 0; group < 3; ++group) wanted[static_cast<size_t>(group)] = draw(0, 3) == 0 ? draw(0, 6) : draw(0, 1);
      const bool has_room = cache.has_room(wanted);
      ASSERT_EQ(cache.make_room(wanted), has_room);
      ++(has_room ? promised : refused);
      std::vector<int> order;
      for (int group = 0; group < 3 && has_room; ++group)
        order.insert(order.end(), static_cast<size_t>(wanted[static_cast<size_t>(group)]), group);
      std::shuffle(order.begin(), order.end(), random);
      for (const int group : order) ASSERT_NO_THROW(take(group)) << "round " << round << ", step " << step;
      // Two pages of the same tokens become known, now and then.
      if (share && draw(0, 2) == 0 && cache.has_room({1, 1, 1}) && cache.make_room({1, 1, 1})) {
        for (int group = 0; group < 3; ++group) take(group);
        std::vector<int32_t> tokens(8, next_token++);
        const int32_t node = cache.publish(PrefixIndex::kRoot, tokens, used[0].back());
        for (const int group : {1, 2}) cache.publish_beside(node, group, used[static_cast<size_t>(group)].back());
      }
      for (int group = 0; group < 3; ++group) {
        auto& pages = used[static_cast<size_t>(group)];
        std::shuffle(pages.begin(), pages.end(), random);
        for (int gone = draw(0, has_room ? 3 : 8); gone > 0 && !pages.empty(); --gone) {
          cache.release(group, pages.back());
          pages.pop_back();
        }
      }
      // What would be freed makes the room that it is said to make.
      FreedPages freed = cache.no_pages();
      for (int group = 0; group < 3; ++group) {
        for (const int32_t page : used[static_cast<size_t>(group)]) cache.add_freed(group, page, freed);
      }
      ASSERT_EQ(cache.has_room(wanted, freed), cache.holds(wanted));
    }
    for (int group = 0; group < 3; ++group) cache.release(group, used[static_cast<size_t>(group)]);
    for (int group = 0; group < 3; ++group) ASSERT_EQ(cache.available(group), map.slabs() * map.slab_pages(group));
  }
  EXPECT_GT(promised, 5000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace sluice
