// Products of 8-bit lines, which tensor cores multiply as float16, with queries of every range.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>

#include "agents/evaluation/numerical.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/gpu.h"

namespace sluice::testing {
namespace {

class CudaByteProducts : public GpuTest, public ::testing::WithParamInterface<const char*> {};

// The last two are queries that float16 has no room for, of numbers up to 2^115 apart.
INSTANTIATE_TEST_SUITE_P(Queries, CudaByteProducts,
                         ::testing::Values("q", "(q * 1e-30)", "(q * 1e30)", "(q * 12):exp()",
                                           "((q * 12):exp() - (q * -12):exp())"));

TEST_P(CudaByteProducts, TakeQueriesOfAnyRange) {
  const auto device = create_device("cuda");
  struct Case {
    const char* type;
    int head_dim, group;
    const char* score;
  };
  for (const Case& each : {Case{"e4m3", 64, 4, "max('token', 'head')"},
                           {"e4m3", 128, 2, "min('token'):mean('head')"},
                           {"e4m3", 256, 12, "mean('token'):max('head')"},
                           {"e5m2", 128, 1, "max('token', 'head')"},
                           {"e5m2", 64, 9, "min('token'):mean('head')"}}) {
    const std::string script = fmt::format(
        "local f = sluice.flow{{name='f', page=16, fields={{near='{}'}}}} function f.cache(c) c.near = c.k end "
        "function f.index(q, c) local x = {} return sluice.topk(c.near:dot(x):{}, {{k = 4, last = 1}}) end return f",
        each.type, GetParam(), each.score);
    const FlowGraph graph = trace(script, "f.lua", {.head_dim = each.head_dim, .group = each.group});
    EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt)
        << script << ", heads of " << each.head_dim << ", group " << each.group;
  }
}

}  // namespace
}  // namespace sluice::testing
