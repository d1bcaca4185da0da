#include "host/serving/tensor.h"

#include <gtest/gtest.h>

#include "scripting/base/error.h"

namespace sluice {
namespace {

using Numbers = std::vector<int32_t>;

Numbers copy_of(std::span<const int32_t> numbers) { return {numbers.begin(), numbers.end()}; }

TEST(Layout, RaggedPlacesSequencesOneAfterTheOther) {
  Layout layout = Layout::ragged();
  for (const int rows : {2, 0, 3}) layout.append(rows);
  EXPECT_EQ(copy_of(layout.indptr()), (Numbers{0, 2, 2, 5}));
  EXPECT_EQ(copy_of(layout.lengths()), (Numbers{2, 0, 3}));
  EXPECT_TRUE(layout.indices().empty());
}

TEST(Layout, PagedFollowsPagesAndMayShareThem) {
  Layout layout = Layout::paged(4);
  layout.append(Numbers{7, 2}, 6);
  layout.append(Numbers{7}, 3);
  EXPECT_EQ(copy_of(layout.indptr()), (Numbers{0, 2, 3}));
  EXPECT_EQ(copy_of(layout.indices()), (Numbers{7, 2, 7}));
  EXPECT_EQ(copy_of(layout.lengths()), (Numbers{6, 3}));
}

TEST(Layout, RefusesPagesThatDoNotFit) {
  Layout layout = Layout::paged(4);
  EXPECT_THROW(layout.append(Numbers{1}, 5), InternalError);
  EXPECT_THROW(layout.append(Numbers{1, 2}, 4), InternalError);
  EXPECT_THROW(layout.append(3), InternalError);
  EXPECT_THROW(Layout::ragged().append(Numbers{}, 0), InternalError);
}

TEST(Layout, ClearKeepsRoom) {
  Layout layout = Layout::paged(4);
  layout.reserve(2, 4);
  layout.append(Numbers{1, 2}, 8);
  const int32_t* indices = layout.indices().data();
  layout.clear();
  EXPECT_TRUE(layout.lengths().empty());
  layout.append(Numbers{3}, 1);
  EXPECT_EQ(layout.indices().data(), indices);
  EXPECT_EQ(layout.indptr().back(), 1);
}

}  // namespace
}  // namespace sluice
