// flow.variant: several programs of one flow, by layer.
#include <gtest/gtest.h>

#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

const std::string kEnds =
    "local ends = flow.variant('ends')\nfunction ends.index(q, c) return sluice.window{first = 1, last = 4} end\n";
const std::string kMiddle =
    "local middle = flow.variant('middle')\nfunction middle.cache(c) c.m = c.k:mean('token') end\n"
    "function middle.index(q, c) return sluice.topk(q:dot(c.m):max('head'), {k = 8, last = 1}) end\n";

FlowGraph flow_of(const std::string& layers, const std::string& body, const std::string& options = "") {
  return trace(
      "local flow = sluice.flow{name = 'v', page = 16, layers = {" + layers + "}" + options + "}\n" + body + "return flow\n",
      "v.lua");
}

std::string error_of(const std::string& layers, const std::string& body, const std::string& options = "") {
  try {
    compile(flow_of(layers, body, options));
  } catch (const FlowError& error) {
    return std::string(error.what()).substr(6);  // without "v.lua:"
  }
  return "";
}

TEST(Variants, AreProgramsOfTheirLayers) {
  const FlowGraph graph = flow_of("[0] = 'ends', [-1] = 'ends', rest = 'middle'", kEnds + kMiddle);
  EXPECT_EQ(graph.variant, "ends");
  ASSERT_EQ(graph.variants.size(), 1U);
  EXPECT_EQ(graph.variants[0].variant, "middle");
  EXPECT_TRUE(graph.has_own_cache());
  EXPECT_TRUE(graph.fields.empty());
  EXPECT_EQ(graph.variants[0].fields.size(), 1U);
  for (const int layer : {0, 5}) EXPECT_EQ(graph.program_of(layer, 6), &graph);
  for (const int layer : {1, 4}) EXPECT_EQ(graph.program_of(layer, 6), &graph.variants[0]);
  const Plan plan = compile(graph).plan;
  ASSERT_EQ(plan.programs().size(), 2U);
  EXPECT_EQ(plan.variants[0].program, 1);
  EXPECT_EQ(plan.program_of(2, 6), &plan.variants[0]);
  EXPECT_GT(plan.variants[0].layout.bytes, plan.layout.bytes) << "pages of its own, with its fields";
  EXPECT_NE(to_text(plan).find("variant \"middle\""), std::string::npos);
}

TEST(Variants, StandBesideTheFlowsOwnProgramAndFullLayers) {
  const FlowGraph graph = flow_of("[0] = 'full', [1] = 'ends', rest = 'sparse'",
                                  kEnds + "function flow.index(q, c) return sluice.window{last = 9} end\n");
  EXPECT_EQ(graph.variant, "");
  ASSERT_EQ(graph.variants.size(), 1U);
  EXPECT_EQ(graph.program_of(0, 4), nullptr);
  EXPECT_EQ(graph.program_of(1, 4), &graph.variants[0]);
  EXPECT_EQ(graph.program_of(2, 4), &graph);
}

TEST(Variants, HaveOptionsAndPatternsOfTheirOwn) {
  const FlowGraph graph = flow_of("[0] = 'near', rest = 'heavy'", R"(
    local near = flow:variant('near')
    near.pattern = sluice.pattern.window(64)
    local heavy = flow.variant('heavy')
    function heavy.cache(c) c.a = sluice.cfill(0, {'token'}) c.n = c.k:l2norm('dim') end
    function heavy.after(q, c, mass)
      c.a:save(c.a + mass:sum('head'))
      sluice.evict(c.a * c.n, {budget = 64})
    end
  )",
                                  ", prompt_mass = 7, fields = {n = 'f32'}");
  EXPECT_TRUE(graph.sources.empty());
  EXPECT_EQ(graph.patterns.patterns.size(), 1U);
  EXPECT_EQ(graph.mass_rows, kToEnd);
  EXPECT_EQ(graph.variants[0].mass_rows, 7);
  EXPECT_TRUE(graph.variants[0].eviction);
  EXPECT_EQ(graph.variants[0].fields[0].type, DataType::kF32);
  const Plan plan = compile(graph).plan;
  EXPECT_TRUE(plan.evicts());
  EXPECT_TRUE(plan.bounds_prompts());
  EXPECT_EQ(plan.prompt_rows_wanted(), 7);
}

TEST(Variants, WhatCannotBeIsRefusedWithItsLine) {
  EXPECT_EQ(error_of("rest = 'middle'", kEnds + kMiddle), "2: variant \"ends\": no layer has it");
  EXPECT_EQ(error_of("rest = 'ands'", kEnds), "1: flow: layers: got the text \"ands\"");
  EXPECT_EQ(error_of("[0] = 'ends'", kEnds), "1: the flow has sparse layers and neither flow.index nor flow.pattern");
  EXPECT_EQ(error_of("rest = 'ends'", kEnds + "function flow.index(q, c) return sluice.window{last = 1} end\n"),
            "4: flow.index: no layer is \"sparse\", so nothing runs it");
  EXPECT_EQ(error_of("rest = 'ends'", kEnds + "flow.variant('ends')\n"), "4: variant: \"ends\" is declared already, in line 2");
  EXPECT_EQ(error_of("rest = 'ends'", "local ends = flow.variant()\n"), "2: variant: wants a name");
  EXPECT_EQ(error_of("rest = 'ends'", "local ends = flow.variant('full')\n"),
            "2: variant: \"full\" has a meaning of its own in layers");
  EXPECT_EQ(error_of("rest = 'ends'", "local ends = flow.variant('ends') function ends.index(q, c) flow.variant('a') end\n"),
            "2: variant: belongs at the top of the file, not inside a stage");
  EXPECT_EQ(error_of("rest = 'a b'", "local x = flow.variant('a b') function x.index(q, c) return sluice.window{last = 1} end\n")
                .substr(0, 30),
            "2: a variant's name wants 1 to");
  EXPECT_EQ(error_of("rest = 'ends'", kEnds + "flow = ends\n"), "5: the file must return the flow itself and returned a variant");
  EXPECT_EQ(error_of("rest = 'ends'", "local ends = flow.variant('ends')\n"),
            "2: the flow has sparse layers and neither flow.index nor flow.pattern");
  EXPECT_EQ(error_of("rest = 'ends'", kEnds, ", fields = {m = 'f32'}"),
            "1: sluice.flow: fields gives \"m\" a type, and flow.cache does not assign c.m");
}

TEST(Variants, ValuesOfAnotherAreRefused) {
  const std::string leak = R"(
    local kept
    local a = flow.variant('a')
    function a.index(q, c) kept = q return sluice.window{last = 1} end
    local b = flow.variant('b')
    function b.index(q, c) return sluice.topk(kept:dot(c.k):max('head'):max('token'), {k = 3}) end
  )";
  EXPECT_EQ(error_of("[0] = 'a', rest = 'b'", leak), "7: a value that another variant computed");
}

TEST(Variants, ValuesThatAStageReturnsAreItsOwn) {
  const auto leak = [](const std::string& value, const std::string& returned) {
    return "local kept local a = flow.variant('a') function a.cache(c) c.m = c.k:mean('token') end\n"
           "function a.index(q, c) local s = q:dot(c.m):max('head') kept = " +
           value + " return sluice.topk(s, {k = 3}) end\nlocal b = flow.variant('b')\nfunction b.index(q, c) return " + returned +
           " end\n";
  };
  const std::string refused = "5: a value that another variant computed";
  for (const char* value : {"s", "sluice.topk(s, {k = 3})", "sluice.topk_tokens(q:dot(c.k):max('head'), {k = 3})",
                            "sluice.union(sluice.topk(s, {k = 3}), sluice.pattern.window(20))"}) {
    EXPECT_EQ(error_of("[0] = 'a', rest = 'b'", leak(value, "kept")), refused) << value;
    EXPECT_EQ(error_of("[0] = 'a', rest = 'b'", leak(value, "sluice.union(kept, sluice.pattern.window(20))")), refused) << value;
  }
}

TEST(Variants, WhatNoProgramUsesIsRefused) {
  EXPECT_EQ(error_of("rest = 'ends'", kEnds, ", prompt_mass = 4"), "1: sluice.flow: prompt_mass is for flows with flow.after");
  EXPECT_EQ(error_of("rest = 'ends'", kEnds, ", prefill = 'dense'"),
            "1: sluice.flow: prefill = \"dense\" is for flows with flow.pattern");
  EXPECT_EQ(error_of("rest = 'ends'", kEnds + "flow.pattern = sluice.pattern.window(64)\n"),
            "4: flow.pattern: no layer is \"sparse\", so nothing has it");
  EXPECT_EQ(error_of("rest = 'full'", "flow.pattern = sluice.pattern.window(64)\n"),
            "2: flow.pattern: every layer is \"full\", so nothing has it");
  EXPECT_EQ(error_of("rest = 'a'",
                     "local a = flow.variant('a')\nfunction a.index(q, c) flow.pattern = sluice.pattern.window(64) end\n"),
            "3: flow.pattern is assigned at the top of the file, not inside a stage");
}

TEST(Variants, LayersHaveOneProgram) {
  const FlowGraph graph = flow_of("[0] = 'ends', [-2] = 'middle'",
                                  kEnds + kMiddle + "function flow.index(q, c) return sluice.window{last = 1} end\n");
  EXPECT_NO_THROW(verify_layers(graph, 4));
  EXPECT_THROW(verify_layers(graph, 2), FlowError);
  FlowGraph two = flow_of("[0] = 'ends', rest = 'middle'", kEnds + kMiddle);
  two.variants[0].layers.sparse[0] = true;
  EXPECT_THROW(verify(two), FlowError);
  two = flow_of("[0] = 'ends', rest = 'middle'", kEnds + kMiddle);
  two.layers.rest_sparse = true;
  EXPECT_THROW(verify(two), FlowError);
  two = flow_of("[0] = 'ends', rest = 'middle'", kEnds + kMiddle);
  two.variants[0].geometry.page = 32;
  EXPECT_THROW(verify(two), FlowError);
  two = flow_of("[0] = 'ends', rest = 'middle'", kEnds + kMiddle);
  two.variants[0].variants.push_back(two.variants[0]);
  EXPECT_THROW(verify(two), FlowError);
}

TEST(Variants, TheReplTakesOneProgramAtATime) {
  const std::string source = "local flow = sluice.flow{name = 'v', layers = {rest = 'ends'}}\n" + kEnds + "return flow\n";
  EXPECT_THROW(inspect(source, "v.lua"), FlowError);
}

}  // namespace
}  // namespace sluice
