#include "scripting/pattern/head_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice::test {
namespace {

TEST(HeadSlots, TellWhatHoldsInEveryHead) {
  std::mt19937 random(13);
  for (int i = 0; i < 50; ++i) {
    const auto length = static_cast<int>(2 + random() % 200);
    std::vector<SlotMap> maps;
    for (int head = 0; head < 3; ++head) maps.emplace_back(PatternAnalysis(random_pattern(random, 4)), length);
    const HeadSlots slots(maps);
    ASSERT_EQ(slots.heads(), 3);
    ASSERT_EQ(slots.length(), length);
    int used = 0;
    for (int token = 0; token < length; ++token) {
      int free_from = 0;
      bool follows = true;
      for (int head = 0; head < 3; ++head) {
        const SlotMap& map = maps[static_cast<size_t>(head)];
        ASSERT_EQ(slots.of(head).slot(token), map.slot(token));
        used = std::max(used, map.slot(token) + 1);
        free_from = std::max(free_from, map.free_from(token));
        follows = follows && token > 0 && map.slot(token) > map.slot(token - 1);
      }
      ASSERT_EQ(slots.used(token + 1), used);
      ASSERT_EQ(slots.free_from(token), free_from);
      if (token > 0) ASSERT_EQ(slots.follows(token), follows);
    }
  }
}

}  // namespace
}  // namespace sluice::test
