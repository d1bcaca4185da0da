#include "host/serving/block_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

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

TEST(PrefixIndex, EvictsTheLongestIdleFirst) {
  PrefixIndex index(4, 1);
  for (int32_t page = 0; page < 4; ++page) index.insert(PrefixIndex::kRoot, std::vector<int32_t>{page}, page);
  for (const int32_t page : {2, 0, 3}) index.set_idle(page);
  index.set_busy(0);
  index.set_idle(0);
  EXPECT_EQ(index.evict(), 2);
  EXPECT_EQ(index.evict(), 3);
  EXPECT_EQ(index.evict(), 0);
  EXPECT_EQ(index.evict(), PrefixIndex::kNone) << "page 1 has a user";
  EXPECT_EQ(index.find(PrefixIndex::kRoot, std::vector<int32_t>{2}), PrefixIndex::kNone);
  EXPECT_EQ(index.find(PrefixIndex::kRoot, std::vector<int32_t>{1}), 1);
}

TEST(PrefixIndex, ReusedParentDoesNotInheritChildren) {
  PrefixIndex index(4, 1);
  index.insert(PrefixIndex::kRoot, std::vector<int32_t>{1}, 0);
  index.insert(0, std::vector<int32_t>{9}, 1);
  index.set_idle(0);
  ASSERT_EQ(index.evict(), 0);
  index.insert(PrefixIndex::kRoot, std::vector<int32_t>{1}, 0);  // even the same content: the child was of the page before
  EXPECT_EQ(index.find(0, std::vector<int32_t>{9}), PrefixIndex::kNone);
}

TEST(PageCache, SharesPublishedPagesAndEvictsThemLast) {
  PageCache cache(3, 2, true);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  std::vector<int32_t> pages = {cache.take(), cache.take()};
  pages[0] = cache.publish(PrefixIndex::kRoot, std::vector<int32_t>{1, 2}, pages[0]);
  pages[1] = cache.publish(pages[0], std::vector<int32_t>{3, 4}, pages[1]);
  std::vector<int32_t> found;
  EXPECT_EQ(cache.match(tokens, found), 2);
  EXPECT_EQ(found, pages);
  EXPECT_EQ(cache.users(pages[0]), 2);
  cache.release(pages);
  cache.release(found);
  EXPECT_EQ(cache.available(), 3);
  EXPECT_EQ(cache.free_pages(), 1);
  cache.take();
  cache.take();  // evicts the second page: the first can still be found without it
  found.clear();
  EXPECT_EQ(cache.match(tokens, found), 1);
  EXPECT_EQ(cache.available(), 0);
  EXPECT_THROW(cache.take(), InternalError);
}

TEST(PageCache, PublishingAnEqualPageReturnsTheKnownOne) {
  PageCache cache(4, 1, true);
  const int32_t first = cache.publish(PrefixIndex::kRoot, std::vector<int32_t>{7}, cache.take());
  const int32_t second = cache.publish(PrefixIndex::kRoot, std::vector<int32_t>{7}, cache.take());
  EXPECT_EQ(first, second);
  EXPECT_EQ(cache.users(first), 2);
  EXPECT_EQ(cache.free_pages(), 3);
}

TEST(PageCache, WithoutSharingNothingIsFound) {
  PageCache cache(2, 1, false);
  const int32_t page = cache.publish(PrefixIndex::kRoot, std::vector<int32_t>{7}, cache.take());
  std::vector<int32_t> found;
  EXPECT_EQ(cache.match(std::vector<int32_t>{7}, found), 0);
  cache.release(std::vector<int32_t>{page});
  EXPECT_EQ(cache.free_pages(), 2);
}

}  // namespace
}  // namespace sluice
