#include "agents/http/held_place.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

std::chrono::steady_clock::time_point at(int second) {
  return std::chrono::steady_clock::time_point(std::chrono::seconds(second));
}

TEST(HeldPlace, TheOldestOfWhoeverHasMostIsGivenUp) {
  EXPECT_EQ(place_to_give_up({}, "a"), std::nullopt);
  EXPECT_EQ(place_to_give_up({{"a", at(1)}, {"b", at(3)}, {"b", at(2)}, {"c", at(0)}}, "c"), 2U);
  EXPECT_EQ(place_to_give_up({{"a", at(5)}, {"b", at(4)}}, "a"), 1U);
}

TEST(HeldPlace, NobodyLosesOneToWhoHasMore) {
  const HeldPlace busy{"greedy", at(1), false};
  const HeldPlace modest{"modest", at(0)};
  EXPECT_EQ(place_to_give_up({busy, modest, busy}, "greedy"), std::nullopt);
  EXPECT_EQ(place_to_give_up({busy, modest, busy}, "another"), 1U) << "who has less than all may come in";
  EXPECT_EQ(place_to_give_up({busy, modest, busy, {"greedy", at(2)}}, "greedy"), 3U);
}

}  // namespace
}  // namespace sluice::test
