#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/reference/schedule.h"
#include "scripting/lua/trace.h"
#include "tests/support/random_flow.h"

namespace sluice::testing {
namespace {

bool holds(const std::vector<NodeId>& nodes, NodeId id) { return std::find(nodes.begin(), nodes.end(), id) != nodes.end(); }

/// How many values are freed before the last phase. What a phase frees must not be made again behind it, where nothing would free
/// it any more.
int freed_by(const FlowGraph& graph) {
  const oracle::Schedule schedule(graph, oracle::roots_of(graph));
  int freed = 0;
  for (size_t i = 0; i < schedule.phases.size(); ++i) {
    for (const NodeId id : schedule.phases[i].last_read) {
      ++freed;
      EXPECT_TRUE(schedule.stored[static_cast<size_t>(id)]) << id;
      for (size_t later = i + 1; later < schedule.phases.size(); ++later) {
        const auto& [once, pages, rows, last_read] = schedule.phases[later];
        EXPECT_FALSE(holds(once, id) || holds(pages, id) || holds(rows, id) || holds(last_read, id)) << id;
      }
    }
  }
  return freed;
}

TEST(ReferenceSchedule, WhatIsFreedStaysFree) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    freed_by(random_flow(seed));
  }
}

TEST(ReferenceSchedule, AFieldIsFreedWhereItIsReadLast) {
  const auto flow = [](const std::string& index) {
    return trace("local f = sluice.flow{name='f', page=8} function f.cache(c) c.a = c.k:mean('token'):mean('dim') end " +
                     ("function f.index(q, c) " + index) + " end return f",
                 "f.lua");
  };
  // The mean of all pages needs the field as a whole. The phase behind it reads no field, page by page, or as a whole once more.
  EXPECT_EQ(freed_by(flow("local a = c.a local m = a:mean('page') return sluice.topk(sluice.position() * m, {k=1})")), 1);
  EXPECT_EQ(freed_by(flow("local a = c.a local m = a:mean('page') return sluice.topk(a * m, {k=1})")), 0);
  EXPECT_EQ(freed_by(flow("local a = c.a local m = a:mean('page') local n = (a * m):mean('page') "
                          "return sluice.topk(sluice.position() * n, {k=1})")),
            2);
}

}  // namespace
}  // namespace sluice::testing
