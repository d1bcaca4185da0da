#include "agents/server/held_place.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

TEST(HeldPlace, TheOldestOfWhoeverHasMostIsGivenUp) {
  const auto at = [](int second) { return std::chrono::steady_clock::time_point(std::chrono::seconds(second)); };
  EXPECT_EQ(place_to_give_up({}), std::nullopt);
  EXPECT_EQ(place_to_give_up({{"a", at(1)}, {"b", at(3)}, {"b", at(2)}, {"c", at(0)}}), 2U);
  EXPECT_EQ(place_to_give_up({{"a", at(5)}, {"b", at(4)}}), 1U);
}

}  // namespace
}  // namespace sluice::test
