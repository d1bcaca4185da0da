#include "agents/http/event_stream.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

TEST(EventQueue, CutsOffWhoIsTooSlow) {
  EventQueue queue(2);
  EXPECT_TRUE(queue.push({"1", {}, {}}));
  EXPECT_TRUE(queue.push({"2", {}, {}}));
  EXPECT_FALSE(queue.push({"3", {}, {}}));
  EXPECT_FALSE(queue.push({"4", {}, {}})) << "it listens no more";
}

TEST(EventQueue, WritesNoFieldsThatAValueBringsAlong) {
  EXPECT_EQ(event_text({"a\r\nb", "n\nid: 7", "1\r2"}), "id: 12\nevent: nid: 7\ndata: a\ndata: \ndata: b\n\n");
}

}  // namespace
}  // namespace sluice::test
