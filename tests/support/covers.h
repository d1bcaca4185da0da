#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "agents/evaluation/numerical.h"
#include "scripting/lua/trace.h"

/// What every device is asked of covers. Needs the judge, which not all tests have.
namespace sluice::testing {

/// A flow with mean summaries of pages of 16, and a cover with `options` of theirs, in which `s` is a score.
inline FlowGraph cover_flow(const std::string& options) {
  return trace(
      "local f = sluice.flow{name='f', page=16, kv='bf16'} function f.cache(c) c.a = c.k:mean('token') c.b = "
      "c.v:mean('token') end function f.index(q, c) local s = q:dot(c.a):max('head') return sluice.cover{k = c.a, v = c.b, " +
          options + "} end return f",
      "f.lua");
}

/// A device that agrees with the reference under a cover is found not to under others.
inline void expect_other_covers_found(Device& device) {
  const FlowGraph wanted = cover_flow("refine = sluice.topk(s, {k = 3}), tail = 40");
  EXPECT_EQ(check_against_reference(device, wanted, compile(wanted).plan), std::nullopt);
  for (const char* other : {"refine = sluice.topk(s, {k = 3}), tail = 40, bias = 'none'",
                            "refine = sluice.topk(s, {k = 3}), tail = 40, mass = 'renormalise'",
                            "refine = sluice.topk(s, {k = 3}), tail = 40, levels = 2, group = 2",
                            "refine = sluice.topk(s, {k = 3}), tail = 40, levels = 2, group = 2, open = 'all'"}) {
    EXPECT_TRUE(check_against_reference(device, wanted, compile(cover_flow(other)).plan).has_value()) << other;
  }
}

/// Groups of every size agree with the reference: of one page, of some, and of more pages than there are.
inline void expect_groups_agree(Device& device) {
  for (const char* options : {"levels = 2, group = 1, open = 'all'", "levels = 2, group = 7, open = sluice.window{first = 3}",
                              "levels = 2, group = 2, open = sluice.topk(s, {k = 2, first = 1}), mass = 'renormalise'",
                              "levels = 2, group = 4096, open = 'all'"}) {
    const FlowGraph graph = cover_flow("refine = sluice.topk(s, {k = 3}), tail = 20, " + std::string(options));
    EXPECT_EQ(check_against_reference(device, graph, compile(graph).plan), std::nullopt) << options;
  }
}

/// Nobody looks at pages whose bias is -inf, nor at the groups that have them: their weight is that of the mean.
inline void expect_hidden_groups_agree(Device& device) {
  for (const char* options : {"open = 'all'", "open = 'none'", "mass = 'renormalise', open = 'all'"}) {
    const FlowGraph graph = cover_flow(
        "refine = sluice.topk(s, {k = 3}), tail = 20, bias = sluice.fill(0, {'page'}):mask_slice('page', 0, 6, -math.huge), "
        "levels = 2, group = 4, " +
        std::string(options));
    EXPECT_EQ(check_against_reference(device, graph, compile(graph).plan), std::nullopt) << options;
  }
}

/// What a bias was loaded as it stays, although the state is saved before attention runs.
inline void expect_bias_as_loaded(Device& device) {
  const FlowGraph graph = trace(R"(
    local f = sluice.flow{name = "f", page = 16, kv = "bf16"}
    function f.cache(c) c.a = c.k:mean("token") c.b = c.v:mean("token") c.credit = sluice.cfill(0) end
    function f.index(q, c)
      c.credit:save(c.credit * 0.5 + sluice.position() * 0.125)
      return sluice.cover{k = c.a, v = c.b, refine = sluice.topk(q:dot(c.a):max("head"), {k = 2}), tail = 20, bias = c.credit}
    end
    return f)",
                                "f.lua");
  EXPECT_EQ(check_against_reference(device, graph, compile(graph).plan), std::nullopt);
}

}  // namespace sluice::testing
