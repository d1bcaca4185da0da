// Products of 8-bit lines, which tensor cores multiply as float16, with queries of every range.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>

#include "agents/evaluation/numerical.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/gpu.h"

namespace sluice::testing {
namespace {

class CudaByteProducts : public GpuTest {};

// The third and the fourth are queries that float16 has no room for, of numbers up to 2^115 apart.
TEST_F(CudaByteProducts, TakeQueriesOfAnyRange) {
  const auto device = create_device("cuda");
  for (const char* query : {"q", "(q * 1e-30)", "(q * 12):exp()", "((q * 12):exp() - (q * -12):exp())", "(q * 1e30)"}) {
    for (const char* type : {"e4m3", "e5m2"}) {
      for (const auto& [head_dim, group] : {std::pair{64, 4}, {128, 2}, {128, 1}, {64, 9}, {256, 12}}) {
        for (const char* score : {"c.near:dot(x):max('token', 'head')", "c.near:dot(x):min('token'):mean('head')",
                                  "c.near:dot(x):mean('token'):max('head')"}) {
          const std::string script = fmt::format(
              "local f = sluice.flow{{name='f', page=16, fields={{near='{}'}}}} function f.cache(c) c.near = c.k end "
              "function f.index(q, c) local x = {} return sluice.topk({}, {{k = 4, last = 1}}) end return f",
              type, query, score);
          const FlowGraph graph = trace(script, "f.lua", {.head_dim = head_dim, .group = group});
          EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt)
              << script << ", heads of " << head_dim << ", group " << group;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
