// The index of marked text, step by step beside a map that is searched from end to end.
#include "host/serving/segment_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <string>

#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr int kBlock = 4;

std::vector<int32_t> run_of(int number) { return {number, number / 3, 7, number % 5}; }

SegmentIndex::View view_of(int page) { return {{page, page + 1}, {uint64_t(page) * 3 + 1, 9}, page % kBlock, page * 11}; }

TEST(SegmentIndex, FindsWhatWasOfferedInItsOwnSpaceAlone) {
  SegmentIndex index(kBlock, 100);
  const auto mine = index.space("ada", "docs");
  EXPECT_EQ(index.space("ada", "docs"), mine);
  index.offer(mine, run_of(3), view_of(5));
  ASSERT_NE(index.find(mine, run_of(3)), nullptr);
  EXPECT_EQ(*index.find(mine, run_of(3)), view_of(5));
  for (const auto& [tenant, name] : {std::pair<std::string, std::string>("bob", "docs"),
                                     {"ada", "doc"},
                                     {"ada", ""},
                                     {"ad", "adocs"},
                                     {"adad", "ocs"},
                                     {"ada", std::string("docs\0", 5)}})
    EXPECT_EQ(index.find(index.space(tenant, name), run_of(3)), nullptr) << tenant << name;
  std::vector<int32_t> other = run_of(3);
  other.back() += 1;
  EXPECT_EQ(index.find(mine, other), nullptr);
  index.offer(mine, run_of(3), view_of(8));
  EXPECT_EQ(*index.find(mine, run_of(3)), view_of(8)) << "it lies elsewhere now";
  EXPECT_EQ(index.size(), 1U);
  index.forget(mine, run_of(3));
  index.forget(mine, run_of(3));
  EXPECT_EQ(index.find(mine, run_of(3)), nullptr);
  EXPECT_EQ(index.size(), 0U);
}

TEST(SegmentIndex, HashesUnderASecretOfItsOwn) {
  const SegmentIndex a(kBlock, 1), b(kBlock, 1);
  EXPECT_NE(a.space("ada", "docs"), b.space("ada", "docs"));
}

TEST(SegmentIndex, FrozenRunsStayWhateverElseIsOffered) {
  constexpr size_t kMost = 3;
  SegmentIndex index(kBlock, kMost);
  const auto space = index.space("ada", "docs");
  index.freeze(space, run_of(1), 7);  // nobody has offered it
  EXPECT_EQ(index.frozen_text(space, run_of(1)), 0U);
  index.offer(space, run_of(1), view_of(1));
  index.freeze(space, run_of(1), 7);
  index.freeze(space, run_of(1), 8);
  EXPECT_EQ(index.frozen_text(space, run_of(1)), 7U) << "it was frozen before";
  for (int run = 2; run < 10; ++run) index.offer(space, run_of(run), view_of(run));
  EXPECT_EQ(index.size(), kMost + 1);
  ASSERT_NE(index.find(space, run_of(1)), nullptr);
  EXPECT_EQ(*index.find(space, run_of(1)), view_of(1));
  index.offer(space, run_of(1), view_of(4));
  EXPECT_EQ(*index.find(space, run_of(1)), view_of(4)) << "it lies elsewhere now";
  EXPECT_EQ(index.frozen_text(space, run_of(1)), 7U);
  index.forget(space, run_of(1));
  EXPECT_EQ(index.find(space, run_of(1)), nullptr);
  EXPECT_EQ(index.size(), kMost);
}

TEST(SegmentIndex, RefusesRunsOfAnotherLength) {
  SegmentIndex index(kBlock, 10);
  const auto space = index.space("", "");
  EXPECT_THROW(index.offer(space, std::vector<int32_t>(kBlock - 1), {}), InternalError);
  EXPECT_THROW(index.find(space, std::vector<int32_t>(kBlock + 1)), InternalError);
  EXPECT_THROW(SegmentIndex(0, 10), InternalError);
  EXPECT_THROW(SegmentIndex(4, 0), InternalError);
}

TEST(SegmentIndex, KeepsWhatAMapKeepsOverManySteps) {
  struct Known {
    int space;
    int run;
    SegmentIndex::View view;
  };
  constexpr size_t kMost = 20;
  SegmentIndex index(kBlock, kMost);
  const std::vector<SegmentIndex::Digest> spaces = {index.space("x", "a"), index.space("x", "b"), index.space("y", "a")};
  std::deque<Known> known;  // what was used last is the first
  std::mt19937 random(5);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int hits = 0;
  int last_space = 0;
  int last_run = 0;
  for (int step = 0; step < 20000; ++step) {
    // Runs follow each other, as those of a text do, or come as they like.
    const bool follows = draw(3) > 0;
    const int space = follows ? last_space : draw(3);
    const int run = follows ? (last_run + 1) % 15 : draw(15);
    last_space = space;
    last_run = run;
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const Known& each) { return each.space == space && each.run == run; });
    switch (draw(8)) {
      case 0:
      case 1:
      case 2: {
        const Known entry{space, run, view_of(draw(1000))};
        index.offer(spaces[static_cast<size_t>(space)], run_of(run), entry.view);
        if (found != known.end()) known.erase(found);
        known.push_front(entry);
        if (known.size() > kMost) known.pop_back();
        break;
      }
      case 3:
        index.forget(spaces[static_cast<size_t>(space)], run_of(run));
        if (found != known.end()) known.erase(found);
        break;
      default: {
        const SegmentIndex::View* const view = index.find(spaces[static_cast<size_t>(space)], run_of(run));
        ASSERT_EQ(view != nullptr, found != known.end()) << "step " << step;
        if (view == nullptr) break;
        ++hits;
        EXPECT_EQ(*view, found->view);
        const Known used = *found;
        known.erase(found);
        known.push_front(used);
      }
    }
    ASSERT_EQ(index.size(), known.size()) << "step " << step;
  }
  EXPECT_GT(hits, 1000);
}

}  // namespace
}  // namespace sluice
