#include "host/tensor.h"

#include <gtest/gtest.h>

#include "scripting/graph/error.h"

namespace sluice {
namespace {

std::vector<int64_t> rows_of(const Layout& layout, int sequence) {
  std::vector<int64_t> rows;
  for (int row = 0; row < layout.rows(sequence); ++row) rows.push_back(layout.storage_row(sequence, row));
  return rows;
}

TEST(Layout, BatchPlacesSequencesAtEqualDistances) {
  const Layout layout = Layout::batch(3, 2);
  EXPECT_EQ(layout.sequences(), 3);
  EXPECT_EQ(rows_of(layout, 2), (std::vector<int64_t>{4, 5}));
}

TEST(Layout, RaggedPlacesSequencesOneAfterTheOther) {
  Layout layout = Layout::ragged();
  for (const int rows : {2, 0, 3}) layout.append(rows);
  EXPECT_EQ(rows_of(layout, 0), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(rows_of(layout, 1), std::vector<int64_t>{});
  EXPECT_EQ(rows_of(layout, 2), (std::vector<int64_t>{2, 3, 4}));
}

TEST(Layout, PagedFollowsPagesAndMayShareThem) {
  Layout layout = Layout::paged(4);
  layout.append(std::vector<int32_t>{7, 2}, 6);
  layout.append(std::vector<int32_t>{7}, 3);
  EXPECT_EQ(rows_of(layout, 0), (std::vector<int64_t>{28, 29, 30, 31, 8, 9}));
  EXPECT_EQ(rows_of(layout, 1), (std::vector<int64_t>{28, 29, 30}));
}

TEST(Layout, EveryKindIsAPagedOne) {
  Layout ragged = Layout::ragged();
  for (const int rows : {2, 0, 3}) ragged.append(rows);
  for (const Layout& layout : {Layout::batch(3, 2), ragged}) {
    const Layout paged = layout.to_paged();
    ASSERT_EQ(paged.kind(), Layout::Kind::kPaged);
    for (int sequence = 0; sequence < 3; ++sequence) EXPECT_EQ(rows_of(paged, sequence), rows_of(layout, sequence));
  }
}

TEST(Layout, RefusesPagesThatDoNotFit) {
  Layout layout = Layout::paged(4);
  EXPECT_THROW(layout.append(std::vector<int32_t>{1}, 5), InternalError);
  EXPECT_THROW(layout.append(std::vector<int32_t>{1, 2}, 4), InternalError);
  EXPECT_THROW(layout.append(3), InternalError);
}

TEST(Layout, ClearKeepsRoom) {
  Layout layout = Layout::paged(4);
  layout.reserve(2, 4);
  layout.append(std::vector<int32_t>{1, 2}, 8);
  const int32_t* indices = layout.indices().data();
  layout.clear();
  EXPECT_EQ(layout.sequences(), 0);
  layout.append(std::vector<int32_t>{3}, 1);
  EXPECT_EQ(layout.indices().data(), indices);
  EXPECT_EQ(layout.indptr().back(), 1);
}

}  // namespace
}  // namespace sluice
