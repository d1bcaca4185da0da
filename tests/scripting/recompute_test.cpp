// flow.recompute: which copied tokens are computed again.
#include "scripting/graph/recompute.h"

#include <gtest/gtest.h>

#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

FlowGraph flow_of(const std::string& body, const std::string& options = "", TraceOptions trace_options = {}) {
  if (trace_options.heads == 0) trace_options.heads = 12;
  return trace("local flow = sluice.flow{name = 'v', layers = {rest = 'full'}" + options + "}\n" + body + "\nreturn flow\n",
               "v.lua", trace_options);
}

std::string error_of(const std::string& body, const std::string& options = "", const TraceOptions& trace_options = {}) {
  try {
    compile(flow_of(body, options, trace_options));
  } catch (const FlowError& error) {
    return std::string(error.what()).substr(6);  // without "v.lua:"
  }
  return "";
}

std::string rule_that(const std::string& body) { return "function flow.recompute(r) " + body + " end"; }

TEST(Recompute, SeesAllHeadsOfTheModel) {
  const FlowGraph graph = flow_of(rule_that("return sluice.topk_tokens(r.mass:sum('head'), {ratio = 0.5})"));
  ASSERT_NE(graph.recompute, nullptr);
  const Recompute& rule = *graph.recompute;
  EXPECT_EQ(rule.kind, Recompute::Kind::kSelected);
  EXPECT_EQ(rule.layer, 1);
  EXPECT_EQ(rule.rows, kToEnd);
  ASSERT_EQ(rule.graph.states.size(), 1U);
  EXPECT_EQ(to_string(rule.graph.states[0].shape), "[page B, token 16, head 12]");
  EXPECT_TRUE(graph.nodes.empty()) << "attention is dense";
  EXPECT_NE(to_text(graph).find("recompute by layer 1\n  %0 = load mass"), std::string::npos) << to_text(graph);
  EXPECT_NE(to_text(compile(graph).plan).find("recompute by layer 1"), std::string::npos);
}

TEST(Recompute, StandsBesideAnyFlow) {
  const std::string rule = rule_that("return sluice.topk(r.moved:max('token'), {k = 1})");
  const FlowGraph sparse = trace(
      "local flow = sluice.flow{name = 'v', page = 32}\nfunction flow.cache(c) c.m = c.k:mean('token') end\n"
      "function flow.index(q, c) return sluice.topk(q:dot(c.m):max('head'), {k = 4, last = 1}) end\n" +
          rule + "\nreturn flow\n",
      "v.lua");
  ASSERT_NE(sparse.recompute, nullptr);
  EXPECT_EQ(sparse.recompute->graph.geometry.page, 32);
  EXPECT_EQ(sparse.sources.size(), 1U);
  const FlowGraph variants = trace(
      "local flow = sluice.flow{name = 'v', layers = {rest = 'ends'}}\nlocal ends = flow.variant('ends')\n"
      "function ends.index(q, c) return sluice.window{last = 4} end\n" +
          rule + "\nreturn flow\n",
      "v.lua");
  EXPECT_NE(variants.recompute, nullptr);
}

TEST(Recompute, OptionsSayByWhichLayerAndRows) {
  const std::string rule = rule_that("return 'none'");
  const FlowGraph graph = flow_of(rule, ", recompute = {layer = 3, rows = 64}");
  EXPECT_EQ(graph.recompute->kind, Recompute::Kind::kNone);
  EXPECT_EQ(graph.recompute->layer, 3);
  EXPECT_EQ(graph.recompute->rows, 64);
  EXPECT_EQ(flow_of(rule_that("return 'all'")).recompute->kind, Recompute::Kind::kAll);
  EXPECT_EQ(error_of(rule, ", recompute = {layer = -1}"), "1: flow: recompute: there is no layer -1");
  EXPECT_EQ(error_of(rule, ", recompute = {rows = 0}"), "1: flow: recompute: 0 rows");
  EXPECT_EQ(error_of(rule, ", recompute = 3"), "1: flow: recompute: got the number 3");
  EXPECT_EQ(error_of("", ", recompute = {layer = 3}"), "1: sluice.flow: recompute is for flows with flow.recompute");
  EXPECT_EQ(error_of(rule, ", recompute = {layer = 8}", {.layers = 8}), "");
  EXPECT_EQ(
      error_of(rule_that("return sluice.topk_tokens(r.mass:sum('head'), {k = 1})"), ", recompute = {layer = 8}", {.layers = 8}),
      "2: recompute: there is no layer 8 in a model of 8 layers");
  EXPECT_NE(error_of(rule, ", recompute = {depth = 8}"), "");
}

TEST(Recompute, WhatCannotBeIsRefusedWithItsLine) {
  EXPECT_EQ(error_of(rule_that("return r.mess")), "2: nothing is known of copied tokens that is called r.mess");
  EXPECT_EQ(error_of(rule_that("")), "2: flow.recompute must return a selection, \"none\" or \"all\" and returned nothing");
  EXPECT_EQ(error_of(rule_that("return 'some'")),
            "2: flow.recompute must return a selection, \"none\" or \"all\" and returned the text \"some\"");
  EXPECT_EQ(error_of(rule_that("return sluice.pattern.window(4)")).substr(0, 39), "2: flow.recompute must return a selecti");
  EXPECT_EQ(error_of(rule_that("return sluice.union(sluice.topk(r.moved:max('token'), {k = 1}), sluice.pattern.window(4))")),
            "2: flow.recompute must return a selection, \"none\" or \"all\" and returned one that has more");
  EXPECT_EQ(error_of(rule_that("r.x = r.moved return 'none'")), "2: r.x cannot be assigned");
  EXPECT_EQ(error_of(rule_that("sluice.save('x', r.moved) return 'none'")),
            "2: flow.recompute runs once a prompt, and has no states");
  EXPECT_EQ(error_of(rule_that("local x = sluice.load('x', {axes = {'page'}}) return 'none'")),
            "2: flow.recompute runs once a prompt, and has no states");
  EXPECT_EQ(error_of(rule_that("return sluice.topk_tokens(r.mass, {k = 1})")).substr(0, 40),
            "2: topk_tokens: wants one score a token,");
  EXPECT_EQ(error_of(rule_that("sluice.evict(r.moved, {budget = 64}) return 'none'")).substr(0, 9), "2: evict:");
  EXPECT_EQ(error_of("flow.recompute = 'none'"), "2: flow.recompute must be a function");
  EXPECT_EQ(error_of(rule_that("return sluice.topk_tokens(r.mass:sum('head'), {k = 1})"), "", {.heads = 65}),
            "2: r.mass is by query head, of which the model has 65, and at most 64 are supported");
  EXPECT_EQ(error_of(rule_that("return sluice.topk_tokens(r.moved, {k = 1})"), "", {.heads = 65}), "");
  const std::string dear =
      rule_that("local x = r.mass for i = 1, 20 do x = x + r.mass end return sluice.topk_tokens(x:sum('head'), {k = 1})");
  EXPECT_EQ(error_of(dear, ", page = 64", {.heads = 64}).substr(0, 27), "2: flow.recompute computes ");
  EXPECT_EQ(error_of(dear, "", {.heads = 4}), "");
  EXPECT_EQ(error_of("local kept function flow.recompute(r) kept = r.moved return 'none' end\n"
                     "function flow.cache(c) c.x = kept end")
                .substr(0, 31),
            "3: a value of flow.recompute");
}

TEST(Recompute, IsTheWholeFlows) {
  const std::string script =
      "local flow = sluice.flow{name = 'v', layers = {rest = 'ends'}}\nlocal ends = flow.variant('ends')\n"
      "function ends.recompute(r) return 'none' end\nreturn flow\n";
  EXPECT_THROW(trace(script, "v.lua"), FlowError);
}

TEST(Recompute, ForgedRulesAreRefused) {
  const FlowGraph graph = flow_of(rule_that("return sluice.topk_tokens(r.moved, {k = 1})"));
  const auto expect_refused = [&](const auto& forge) {
    Recompute rule = *graph.recompute;
    forge(rule);
    EXPECT_THROW(verify_recompute(rule), FlowError);
    FlowGraph forged = graph;
    forged.recompute = std::make_shared<const Recompute>(rule);
    EXPECT_THROW(compile(forged), FlowError);
  };
  expect_refused([](Recompute& rule) { rule.layer = -1; });
  expect_refused([](Recompute& rule) { rule.rows = 0; });
  expect_refused([](Recompute& rule) { rule.graph.sources.clear(); });
  expect_refused([](Recompute& rule) { rule.graph.ranks_copies = false; });
  expect_refused([](Recompute& rule) { rule.graph.states[0].name = "others"; });
  expect_refused([](Recompute& rule) { rule.graph.states[0].shape.push_back({Axis::kHead, 12}); });
  expect_refused([](Recompute& rule) { rule.graph.states[0].shape = {{Axis::kToken, 16}}; });
  expect_refused([](Recompute& rule) { rule.graph.states[0].shape[1].extent = 8; });
  expect_refused([](Recompute& rule) { rule.graph.layers.rest_sparse = false; });
  expect_refused([](Recompute& rule) { rule.graph.layers.sparse[0] = false; });
  expect_refused([](Recompute& rule) { rule.graph.nodes[0].stage = Stage::kAfter; });
  expect_refused([&](Recompute& rule) { rule.graph.recompute = graph.recompute; });
  EXPECT_NO_THROW(verify_recompute(*graph.recompute));
}

}  // namespace
}  // namespace sluice
