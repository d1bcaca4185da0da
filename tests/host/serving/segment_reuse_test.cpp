// Which rows of a prompt that is partly copied are computed.
#include "host/serving/segment_reuse.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

using Rule = Recomputation::Rule;

/// 0 to 7 known exactly, 8 to 15 its own, 16 to 31 copied, 32 to 35 its own, 36 to 43 copied, and a last one of its own if it
/// `ends`.
CopiedTokens tokens(bool ends) {
  CopiedTokens made;
  made.copied.assign(ends ? 45 : 44, 0);
  std::fill(made.copied.begin() + 16, made.copied.begin() + 32, 1);
  std::fill(made.copied.begin() + 36, made.copied.begin() + 44, 1);
  made.begun = 8;
  made.block = 8;
  made.firsts = {16, 36};
  return made;
}

std::vector<int32_t> numbers(std::initializer_list<std::pair<int, int>> ranges) {
  std::vector<int32_t> all;
  for (const auto& [first, end] : ranges) {
    for (int i = first; i < end; ++i) all.push_back(i);
  }
  return all;
}

TEST(SegmentReuse, ItsOwnRowsAreThoseThatAreNotCopied) {
  EXPECT_EQ(tokens(true).rows_of_their_own(), numbers({{8, 16}, {32, 36}, {44, 45}}));
  EXPECT_EQ(tokens(true).count(), 24);
  EXPECT_EQ(tokens(false).rows_of_their_own(), numbers({{8, 44}})) << "a prompt that ends with copies looks from its end";
}

TEST(SegmentReuse, RulesOfPlacesGoByNothing) {
  EXPECT_EQ(rows_to_compute(tokens(true), {.rule = Rule::kNone}, {}), numbers({{8, 16}, {32, 36}, {44, 45}}));
  EXPECT_EQ(rows_to_compute(tokens(false), {.rule = Rule::kNone}, {}), numbers({{8, 16}, {32, 36}}));
  EXPECT_EQ(rows_to_compute(tokens(true), {.rule = Rule::kAll}, {}), numbers({{8, 45}}));
  EXPECT_EQ(rows_to_compute(tokens(true), {.rule = Rule::kEdges, .edge = 3}, {}),
            numbers({{8, 16}, {16, 19}, {32, 36}, {36, 39}, {44, 45}}));
}

TEST(SegmentReuse, TheBestAreChosenAmongCopiesAlone) {
  std::vector<float> scores(45, 0);
  for (const int token : {3, 10, 33}) scores[static_cast<size_t>(token)] = 100;  // nobody's to choose
  scores[20] = 5;
  scores[40] = 4;
  scores[25] = 4;
  scores[30] = NAN;
  EXPECT_EQ(rows_to_compute(tokens(true), {.rule = Rule::kKeys, .share = 2.0 / 24}, scores),
            numbers({{8, 16}, {20, 21}, {25, 26}, {32, 36}, {44, 45}}))
      << "of equals the older";
  EXPECT_EQ(rows_to_compute(tokens(true), {.rule = Rule::kKeys, .share = 0}, scores), numbers({{8, 16}, {32, 36}, {44, 45}}));
  EXPECT_EQ(rows_to_compute(tokens(true), {.rule = Rule::kKeys, .share = 1}, scores), numbers({{8, 45}}));
}

TEST(SegmentReuse, SparseQTakesABlockOnEitherSide) {
  const std::vector<float> scores(45, 0);
  EXPECT_EQ(rows_to_compute(tokens(true), {.rule = Rule::kSparseQ, .share = 0}, scores), numbers({{8, 45}}))
      << "16 to 23 follow its own, 24 to 31 and 36 to 43 lie beside it";
  CopiedTokens far = tokens(true);
  far.copied.assign(200, 1);
  far.copied[100] = 0;
  far.copied[199] = 0;
  far.begun = 0;
  EXPECT_EQ(rows_to_compute(far, {.rule = Rule::kSparseQ, .share = 0}, std::vector<float>(200, 0)),
            numbers({{92, 109}, {191, 200}}));
}

}  // namespace
}  // namespace sluice
